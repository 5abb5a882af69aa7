//! SentencePiece's way with blanks: each is written as `▁`, and one more stands at the front of a text.
//!
//! Why here: the library makes a normaliser of it, which runs before the tokens that are looked for in normalised texts. The engines run it
//! behind them (tokenizers 0.2x, `pre_tokenizers/metaspace.rs`): what stands behind such a token gets its `▁` too, and tokens with blanks in them are found.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};
use tokenizers::normalizers::metaspace::{MetaspaceNormalizer, PrependBehavior};
use tokenizers::pipeline::Normalizer;

/// Writes `▁`.
#[derive(Debug)]
pub(super) struct Metaspace {
    writer: MetaspaceNormalizer,
    /// Only what stands at the front of the whole text gets one more.
    pub(super) front_only: bool,
}

impl Metaspace {
    /// Takes the normaliser out of a canonical tokenizer.json that the pre-tokenizer of the file as it was has become; none if it was another one.
    ///
    /// # Errors
    /// What cannot be told: whether a text is at the front, where something before it may go.
    pub(super) fn take(was: &Json, root: &mut Map<String, Json>) -> Result<Option<Self>, String> {
        let is = |value: Option<&Json>, name: &str| {
            value.and_then(|value| value.get("type")) == Some(&Json::from(name))
        };
        let parts = was.get("pretokenizers").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        if !is(Some(was), "Metaspace") && !is(parts.last(), "Metaspace") {
            return Ok(None);
        }
        let normalizer = root.insert("normalizer".into(), Json::Null).unwrap_or_default();
        let (rest, written) = match normalizer {
            Json::Object(mut chain) if chain.get("type") == Some(&Json::from("Sequence")) => {
                let last = chain.get_mut("normalizers").and_then(Json::as_array_mut).and_then(Vec::pop);
                (Json::Object(chain), last.unwrap_or_default())
            }
            alone => (Json::Null, alone),
        };
        if !is(Some(&written), "MetaspaceNormalizer") {
            return Err("a Metaspace of the pre-tokenizer stands where it is not read".into());
        }
        let text = |key: &str| written.get(key).and_then(Json::as_str).unwrap_or_default();
        let prepend = match text("prepend") {
            "first" => PrependBehavior::First,
            "never" => PrependBehavior::Never,
            _ => PrependBehavior::Always,
        };
        let front_only = prepend == PrependBehavior::First;
        if front_only && !keeps_the_front(&rest) {
            return Err(
                "a Metaspace for the front stands behind a normaliser that may take the front away".into()
            );
        }
        root.insert("normalizer".into(), rest);
        let drops = written.get("drop_whitespace") == Some(&Json::Bool(true));
        let delimiter = text("replacement").chars().next().ok_or("a Metaspace has no replacement")?;
        Ok(Some(Self { writer: MetaspaceNormalizer::new(delimiter, prepend, drops), front_only }))
    }

    /// `text` with its blanks written.
    pub(super) fn write<'a>(&self, text: &'a str, is_front: bool) -> tokenizers::Result<Cow<'a, str>> {
        self.writer.normalize(text, usize::from(!is_front))
    }
}

/// Whether what a normaliser makes of a text begins with what it makes of the text's first letter.
fn keeps_the_front(normalizer: &Json) -> bool {
    let is_text = |value: Option<&Json>| value.and_then(Json::as_str).is_some_and(|text| !text.is_empty());
    match normalizer.get("type").and_then(Json::as_str) {
        None => normalizer.is_null(),
        Some("Sequence") => normalizer
            .get("normalizers")
            .and_then(Json::as_array)
            .is_some_and(|all| all.iter().all(keeps_the_front)),
        Some("Replace") => is_text(normalizer.get("content")),
        Some(kind) => ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Prepend"].contains(&kind),
    }
}
