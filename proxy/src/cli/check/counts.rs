//! Whether the vocabularies count as the backends do: one sample, both counts, before any request is sent.
//!
//! A vocabulary of another version or a template that the operator changed is wrong about every prompt, and shows here.

use bytes::Bytes;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::request::ChatRequest;

use crate::app::App;
use crate::cli::say;
use crate::config::Model;
use crate::measure::{by_backend, normalisation};

/// A request with something of everything that engines render differently.
const SAMPLE: &[u8] = include_bytes!("sample.json");

/// Whether the vocabulary counts a sample as the backends themselves do.
pub(super) async fn tell(app: &App, at: usize, model: &Model) {
    let Some(counter) = app.vocabularies.get(Some(at)) else { return };
    let Ok(sample) = ChatRequest::parse(Bytes::from_static(SAMPLE)) else { return };
    for backend in app.fleet.at(&model.backends) {
        let found = backend.chat_template();
        if found.as_ref().is_some_and(|template| !counter.has_template(&template.source)) {
            say(format_args!(
                "{} at {}: runs another chat template than the tokenizer's files have: prompts are counted with the one that it runs",
                model.name,
                backend.name()
            ));
        }
        let Some(counter) = app.vocabularies.running().counter(&counter, found.as_ref()) else {
            say(format_args!(
                "{} at {}: caution: that template is not understood; the backend is asked to count",
                model.name,
                backend.name()
            ));
            continue;
        };
        let Some(theirs) = by_backend(&backend, Some(Dialect::Chat), &sample).await else { continue };
        let whose = format!("{} at {}", model.name, backend.name());
        match counter.count_chat(&sample, normalisation(backend.engine())) {
            Ok(ours) if ours.low() <= theirs && theirs <= ours.high() => {
                say(format_args!("{whose}: counts a sample as the backend does, {theirs} tokens"));
            }
            Ok(ours) => say(format_args!(
                "{whose}: caution: the vocabulary counts {ours} tokens in a sample and the backend {theirs}: another model, template \
                 or version? Until its answers have taught the difference, lengths are wrong by it"
            )),
            Err(error) => {
                say(format_args!("{whose}: caution: {error}; the backend counts {theirs} tokens in a sample"))
            }
        }
    }
}
