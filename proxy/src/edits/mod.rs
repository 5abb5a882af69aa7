//! From a decision's rules to edits of the request: what changes for every candidate, and what for one.
//!
//! All else leaves byte for byte. A rule that the request gives no place for changes nothing.

mod drop;
mod engine;
mod volatile;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value as Json;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::edit::Edits;
use switchback_parsers::history;
use switchback_parsers::json::Value;
use switchback_parsers::needs::{self, Need};
use switchback_parsers::request::ChatRequest;
use switchback_policies::decision::{Choice, Rule};

pub(crate) use self::volatile::BILLING;
use crate::backend::Backend;
use crate::call::Call;
use crate::config::Repair;
use crate::identify::Client;

/// What stands in place of a picture that the backend cannot read.
const NO_PICTURE: &str = r#"{"type":"text","text":"[a picture stood here]"}"#;

/// Changes of a request, and the names of those that a client may want to know of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    edits: Edits,
    named: Vec<String>,
}

impl Changes {
    /// Makes a change; it is named if it changes anything.
    fn make(&mut self, name: impl Into<String>, change: impl FnOnce(&mut Edits)) {
        let before = self.edits.len();
        change(&mut self.edits);
        if self.edits.len() > before {
            self.named.push(name.into());
        }
    }
}

/// A body as one candidate gets it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) body: Bytes,
    /// What differs from the client's own, for the header and the log.
    pub(crate) adjusted: Vec<String>,
}

/// Changes that hold for every candidate: the operator's sampling for this client, and no volatile line at the prompt's
/// head.
pub(crate) fn base(call: &Call, client: &Client, strip_volatile: bool, repair: Repair) -> Changes {
    let mut changes = Changes::default();
    let Some(request) = &call.request else { return changes };
    if repair.history && call.endpoint.dialect == Some(Dialect::Chat) {
        let mended = history::mend(request);
        for note in mended.notes {
            tracing::info!(id = call.id, note, "history mended");
        }
        changes.make("history mended", |edits| *edits = mended.edits);
    }
    if strip_volatile {
        changes.make("volatile lines left out", |edits| volatile::strip(request, edits));
    }
    for (member, sampling) in &client.sampling {
        let sent = request.root().get(member).filter(|sent| !sent.is_null());
        if let Some(number) = sampling.instead_of(sent.and_then(Value::as_f64)) {
            changes
                .make(format!("{member} set to {number}"), |edits| edits.set(request.root(), member, number));
        }
    }
    changes
}

/// Asks for the usage of a stream, for the books. It does not show, but for llama.cpp: that moves its `timings` to the
/// usage chunk, and they tell as much where they were; so it is asked only if the client or the operator wants usage.
fn ask_usage(call: &Call, request: &ChatRequest, engine: Engine, always: bool, edits: &mut Edits) {
    let streams = matches!(call.endpoint.dialect, Some(Dialect::Chat | Dialect::Completions)) && call.stream;
    if !streams || request.wants_usage() || (engine == Engine::LlamaCpp && !always) {
        return;
    }
    match request.root().get("stream_options").filter(|options| !options.is_null()) {
        Some(options) => edits.set(options, "include_usage", "true"),
        None => edits.set(request.root(), "stream_options", r#"{"include_usage":true}"#),
    }
}

/// The body for one candidate.
pub(crate) fn write(
    call: &Call,
    client: &Client,
    backend: &Backend,
    choice: &Choice,
    base: &Changes,
    always_ask_usage: bool,
    repair: Repair,
) -> Written {
    let Some(request) = &call.request else {
        return Written { body: call.body.clone(), adjusted: Vec::new() };
    };
    let root = request.root();
    let mut changes = Changes::default();
    // Bookkeeping, of which nobody needs to hear.
    ask_usage(call, request, backend.engine(), always_ask_usage, &mut changes.edits);
    if let Some(name) = backend.name_for(call.model.as_deref()) {
        changes.edits.set(root, "model", Json::from(name).to_string());
    }
    for rule in &choice.rules {
        changes.make(rule.to_string(), |edits| carry_out(*rule, request, edits));
    }
    let weakened = choice.rules.contains(&Rule::WeakenToolChoice);
    if repair.tool_calls && backend.parses_no_tools() && (weakened || is_auto(request)) {
        // It refuses `auto` and renders the tools all the same with `none`; the calls are found in its text.
        changes.make("calls read here, so tool_choice sent as none", |edits| {
            edits.set(root, "tool_choice", "\"none\"");
        });
    }
    let mut needs = backend.needs();
    needs.retain(|need| !client.needs_off.contains(need));
    if call.endpoint.dialect == Some(Dialect::Chat) {
        engine::without_the_meaningless(request, backend.engine(), call.stream, &mut changes);
        engine::name_limit(
            request,
            backend.engine(),
            choice.output().or(request.output_limit()),
            &mut changes,
        );
        for need in &needs {
            changes.make(need.done(), |edits| needs::meet(request, *need, edits));
        }
        for place in &backend.config.drop {
            changes.make(format!("{place} left out"), |edits| drop::place(request, place, edits));
        }
        for keyword in &backend.config.drop_schema_keywords {
            changes.make(format!("schema keyword {keyword} left out"), |edits| {
                drop::keyword(request, keyword, edits);
            });
        }
    }
    let adjusted = [base.named.as_slice(), &changes.named].concat();
    arranged(call, &needs, Written { body: request.write(&base.edits, &changes.edits), adjusted })
}

/// The request as the backend's template reads it, to be counted; the very same if that takes it as it came.
pub(crate) fn readable(call: &Call, request: &Arc<ChatRequest>, needs: &[Need]) -> Arc<ChatRequest> {
    let mut edits = Edits::new();
    if call.endpoint.dialect == Some(Dialect::Chat) {
        needs.iter().for_each(|need| needs::meet(request, *need, &mut edits));
    }
    let body = request.write(&Edits::new(), &edits);
    let written = arranged(call, needs, Written { body, adjusted: Vec::new() });
    if edits.is_empty() && written.adjusted.is_empty() {
        return request.clone();
    }
    ChatRequest::parse(written.body).map_or_else(|_| request.clone(), Arc::new)
}

/// Turns as the template wants them. Last, and on the body as it was to be sent: what is joined holds all other changes.
fn arranged(call: &Call, needs: &[Need], mut written: Written) -> Written {
    let apart = match call.endpoint.dialect {
        Some(Dialect::Chat) => false,
        Some(Dialect::Messages) => true,
        Some(Dialect::Completions | Dialect::Responses) | None => return written,
    };
    if !needs.iter().any(|need| need.is_of_turns()) {
        return written;
    }
    let Ok(request) = ChatRequest::parse(written.body.clone()) else { return written };
    let arranged = needs::arrange(&request, needs, apart);
    let mut edits = Edits::new();
    for (member, json) in [("messages", arranged.messages), ("system", arranged.system)] {
        if let Some(json) = json {
            edits.set(request.root(), member, json);
        }
    }
    written.adjusted.extend(arranged.acted.iter().map(|need| need.done().to_owned()));
    Written { body: request.write(&Edits::new(), &edits), ..written }
}

fn carry_out(rule: Rule, request: &ChatRequest, edits: &mut Edits) {
    match rule {
        Rule::LimitOutput(tokens) => set_output(request, tokens, |limit| limit > tokens, edits),
        Rule::RaiseOutput(tokens) => set_output(request, tokens, |limit| limit < tokens, edits),
        Rule::ReplaceImages => {
            for image in request.messages().flat_map(|message| message.images()) {
                edits.replace(image, NO_PICTURE);
            }
        }
        Rule::WeakenToolChoice => edits.set(request.root(), "tool_choice", "\"auto\""),
        Rule::AskWhole => {
            edits.set(request.root(), "stream", "false");
            edits.remove(request.root(), "stream_options");
        }
    }
}

/// Tools are declared, and the choice is the model's.
fn is_auto(request: &ChatRequest) -> bool {
    let choice = request.root().get("tool_choice").and_then(|choice| choice.as_str());
    let left_open = choice.as_deref().map_or_else(
        || request.root().get("tool_choice").is_none_or(|choice| choice.is_null()),
        |word| word == "auto",
    );
    left_open && request.tools().next().is_some()
}

/// Under whichever names the client has set a limit.
pub(crate) fn set_output(request: &ChatRequest, tokens: u64, goes: impl Fn(u64) -> bool, edits: &mut Edits) {
    for member in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        if request.root().get(member).and_then(|limit| limit.as_u64()).is_some_and(&goes) {
            edits.set(request.root(), member, tokens.to_string());
        }
    }
}
