//! A model's vocabulary: text in, number of tokens out, as the model's own tokenizer has it.
//!
//! Read from a tokenizer.json or from a GGUF file's metadata. The library (tokenizers 1.0.0-rc.3) holds the model and the special
//! tokens; the steps are run here, so that one vocabulary serves both engines: vLLM normalises to NFC, llama.cpp never does.
//!
//! Files are not trusted: what would make the library panic or allocate by a number in the file is refused before it sees it.

mod anchors;
mod gguf;
mod json;
mod lines;
mod memo;
mod metaspace;
mod pieces;
mod splitter;
mod tekken;
#[cfg(test)]
mod tests;
mod words;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;
use tokenizers::models::bpe::{BpeConfig, PipelineBPE};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pipeline::{
    Model, Normalizer, NormalizerChain, PipelineModel, PipelineModelScratch, PipelinePostProcessor,
    PipelinePreTokenizer as Splitter, PipelineToken, PipelineTokenizer, PreTokenizer, PreTokenizerScratch,
    Span,
};
use tokenizers::utils::byte_level::BYTES_CHAR_LOOKUP;
use tokenizers::vocab::bucket_added_vocabulary::{AddedToken, AddedVocabulary};

use self::lines::Pending;
use self::memo::{Memo, Way};
use self::metaspace::Metaspace;
use self::pieces::{Added, Piece};
use self::words::{BLANK, Words};
use super::stop::Stop;

/// Ids from here on are refused: the library makes tables as long as the largest id.
const MAX_ID: u64 = 1 << 22;
/// The longest token that the library takes, in bytes.
const MAX_TOKEN: usize = u16::MAX as usize;
/// The most working buffers that are kept for reuse, about one per counting thread.
const MAX_POOLED: usize = 8;
/// So many words are counted between two looks at whether to stop.
const WORDS_AT_ONCE: usize = 4096;
/// Texts longer than this leave no buffers behind: the largest take tens of bytes per byte of text.
const MAX_POOLED_TEXT: usize = 1 << 20;

/// A vocabulary that counts.
pub(super) struct Vocabulary {
    tokenizer: PipelineTokenizer,
    added: Added,
    /// How blanks are written, behind everything else that changes a text.
    metaspace: Option<Metaspace>,
    splitter: Splitter,
    /// Words of what the splitter leaves whole.
    words: Option<Words>,
    /// Whether the model's tokenizer.json normalises to NFC. vLLM does as it says; llama.cpp never does.
    nfc: bool,
    /// By how much a text may become longer before it is counted, in times.
    growth: u64,
    /// Bytes that are no tokens.
    gaps: Gaps,
    /// How many tokens encoding puts around a text: BOS, EOS.
    around: u64,
    model: &'static str,
    size: usize,
    is_byte_level: bool,
    /// Whether vLLM counts otherwise than the file says: it makes the vocabulary anew.
    pub(super) is_rebuilt: bool,
    /// Whether a text that begins behind a special token is normalised as it would be at the front.
    parts_apart: bool,
    anchors: HashMap<u32, String>,
    pool: Mutex<Vec<Scratch>>,
    memo: Memo,
}

/// A byte-level vocabulary should have a token for every byte. SmolLM2's lacks eight: the library refuses it, so they are put in with
/// ids of their own and told apart in the count. llama.cpp leaves such bytes out; transformers makes them the unknown token, if any.
#[derive(Clone, Debug, Default)]
struct Gaps {
    ids: std::ops::Range<u32>,
    has_unknown: bool,
}

/// A count, and how much was left uncounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Tokens that were counted.
    pub(super) tokens: u64,
    /// No more than so many are left: 0 unless the limit was passed.
    pub(super) rest: u64,
}

#[derive(Default)]
struct Scratch {
    split: PreTokenizerScratch,
    spans: Vec<Span>,
    words: Vec<Span>,
    pending: Pending,
    model: PipelineModelScratch,
    tokens: Vec<PipelineToken>,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vocabulary({}, {} tokens)", self.model, self.size)
    }
}

impl Vocabulary {
    /// Gives the vocabulary back if it can count: what the library cannot run shows here and not in the middle of a request.
    fn proven(mut self) -> Result<Self, String> {
        if self.parts_apart {
            self.anchors = anchors::find(self.added.tokens());
        }
        guarded(|| self.count("Ab 12\u{e9}\n", true, &Stop::default()).map_err(Into::into))?;
        Ok(self)
    }

    /// Counts every text anew from now on.
    pub(super) fn remember_nothing(&mut self) {
        self.memo = Memo::with_bytes(0);
    }

    /// The kind of vocabulary: `bpe`, `unigram`.
    pub(super) fn model(&self) -> &'static str {
        self.model
    }

    /// Whether its tokens are made of bytes and not of letters.
    pub(super) fn is_byte_level(&self) -> bool {
        self.is_byte_level
    }

    /// How many tokens there are.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// How many tokens encoding puts around a text that is not a rendered chat.
    pub(super) fn around(&self) -> u64 {
        self.around
    }

    /// Whether `token` is one of the tokens that are looked for before all others.
    pub(super) fn has(&self, token: &str) -> bool {
        self.added.has(token)
    }

    /// How many tokens `text` has if nothing in it is a special token.
    ///
    /// # Errors
    /// As [`Self::count`].
    pub(super) fn count_ordinary(&self, text: &str, stop: &Stop) -> Result<Counted, String> {
        self.with_scratch(text, |scratch| {
            let way = Way::default();
            let Some(key) = self.memo.key(text, way) else {
                return self.count_words(text, way, 0, stop, scratch);
            };
            if let Some(tokens) = self.memo.get(key) {
                return Ok(Counted { tokens, rest: 0 });
            }
            let counted = self.count_words(text, way, 0, stop, scratch)?;
            if counted.rest == 0 {
                self.memo.put(key, counted.tokens);
            }
            Ok(counted)
        })
    }

    /// How many tokens `text` has, nothing added. Special tokens that stand in it count as what they are, as both engines have it.
    ///
    /// # Errors
    /// The library's words; so far only for runs of white space of a million characters, at patterns that it has no scanner for.
    pub(super) fn count(&self, text: &str, for_vllm: bool, stop: &Stop) -> Result<Counted, String> {
        self.count_noting(text, for_vllm, true, stop, (|_| false, |_, _| {}))
    }

    /// As [`Self::count`], telling how many tokens stand before each special token that is to be noted; texts are remembered only if that is of use.
    fn count_noting(
        &self,
        text: &str,
        for_vllm: bool,
        remember: bool,
        stop: &Stop,
        notes: (impl Fn(u32) -> bool, impl FnMut(u32, u64)),
    ) -> Result<Counted, String> {
        let memo = Some(&self.memo).filter(|_| remember);
        self.with_scratch(text, |scratch| match self.words.as_ref().filter(|words| words.are_all()) {
            Some(words) if u32::try_from(text.len() * BLANK.len()).is_ok() => {
                self.count_lines(words, text, memo, stop, scratch, notes)
            }
            _ => self.count_segments(text, for_vllm, memo, stop, scratch, notes),
        })
    }

    fn with_scratch(
        &self,
        text: &str,
        count: impl FnOnce(&mut Scratch) -> tokenizers::Result<Counted>,
    ) -> Result<Counted, String> {
        let mut scratch = self.pool.lock().pop().unwrap_or_else(|| Scratch {
            model: self.tokenizer.get_model().init_scratch(),
            ..Scratch::default()
        });
        let counted = count(&mut scratch);
        let mut pool = self.pool.lock();
        if pool.len() < MAX_POOLED && text.len() <= MAX_POOLED_TEXT {
            pool.push(scratch);
        }
        counted.map_err(|error| format!("the vocabulary cannot count this text: {error}"))
    }

    fn count_segments(
        &self,
        text: &str,
        for_vllm: bool,
        memo: Option<&Memo>,
        stop: &Stop,
        scratch: &mut Scratch,
        notes: (impl Fn(u32) -> bool, impl FnMut(u32, u64)),
    ) -> tokenizers::Result<Counted> {
        let (is_noted, mut note) = notes;
        let nfc = for_vllm && self.nfc;
        let front_matters = self.metaspace.as_ref().is_some_and(|metaspace| metaspace.front_only);
        let normalizers = NormalizerChain(self.tokenizer.get_normalizers());
        let mut count = 0;
        for piece in self.added.pieces(text, false) {
            let (part, input_offset) = match piece {
                Piece::Text { text, at } => (text, at),
                Piece::Token(id) => {
                    if is_noted(id) {
                        note(id, count);
                    }
                    count += 1;
                    continue;
                }
            };
            let is_front = input_offset == 0 && front_matters;
            let way = Way { nfc, gaps_count: for_vllm && self.gaps.has_unknown, is_front };
            let memo = memo.and_then(|memo| Some((memo, memo.key(part, way)?)));
            if let Some(known) = memo.and_then(|(memo, key)| memo.get(key)) {
                count += known;
                continue;
            }
            let before = count;
            let normal = if nfc { NFC.normalize(part, input_offset)? } else { Cow::Borrowed(part) };
            let normal = normalizers.normalize(&normal, input_offset)?;
            for piece in self.added.pieces(&normal, true) {
                let Piece::Text { text: words, at } = piece else {
                    count += 1;
                    continue;
                };
                let way = Way { is_front: is_front && at == 0, ..way };
                let counted = self.count_words(words, way, count, stop, scratch)?;
                count += counted.tokens;
                if counted.rest > 0 {
                    // What is behind has no more tokens than bytes, once it is normalised as this was.
                    let unseen = (text.len() - input_offset).max(normal.len()) as u64;
                    return Ok(Counted { tokens: count, rest: unseen.saturating_mul(self.growth) });
                }
            }
            if let Some((memo, key)) = memo {
                memo.put(key, count - before);
            }
        }
        Ok(Counted { tokens: count, rest: 0 })
    }

    /// The tokens of a text without special ones, of which `before` were counted.
    fn count_words(
        &self,
        text: &str,
        way: Way,
        before: u64,
        stop: &Stop,
        scratch: &mut Scratch,
    ) -> tokenizers::Result<Counted> {
        let text = match &self.metaspace {
            Some(metaspace) => metaspace.write(text, way.is_front)?,
            None => Cow::Borrowed(text),
        };
        let text = &*text;
        // Spans are 32 bits wide.
        if u32::try_from(text.len()).is_err() {
            return Err(format!("it has {} bytes; the limit is {}", text.len(), u32::MAX).into());
        }
        scratch.spans.clear();
        self.splitter.pre_tokenize(text, &mut scratch.split, &mut scratch.spans)?;
        let spans = match &self.words {
            None => &scratch.spans,
            Some(words) => {
                words.cut(text, &scratch.spans, &mut scratch.words);
                &scratch.words
            }
        };
        let mut tokens = 0;
        for spans in spans.chunks(WORDS_AT_ONCE) {
            if stop.is_cancelled() {
                return Err("nobody waits for the count any more".into());
            }
            if stop.is_passed_by(before + tokens) {
                return Ok(Counted { tokens, rest: text.len() as u64 });
            }
            scratch.tokens.clear();
            self.tokenizer.get_model().tokenize_spans(
                text,
                spans,
                &mut scratch.model,
                &mut scratch.tokens,
            )?;
            let is_gap = |token: &&PipelineToken| self.gaps.ids.contains(&token.id());
            let left_out = match way.gaps_count || self.gaps.ids.is_empty() {
                true => 0,
                false => scratch.tokens.iter().filter(is_gap).count(),
            };
            tokens += (scratch.tokens.len() - left_out) as u64;
        }
        Ok(Counted { tokens, rest: 0 })
    }
}

/// The tokens of the bytes that UTF-8 has and the vocabulary has not.
fn missing_bytes(known: impl Fn(&str) -> bool) -> Vec<String> {
    let bytes = (0..=0xF4_u8).filter(|byte| !matches!(byte, 0xC0 | 0xC1));
    bytes.map(|byte| BYTES_CHAR_LOOKUP[usize::from(byte)].to_string()).filter(|token| !known(token)).collect()
}

/// Runs a part of the library that builds tables. A release candidate may panic on what it did not foresee.
fn guarded<T>(build: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(built) => built.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizer library failed on this vocabulary".into()),
    }
}

/// Byte-level BPE and its special tokens, with nothing around them: texts are split here.
fn bare(config: BpeConfig, special: Vec<AddedToken>) -> Result<PipelineTokenizer, String> {
    guarded(move || {
        let mut added = AddedVocabulary::new();
        let (count, id) = (config.vocab.len(), |token: &str| config.vocab.get(token).copied());
        added.add_tokens(special, count, id, None::<&NormalizerChain<'_>>)?;
        let model = PipelineModel::BPE(PipelineBPE::from_config(config)?);
        let (frame, roles) = (PipelinePostProcessor::default(), BTreeMap::new());
        Ok(PipelineTokenizer::from_parts(
            added,
            vec![],
            Splitter::None,
            model,
            frame,
            None,
            roles,
            None,
            None,
        ))
    })
}

fn check_token(token: &str) -> Result<(), String> {
    if token.len() > MAX_TOKEN {
        return Err(format!("a token has {} bytes; the limit is {MAX_TOKEN}", token.len()));
    }
    Ok(())
}

/// The two tokens of a merge and what they make must be tokens.
fn check_merge(rank: usize, left: &str, right: &str, known: impl Fn(&str) -> bool) -> Result<(), String> {
    match [left, right, &format!("{left}{right}")].into_iter().find(|token| !known(token)) {
        None => Ok(()),
        Some(unknown) => Err(format!("merge {rank} names {unknown:?}, which is no token")),
    }
}
