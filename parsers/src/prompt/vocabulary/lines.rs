//! Counting where line breaks are special tokens and all else is words, as in Gemma's vocabulary.
//!
//! Why: such a vocabulary cuts a text into many short parts, and what the usual way does for each of them (normalise, split, cut, look up)
//! takes longer than its words. Here the blanks of all parts are written as the model has them into one buffer, their words are noted on the
//! way, and the model sees thousands of them at once. A word's tokens do not depend on what stands around it ([`super::words`]).
//!
//! It must never count otherwise than the usual way does.

use tokenizers::pipeline::{Model, Span};

use super::memo::{Memo, Way};
use super::pieces::Piece;
use super::words::Words;
use super::{Counted, Scratch, Vocabulary, WORDS_AT_ONCE};
use crate::prompt::stop::Stop;

/// Words that were not counted yet.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) text: String,
    pub(super) words: Vec<Span>,
}

impl Pending {
    fn clear(&mut self) {
        self.text.clear();
        self.words.clear();
    }
}

impl Vocabulary {
    /// As [`Vocabulary::count_segments`].
    pub(super) fn count_lines(
        &self,
        words: &Words,
        text: &str,
        memo: Option<&Memo>,
        stop: &Stop,
        scratch: &mut Scratch,
        notes: (impl Fn(u32) -> bool, impl FnMut(u32, u64)),
    ) -> tokenizers::Result<Counted> {
        let (is_noted, mut note) = notes;
        // A count that was given up may have left something.
        scratch.pending.clear();
        // What is left has no more tokens than bytes.
        let rest = text.len() as u64;
        let mut count = 0;
        for piece in self.added.pieces(text, false) {
            let part = match piece {
                Piece::Text { text, .. } => text,
                Piece::Token(id) => {
                    if is_noted(id) && !self.count_pending(&mut count, stop, scratch)? {
                        return Ok(Counted { tokens: count, rest });
                    }
                    if is_noted(id) {
                        note(id, count);
                    }
                    count += 1;
                    continue;
                }
            };
            let memo = memo.and_then(|memo| Some((memo, memo.key(part, Way::default())?)));
            if let Some(known) = memo.and_then(|(memo, key)| memo.get(key)) {
                count += known;
                continue;
            }
            let is_full = memo.is_some() || scratch.pending.words.len() >= WORDS_AT_ONCE;
            if is_full && !self.count_pending(&mut count, stop, scratch)? {
                return Ok(Counted { tokens: count, rest });
            }
            words.write(part, &mut scratch.pending);
            if let Some((memo, key)) = memo {
                let before = count;
                if !self.count_pending(&mut count, stop, scratch)? {
                    return Ok(Counted { tokens: count, rest });
                }
                memo.put(key, count - before);
            }
        }
        let is_all = self.count_pending(&mut count, stop, scratch)?;
        Ok(Counted { tokens: count, rest: if is_all { 0 } else { rest } })
    }

    /// Counts what is pending; false if the limit was passed before all of it was counted.
    fn count_pending(&self, count: &mut u64, stop: &Stop, scratch: &mut Scratch) -> tokenizers::Result<bool> {
        let Scratch { pending, model, tokens, .. } = scratch;
        for words in pending.words.chunks(WORDS_AT_ONCE) {
            if stop.is_cancelled() {
                return Err("nobody waits for the count any more".into());
            }
            if stop.is_passed_by(*count) {
                return Ok(false);
            }
            tokens.clear();
            self.tokenizer.get_model().tokenize_spans(&pending.text, words, model, tokens)?;
            *count += tokens.len() as u64;
        }
        pending.clear();
        Ok(true)
    }
}
