//! A vocabulary from the metadata of a GGUF file, as llama.cpp's `llama-vocab.cpp` (b11434) reads it.
//!
//! Byte-level BPE only, of the kinds that [`super::splitter`] knows. SentencePiece vocabularies carry no merges but scores, and are
//! refused by name.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokenizers::models::bpe::BpeConfig;
use tokenizers::vocab::bucket_added_vocabulary::AddedToken;

use super::memo::Memo;
use super::pieces::Added;
use super::{Gaps, MAX_ID, Vocabulary, bare, check_merge, check_token, missing_bytes, splitter};
use crate::prompt::gguf::Metadata;

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

impl Vocabulary {
    /// Takes the vocabulary from a GGUF file's metadata.
    ///
    /// # Errors
    /// What is missing, wrong or not supported.
    pub(in crate::prompt) fn from_gguf(metadata: &Metadata) -> Result<Self, String> {
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
            if matches!(kind, TYPE_UNKNOWN | TYPE_CONTROL | TYPE_USER_DEFINED)
                || ALWAYS_SPECIAL.contains(&&**token)
            {
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
        let tokenizer = bare(config, special)?;
        let adds_bos = metadata.bool("tokenizer.ggml.add_bos_token").unwrap_or(kind.adds_bos);
        let adds_eos = metadata.bool("tokenizer.ggml.add_eos_token").unwrap_or(false);
        Self {
            added: Added::new(tokenizer.get_added_vocabulary())?,
            metaspace: None,
            growth: 3,
            tokenizer,
            splitter: kind.splitter,
            words: None,
            nfc: kind.nfc,
            gaps,
            around: u64::from(adds_bos) + u64::from(adds_eos),
            model: "bpe",
            size: tokens.len(),
            is_byte_level: true,
            is_rebuilt: false,
            parts_apart: true,
            anchors: HashMap::new(),
            pool: Mutex::default(),
            memo: Memo::default(),
        }
        .proven()
    }
}
