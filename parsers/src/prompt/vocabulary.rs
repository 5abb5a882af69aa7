//! A model's vocabulary: text in, number of tokens out, as the model's own tokenizer has it.
//!
//! Read from a tokenizer.json or from a GGUF file's metadata. The library (tokenizers 1.0.0-rc.3) holds the model and the special
//! tokens; the steps are run here, so that one vocabulary serves both engines: vLLM normalises to NFC, llama.cpp never does.
//!
//! Files are not trusted: what would make the library panic or allocate by a number in the file is refused before it sees it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;
use serde_json::Value as Json;
use tokenizers::models::bpe::{BpeConfig, PipelineBPE};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pipeline::{
    Model, Normalizer, NormalizerChain, PipelineModel, PipelineModelScratch, PipelinePostProcessor,
    PipelinePreTokenizer as Splitter, PipelineToken, PipelineTokenizer, PreTokenizer, PreTokenizerScratch, Segment,
    Span, SpecialSegmentIterator,
};
use tokenizers::utils::byte_level::BYTES_CHAR_LOOKUP;
use tokenizers::vocab::bucket_added_vocabulary::{AddedToken, AddedVocabulary};

use super::gguf::Metadata;
use super::splitter;

/// Ids from here on are refused: the library makes tables as long as the largest id.
const MAX_ID: u64 = 1 << 22;
/// The longest token that the library takes, in bytes.
const MAX_TOKEN: usize = u16::MAX as usize;
/// The most working buffers that are kept for reuse, about one per counting thread.
const MAX_POOLED: usize = 8;

/// Token types of GGUF files (`llama.h`, `llama_token_type`).
const TYPE_UNKNOWN: i64 = 2;
const TYPE_CONTROL: i64 = 3;
const TYPE_USER_DEFINED: i64 = 4;
/// Tokens that llama.cpp takes for special whatever the file says of their type.
const ALWAYS_SPECIAL: [&str; 19] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|constrain|>",
];

/// A vocabulary that counts.
pub(super) struct Vocabulary {
    tokenizer: PipelineTokenizer,
    splitter: Splitter,
    nfc: Nfc,
    /// Bytes that are no tokens.
    gaps: Gaps,
    /// How many tokens encoding puts around a text: BOS, EOS.
    around: u64,
    model: &'static str,
    size: usize,
    pool: Mutex<Vec<Scratch>>,
}

/// A byte-level vocabulary should have a token for every byte. SmolLM2's lacks eight: the library refuses it, so they are put in with
/// ids of their own and told apart in the count. llama.cpp leaves such bytes out; transformers makes them the unknown token, if any.
#[derive(Clone, Debug, Default)]
struct Gaps {
    ids: std::ops::Range<u32>,
    has_unknown: bool,
}

/// Who normalises text to NFC before it is tokenised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nfc {
    Nobody,
    /// The model's tokenizer.json says so; llama.cpp ignores it.
    Vllm,
}

#[derive(Default)]
struct Scratch {
    split: PreTokenizerScratch,
    spans: Vec<Span>,
    model: PipelineModelScratch,
    tokens: Vec<PipelineToken>,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vocabulary({}, {} tokens)", self.model, self.size)
    }
}

impl Vocabulary {
    /// Reads a tokenizer.json of any version.
    ///
    /// # Errors
    /// What is wrong with it, or not supported.
    pub(super) fn from_json(text: &[u8]) -> Result<Self, String> {
        let mut config: Json = serde_json::from_slice(text).map_err(|e| format!("not valid json: {e}"))?;
        tokenizers::canonicalize_value(&mut config).map_err(|e| e.to_string())?;
        let (model, size) = check_model(&config)?;
        let root = config.as_object_mut().ok_or("not a json object")?;
        let nfc = root.get("normalizer").and_then(|n| n.get("type")) == Some(&Json::from("NFC"));
        if nfc {
            root.insert("normalizer".into(), Json::Null);
        }
        let gaps = fill_json_gaps(root);
        let splitter = splitter::of_json(&root.insert("pre_tokenizer".into(), Json::Null).unwrap_or_default())?;
        // Padding and truncation are a caller's business, decoding is nobody's here.
        for unused in ["padding", "truncation", "decoder"] {
            root.insert(unused.into(), Json::Null);
        }
        let tokenizer = guarded(|| tokenizers::from_json(&config.to_string()))?;
        let around = tokenizer.get_post_processor().single.n_special() as u64;
        let nfc = if nfc { Nfc::Vllm } else { Nfc::Nobody };
        Self { tokenizer, splitter, nfc, gaps, around, model, size, pool: Mutex::default() }.proven()
    }

    /// Takes the vocabulary from a GGUF file's metadata.
    ///
    /// # Errors
    /// What is missing, wrong or not supported.
    pub(super) fn from_gguf(metadata: &Metadata) -> Result<Self, String> {
        let model = metadata.text("tokenizer.ggml.model").ok_or("tokenizer.ggml.model is missing")?;
        if model != "gpt2" {
            return Err(format!(
                "vocabulary of kind {model} is not read from gguf files: give the model's tokenizer.json instead"
            ));
        }
        let pre = metadata.text("tokenizer.ggml.pre").ok_or("tokenizer.ggml.pre is missing")?;
        let kind = splitter::of_gguf(pre)?;
        let tokens = metadata.texts("tokenizer.ggml.tokens").ok_or("tokenizer.ggml.tokens is missing")?;
        let merges = metadata.texts("tokenizer.ggml.merges").ok_or("tokenizer.ggml.merges is missing")?;
        let types = metadata.integers("tokenizer.ggml.token_type").unwrap_or_default();
        if tokens.is_empty() || tokens.len() as u64 >= MAX_ID {
            return Err(format!("vocabulary has {} tokens; 1 to {MAX_ID} are read", tokens.len()));
        }
        let mut config =
            BpeConfig { byte_level: true, ignore_merges: kind.ignore_merges, ..BpeConfig::default() };
        let mut special = Vec::new();
        for (id, token) in tokens.iter().enumerate() {
            check_token(token)?;
            config.vocab.insert(token.clone(), id as u32);
            let kind = types.get(id).copied().unwrap_or(1);
            if matches!(kind, TYPE_UNKNOWN | TYPE_CONTROL | TYPE_USER_DEFINED) || ALWAYS_SPECIAL.contains(&&**token) {
                special.push(AddedToken::from(token, true));
            }
        }
        let missing = missing_bytes(|token| config.vocab.contains_key(token));
        let gaps = Gaps {
            ids: tokens.len() as u32..(tokens.len() + missing.len()) as u32,
            has_unknown: metadata.index("tokenizer.ggml.unknown_token_id").is_some(),
        };
        config.vocab.extend(missing.into_iter().zip(gaps.ids.clone()));
        for (rank, merge) in merges.iter().enumerate() {
            // The separator is the first blank behind the first character.
            let at = merge.char_indices().skip(1).find(|(_, c)| *c == ' ');
            let pair = at.and_then(|(at, _)| Some((merge.get(..at)?, merge.get(at + 1..)?)));
            let (left, right) = pair.ok_or_else(|| format!("merge {rank} is not two tokens: {merge:?}"))?;
            check_merge(rank, left, right, |token| config.vocab.contains_key(token))?;
            config.merges.push((left.to_owned(), right.to_owned()));
        }
        let ids = config.vocab.clone();
        let tokenizer = guarded(move || {
            let mut added = AddedVocabulary::new();
            added.add_tokens(special, ids.len(), |token| ids.get(token).copied(), None::<&NormalizerChain<'_>>)?;
            let model = PipelineModel::BPE(PipelineBPE::from_config(config)?);
            let frame = PipelinePostProcessor::default();
            let roles = BTreeMap::new();
            Ok(PipelineTokenizer::from_parts(added, vec![], Splitter::None, model, frame, None, roles, None, None))
        })?;
        let adds_bos = metadata.bool("tokenizer.ggml.add_bos_token").unwrap_or(kind.adds_bos);
        let adds_eos = metadata.bool("tokenizer.ggml.add_eos_token").unwrap_or(false);
        let around = u64::from(adds_bos) + u64::from(adds_eos);
        let nfc = if kind.nfc { Nfc::Vllm } else { Nfc::Nobody };
        let size = tokens.len();
        Self { tokenizer, splitter: kind.splitter, nfc, gaps, around, model: "bpe", size, pool: Mutex::default() }
            .proven()
    }

    /// Gives the vocabulary back if it can count: what the library cannot run shows here and not in the middle of a request.
    fn proven(self) -> Result<Self, String> {
        guarded(|| self.count("Ab 12\u{e9}\n", true).map_err(Into::into))?;
        Ok(self)
    }

    /// The kind of vocabulary: `bpe`, `unigram`.
    pub(super) fn model(&self) -> &'static str {
        self.model
    }

    /// How many tokens there are.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// How many tokens encoding puts around a text that is not a rendered chat.
    pub(super) fn around(&self) -> u64 {
        self.around
    }

    /// How many tokens `text` has, nothing added. Special tokens that stand in it count as what they are, as both engines have it.
    ///
    /// # Errors
    /// The library's words; so far only for runs of white space of a million characters, at patterns that it has no scanner for.
    pub(super) fn count(&self, text: &str, for_vllm: bool) -> Result<u64, String> {
        let mut scratch = self.pool.lock().pop().unwrap_or_else(|| Scratch {
            model: self.tokenizer.get_model().init_scratch(),
            ..Scratch::default()
        });
        let counted = self.count_segments(text, for_vllm, &mut scratch);
        let mut pool = self.pool.lock();
        if pool.len() < MAX_POOLED {
            pool.push(scratch);
        }
        counted.map_err(|error| format!("the vocabulary cannot count this text: {error}"))
    }

    fn count_segments(&self, text: &str, for_vllm: bool, scratch: &mut Scratch) -> tokenizers::Result<u64> {
        let nfc = for_vllm && self.nfc == Nfc::Vllm;
        let gaps_count = for_vllm && self.gaps.has_unknown;
        let added = self.tokenizer.get_added_vocabulary();
        let normalizers = NormalizerChain(self.tokenizer.get_normalizers());
        let mut count = 0;
        for segment in SpecialSegmentIterator::new(text, added, false, false) {
            let Segment::Text { text, input_offset } = segment else {
                count += 1;
                continue;
            };
            let text = if nfc { NFC.normalize(text, input_offset)? } else { Cow::Borrowed(text) };
            let text = normalizers.normalize(&text, input_offset)?;
            for segment in SpecialSegmentIterator::new(&text, added, true, false) {
                count += match segment {
                    Segment::SpecialToken(_) => 1,
                    Segment::Text { text, .. } => self.count_words(text, gaps_count, scratch)?,
                };
            }
        }
        Ok(count)
    }

    fn count_words(&self, text: &str, gaps_count: bool, scratch: &mut Scratch) -> tokenizers::Result<u64> {
        // Spans are 32 bits wide.
        if u32::try_from(text.len()).is_err() {
            return Err(format!("it has {} bytes; the limit is {}", text.len(), u32::MAX).into());
        }
        scratch.spans.clear();
        scratch.tokens.clear();
        self.splitter.pre_tokenize(text, &mut scratch.split, &mut scratch.spans)?;
        self.tokenizer.get_model().tokenize_spans(
            text,
            &scratch.spans,
            &mut scratch.model,
            &mut scratch.tokens,
        )?;
        let is_gap = |token: &&PipelineToken| self.gaps.ids.contains(&token.id());
        let left_out = match gaps_count || self.gaps.ids.is_empty() {
            true => 0,
            false => scratch.tokens.iter().filter(is_gap).count(),
        };
        Ok((scratch.tokens.len() - left_out) as u64)
    }
}

/// The tokens of the bytes that UTF-8 has and the vocabulary has not.
fn missing_bytes(known: impl Fn(&str) -> bool) -> Vec<String> {
    let bytes = (0..=0xF4_u8).filter(|byte| !matches!(byte, 0xC0 | 0xC1));
    bytes.map(|byte| BYTES_CHAR_LOOKUP[usize::from(byte)].to_string()).filter(|token| !known(token)).collect()
}

/// Puts the missing bytes into a canonical tokenizer.json.
fn fill_json_gaps(root: &mut serde_json::Map<String, Json>) -> Gaps {
    let ids = |values: &mut dyn Iterator<Item = &Json>| values.filter_map(Json::as_u64).max().unwrap_or_default();
    let added = root.get("added_tokens").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let last_added = ids(&mut added.iter().filter_map(|token| token.get("id")));
    let Some(model) = root.get_mut("model").filter(|model| model.get("byte_level") == Some(&Json::Bool(true))) else {
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

/// Runs a part of the library that builds tables. A release candidate may panic on what it did not foresee.
fn guarded<T>(build: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(built) => built.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizer library failed on this vocabulary".into()),
    }
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
        let (Some(left), Some(right)) = (left, right) else { return Err(format!("merge {rank} is not two tokens")) };
        let rest = right.strip_prefix(prefix).ok_or_else(|| format!("merge {rank} lacks the prefix {prefix}"))?;
        let known = |token: &str| model.get("vocab").and_then(|vocab| vocab.get(token)).is_some();
        check_merge(rank, left, rest, |token| known(token) || (token == rest && known(right)))?;
    }
    match text("type") {
        "BPE" => Ok(("bpe", size)),
        "Unigram" => Ok(("unigram", size)),
        other => Err(format!("vocabulary of kind {other} is not read")),
    }
}

fn check_token(token: &str) -> Result<(), String> {
    if token.len() > MAX_TOKEN {
        return Err(format!("a token has {} bytes; the limit is {MAX_TOKEN}", token.len()));
    }
    Ok(())
}

fn check_id(token: &str, id: &Json) -> Result<(), String> {
    match id.as_u64() {
        Some(id) if id < MAX_ID => Ok(()),
        _ => Err(format!("token {token:?} has the id {id}; 0 to {} are read", MAX_ID - 1)),
    }
}

/// The two tokens of a merge and what they make must be tokens.
fn check_merge(rank: usize, left: &str, right: &str, known: impl Fn(&str) -> bool) -> Result<(), String> {
    match [left, right, &format!("{left}{right}")].into_iter().find(|token| !known(token)) {
        None => Ok(()),
        Some(unknown) => Err(format!("merge {rank} names {unknown:?}, which is no token")),
    }
}
