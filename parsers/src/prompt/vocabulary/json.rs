//! A vocabulary from a tokenizer.json, of any version that the library can lift to its own.
//!
//! The library's reader trusts the file: an id makes a table that long, a merge of unknown tokens panics. Everything of that kind is
//! checked here first, and the error names the token.

use std::borrow::Cow;
use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::Value as Json;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pipeline::Normalizer;

use super::memo::Memo;
use super::metaspace::Metaspace;
use super::pieces::Added;
use super::words::Words;
use super::{Gaps, MAX_ID, Vocabulary, check_merge, check_token, guarded, missing_bytes, splitter};

impl Vocabulary {
    /// Reads a tokenizer.json of any version.
    ///
    /// # Errors
    /// What is wrong with it, or not supported.
    pub(in crate::prompt) fn from_json(text: &[u8]) -> Result<Self, String> {
        let mut config: Json = serde_json::from_slice(text).map_err(|e| format!("not valid json: {e}"))?;
        let pre_tokenizer = config.get("pre_tokenizer").cloned().unwrap_or_default();
        tokenizers::canonicalize_value(&mut config).map_err(|e| e.to_string())?;
        let (model, size) = check_model(&config)?;
        let root = config.as_object_mut().ok_or("not a json object")?;
        let words = Words::of_json(root);
        let metaspace = Metaspace::take(&pre_tokenizer, root)?;
        let front_matters = metaspace.as_ref().is_some_and(|metaspace| metaspace.front_only);
        let normalizer = root.get("normalizer").unwrap_or(&Json::Null);
        let parts_apart = keeps_parts_apart(normalizer) && !front_matters;
        let growth = growth(normalizer).saturating_mul(if metaspace.is_some() { 6 } else { 1 });
        let nfc = normalizer.get("type") == Some(&Json::from("NFC"));
        if nfc {
            root.insert("normalizer".into(), Json::Null);
            compose_added(root);
        }
        let is_byte_level =
            root.get("model").and_then(|model| model.get("byte_level")) == Some(&Json::Bool(true));
        let gaps = fill_json_gaps(root);
        let splitter =
            splitter::of_json(&root.insert("pre_tokenizer".into(), Json::Null).unwrap_or_default())?;
        // Padding and truncation are a caller's business, decoding is nobody's here.
        for unused in ["padding", "truncation", "decoder"] {
            root.insert(unused.into(), Json::Null);
        }
        let tokenizer = guarded(|| tokenizers::from_json(&config.to_string()))?;
        let around = tokenizer.get_post_processor().single.n_special() as u64;
        Self {
            added: Added::new(tokenizer.get_added_vocabulary())?,
            metaspace,
            tokenizer,
            splitter,
            words,
            nfc,
            growth,
            gaps,
            around,
            model,
            size,
            is_byte_level,
            is_rebuilt: false,
            parts_apart,
            anchors: HashMap::new(),
            pool: Mutex::default(),
            memo: Memo::default(),
        }
        .proven()
    }
}

/// Whether a normaliser does the same to a text wherever it stands.
fn keeps_parts_apart(normalizer: &Json) -> bool {
    match normalizer.get("type").and_then(Json::as_str) {
        None => normalizer.is_null(),
        Some("Sequence") => normalizer
            .get("normalizers")
            .and_then(Json::as_array)
            .is_some_and(|all| all.iter().all(keeps_parts_apart)),
        Some(kind) => ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace", "StripAccents"].contains(&kind),
    }
}

/// By how much a normaliser may lengthen a text, in times, if each of its bytes were a text of its own.
fn growth(normalizer: &Json) -> u64 {
    let length = |value: Option<&Json>| value.and_then(Json::as_str).map_or(0, |text| text.len() as u64);
    match normalizer.get("type").and_then(Json::as_str) {
        None | Some("Strip" | "StripAccents") => 1,
        Some("Sequence") => normalizer
            .get("normalizers")
            .and_then(Json::as_array)
            .map_or(1, |all| all.iter().map(growth).fold(1, u64::saturating_mul)),
        Some("Lowercase" | "ByteLevel") => 2,
        Some("NFC" | "NFD") => 3,
        Some("Prepend") => length(normalizer.get("prepend")) + 1,
        // An empty match puts it between all letters.
        Some("Replace") => length(normalizer.get("content")) + 1,
        // The longest that a letter of three bytes becomes has 33.
        Some(_) => 12,
    }
}

/// Composes the tokens that are looked for in a composed text.
fn compose_added(root: &mut serde_json::Map<String, Json>) {
    let added = root.get_mut("added_tokens").and_then(Json::as_array_mut).into_iter().flatten();
    for token in added.filter(|token| token.get("normalized") == Some(&Json::Bool(true))) {
        let content = token.get("content").and_then(Json::as_str).unwrap_or_default();
        if let Some(composed) = NFC.normalize(content, 1).ok().map(Cow::into_owned) {
            token["content"] = composed.into();
        }
    }
}

/// Puts the missing bytes into a canonical tokenizer.json.
fn fill_json_gaps(root: &mut serde_json::Map<String, Json>) -> Gaps {
    let ids =
        |values: &mut dyn Iterator<Item = &Json>| values.filter_map(Json::as_u64).max().unwrap_or_default();
    let added = root.get("added_tokens").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let last_added = ids(&mut added.iter().filter_map(|token| token.get("id")));
    let Some(model) =
        root.get_mut("model").filter(|model| model.get("byte_level") == Some(&Json::Bool(true)))
    else {
        return Gaps::default();
    };
    let has_unknown = model.get("unk_token").is_some_and(Json::is_string);
    let Some(vocab) = model.get_mut("vocab").and_then(Json::as_object_mut) else { return Gaps::default() };
    let first = ids(&mut vocab.values()).max(last_added) as u32 + 1;
    let missing = missing_bytes(|token| vocab.contains_key(token));
    let ids = first..first + missing.len() as u32;
    vocab.extend(missing.into_iter().zip(ids.clone()).map(|(token, id)| (token, id.into())));
    Gaps { ids, has_unknown }
}

/// The kind and the size of a canonical tokenizer.json's model, once nothing in it can hurt.
fn check_model(config: &Json) -> Result<(&'static str, usize), String> {
    let model = config.get("model").ok_or("model is missing")?;
    let text = |key: &str| model.get(key).and_then(Json::as_str).unwrap_or_default();
    let mut size = match model.get("vocab") {
        Some(Json::Object(vocab)) => {
            for (token, id) in vocab {
                check_token(token)?;
                check_id(token, id)?;
            }
            vocab.len()
        }
        Some(Json::Array(vocab)) => {
            let tokens = vocab.iter().filter_map(|entry| entry.get(0)?.as_str());
            tokens.map(check_token).collect::<Result<Vec<_>, _>>()?.len()
        }
        _ => return Err("model.vocab is missing".into()),
    };
    if size == 0 || size as u64 >= MAX_ID {
        return Err(format!("vocabulary has {size} tokens; 1 to {MAX_ID} are read"));
    }
    let added = config.get("added_tokens").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    for token in added {
        let content = token.get("content").and_then(Json::as_str).unwrap_or_default();
        check_token(content)?;
        check_id(content, token.get("id").unwrap_or(&Json::Null))?;
        size += usize::from(model.get("vocab").and_then(|vocab| vocab.get(content)).is_none());
    }
    let prefix = text("continuing_subword_prefix");
    let merges = model.get("merges").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    for (rank, merge) in merges.iter().enumerate() {
        let (left, right) = (merge.get(0).and_then(Json::as_str), merge.get(1).and_then(Json::as_str));
        let (Some(left), Some(right)) = (left, right) else {
            return Err(format!("merge {rank} is not two tokens"));
        };
        let rest =
            right.strip_prefix(prefix).ok_or_else(|| format!("merge {rank} lacks the prefix {prefix}"))?;
        let known = |token: &str| model.get("vocab").and_then(|vocab| vocab.get(token)).is_some();
        check_merge(rank, left, rest, |token| known(token) || (token == rest && known(right)))?;
    }
    match text("type") {
        "BPE" => Ok(("bpe", size)),
        "Unigram" => Ok(("unigram", size)),
        other => Err(format!("vocabulary of kind {other} is not read")),
    }
}

fn check_id(token: &str, id: &Json) -> Result<(), String> {
    match id.as_u64() {
        Some(id) if id < MAX_ID => Ok(()),
        _ => Err(format!("token {token:?} has the id {id}; 0 to {} are read", MAX_ID - 1)),
    }
}
