//! Mistral's tekken.json: tokens as base64 in the order of their ranks, without merges.
//!
//! Its tokenizer (tiktoken) joins the two neighbours that make the token of the lowest rank. The library wants merges: that of a token is
//! the pair that is left of it when everything of lower ranks has been joined. Special tokens are never looked for in a text, as
//! mistral-common has it. How it renders a chat is code of its own and not mirrored here: this counts texts.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::Value as Json;
use tokenizers::SplitDelimiterBehavior::Isolated;
use tokenizers::models::bpe::BpeConfig;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::utils::byte_level::BYTES_CHAR_LOOKUP;

use super::memo::Memo;
use super::pieces::Added;
use super::{Gaps, MAX_ID, MAX_TOKEN, Vocabulary, bare, splitter};
use crate::prompt::images::decode_base64;

impl Vocabulary {
    /// Reads a tekken.json.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub(in crate::prompt) fn from_tekken(text: &[u8]) -> Result<Self, String> {
        let file: Json = serde_json::from_slice(text).map_err(|e| format!("not valid json: {e}"))?;
        let number = |key: &str| {
            let value = file.pointer(&format!("/config/{key}")).and_then(Json::as_u64);
            value.ok_or_else(|| format!("config.{key} is missing"))
        };
        let (all, special) = (number("default_vocab_size")?, number("default_num_special_tokens")?);
        let pattern =
            file.pointer("/config/pattern").and_then(Json::as_str).ok_or("config.pattern is missing")?;
        let vocab = file.get("vocab").and_then(Json::as_array).ok_or("vocab is missing")?;
        let wanted = all.checked_sub(special).filter(|wanted| (256..MAX_ID).contains(wanted));
        let wanted =
            wanted.ok_or_else(|| format!("vocabulary has {all} tokens, {special} of them special"))?;
        let mut tokens = Vec::with_capacity(wanted as usize);
        for (rank, entry) in vocab.iter().take(wanted as usize).enumerate() {
            let bytes =
                entry.get("token_bytes").and_then(Json::as_str).map(|text| decode_base64(text.as_bytes()));
            match bytes.filter(|bytes| !bytes.is_empty() && bytes.len() <= MAX_TOKEN / 2) {
                Some(bytes) if entry.get("rank").and_then(Json::as_u64) == Some(rank as u64) => {
                    tokens.push(bytes)
                }
                _ => return Err(format!("token {rank} is not the bytes of rank {rank}")),
            }
        }
        if (tokens.len() as u64) < wanted {
            return Err(format!("vocabulary has {} tokens; its config says {wanted}", tokens.len()));
        }
        let splitter = splitter::split(SplitPattern::Regex(pattern.to_owned()), Isolated, false)?;
        let tokenizer = bare(config(&tokens), Vec::new())?;
        Self {
            added: Added::new(tokenizer.get_added_vocabulary())?,
            metaspace: None,
            growth: 3,
            tokenizer,
            splitter,
            words: None,
            nfc: false,
            gaps: Gaps::default(),
            // The beginning of the sequence.
            around: 1,
            model: "tekken",
            size: all as usize,
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

fn config(tokens: &[Vec<u8>]) -> BpeConfig {
    let ranks: HashMap<&[u8], usize> =
        tokens.iter().enumerate().map(|(rank, token)| (&token[..], rank)).collect();
    // A word that is a token is that token, whatever pairs there are.
    let mut config = BpeConfig { byte_level: true, ignore_merges: true, ..BpeConfig::default() };
    let written =
        |bytes: &[u8]| bytes.iter().map(|byte| BYTES_CHAR_LOOKUP[usize::from(*byte)]).collect::<String>();
    for (rank, token) in tokens.iter().enumerate() {
        config.vocab.insert(written(token), rank as u32);
        if let Some(at) = last_seam(token, rank, &ranks) {
            let (left, right) = token.split_at(at);
            config.merges.push((written(left), written(right)));
        }
    }
    config
}

/// Where the two parts of a token meet that are joined last; none if more than two are left, or one.
fn last_seam(token: &[u8], rank: usize, ranks: &HashMap<&[u8], usize>) -> Option<usize> {
    // Where parts begin, and where the last one ends.
    let mut seams: Vec<usize> = (0..=token.len()).collect();
    while seams.len() > 3 {
        let joined = seams.windows(3).enumerate().filter_map(|(at, ends)| {
            let rank_of = ranks.get(token.get(ends[0]..ends[2])?)?;
            Some((*rank_of, at + 1))
        });
        let (_, seam) = joined.filter(|(found, _)| *found < rank).min()?;
        seams.remove(seam);
    }
    (seams.len() == 3).then(|| seams[1])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Vocabulary;
    use crate::prompt::stop::Stop;

    fn tekken(more: &[&str]) -> Result<Vocabulary, String> {
        let base64 = |bytes: &[u8]| {
            const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let group = |bytes: &[u8]| {
                let bits = bytes
                    .iter()
                    .chain([0, 0].iter())
                    .take(3)
                    .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
                let letters = [18, 12, 6, 0].map(|shift| LETTERS[bits >> shift & 63] as char);
                letters.iter().take(bytes.len() + 1).collect::<String>() + &"=".repeat(3 - bytes.len())
            };
            bytes.chunks(3).map(group).collect::<String>()
        };
        let tokens =
            (0..=255_u8).map(|byte| vec![byte]).chain(more.iter().map(|text| text.as_bytes().to_vec()));
        let vocab: Vec<_> = tokens
            .enumerate()
            .map(|(rank, token)| json!({"rank": rank, "token_bytes": base64(&token)}))
            .collect();
        let config = json!({"pattern": r"\s+|\S+", "default_vocab_size": 256 + more.len() + 10, "default_num_special_tokens": 10});
        Vocabulary::from_tekken(json!({"config": config, "vocab": vocab}).to_string().as_bytes())
    }

    fn count(vocabulary: &Vocabulary, text: &str) -> u64 {
        vocabulary.count(text, true, &Stop::default()).unwrap().tokens
    }

    #[test]
    fn neighbours_are_joined_by_rank_and_a_word_that_is_a_token_is_one() {
        let vocabulary = tekken(&["ab", "bc", "abc", "xyz"]).unwrap();
        // `ab` comes before `bc`; `xyz` has no pair that makes it, and is one where it stands alone.
        for (text, tokens) in
            [("abc", 1), ("bc", 1), ("abbc", 2), ("abcabc", 2), ("xyz", 1), ("xyz!", 4), ("a b", 3), ("é", 2)]
        {
            assert_eq!(count(&vocabulary, text), tokens, "{text}");
        }
        assert_eq!(count(&vocabulary, "[INST]"), 6);
    }

    #[test]
    fn what_is_broken_is_said() {
        let error = Vocabulary::from_tekken(b"{}").unwrap_err();
        assert_eq!(error, "config.default_vocab_size is missing");
        let few = json!({"config": {"pattern": ".", "default_vocab_size": 2000, "default_num_special_tokens": 1000}, "vocab": []});
        let error = Vocabulary::from_tekken(few.to_string().as_bytes()).unwrap_err();
        assert_eq!(error, "vocabulary has 0 tokens; its config says 1000");
        let odd = json!({"config": {"pattern": ".", "default_vocab_size": 2000, "default_num_special_tokens": 1000}, "vocab": [{"rank": 7, "token_bytes": "AA=="}]});
        assert!(Vocabulary::from_tekken(odd.to_string().as_bytes()).unwrap_err().contains("token 0"));
    }
}
