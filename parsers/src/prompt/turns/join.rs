//! Puts a count together: the template's own text, the rounds that are known, and those that were run.
//!
//! What stands between two anchors is joined to one text, whoever printed its parts, and counted as one. It must never count a part of a
//! text that another part could change.

use super::memory::{Key, Memory, Piece};
use super::sequence::Sequence;
use crate::prompt::stop::Stop;
use crate::prompt::template::Round;
use crate::prompt::vocabulary::{Counted, Vocabulary};
use minijinja::Value;
use std::sync::Arc;

/// A count in the making.
pub(super) struct Join<'a> {
    vocabulary: &'a Vocabulary,
    memory: &'a Memory,
    for_vllm: bool,
    stop: &'a Stop,
    /// The text behind the last anchor.
    open: String,
    counted: Counted,
    /// The last text that was counted: between two messages it is mostly the same.
    last: (String, u64),
}

impl<'a> Join<'a> {
    pub(super) fn new(
        vocabulary: &'a Vocabulary,
        memory: &'a Memory,
        for_vllm: bool,
        stop: &'a Stop,
    ) -> Self {
        let last = (String::new(), 0);
        Self { vocabulary, memory, for_vllm, stop, open: String::new(), counted: Counted::default(), last }
    }

    /// The tokens of `text` with the rounds of its loops where their marks stand, without a `bos` at the front. None if that cannot be told.
    pub(super) fn count(
        &mut self,
        text: &str,
        loops: Vec<Vec<Round>>,
        bos: &str,
    ) -> Result<Option<Counted>, String> {
        let texts: Vec<&str> = text.split(self.memory.mark()).collect();
        let (Some((front, behind)), true) = (texts.split_first(), texts.len() == loops.len() + 1) else {
            return Ok(None);
        };
        let first = loops.iter().find_map(|rounds| rounds.first());
        let mut without_bos = 0;
        self.open.push_str(match front.strip_prefix(bos) {
            Some(rest) => rest,
            // It may be the first that a round prints, or have nothing to do with what stands there.
            None if front.is_empty() => {
                match first.map(|round| self.begins_with(round, bos)) {
                    Some(Some(true)) => without_bos = 1,
                    Some(Some(false)) => {}
                    Some(None) | None => return Ok(None),
                }
                front
            }
            None if bos.starts_with(front) => return Ok(None),
            None => front,
        });
        for (rounds, text) in loops.into_iter().zip(behind) {
            self.rounds(rounds)?;
            self.open.push_str(text);
        }
        self.close()?;
        self.counted.tokens -= without_bos;
        Ok(Some(self.counted))
    }

    /// The rounds of a loop: counted, and kept together.
    fn rounds(&mut self, rounds: Vec<Round>) -> Result<(), String> {
        let mut sequence = Some(Sequence::default());
        let mut new = false;
        for round in rounds {
            let before = self.counted.tokens;
            let (key, piece) = match round {
                Round::Front(known, rounds) => {
                    let front = known.front(rounds);
                    self.add(&front.piece())?;
                    sequence = Some(front);
                    continue;
                }
                Round::Known(key, piece) => {
                    self.add(&piece)?;
                    (Some(key), Some(piece))
                }
                Round::Run(text, key) => (key.as_ref().map(|(key, _)| *key), self.run(text, key)?),
            };
            new = true;
            match (&mut sequence, key, piece) {
                (Some(sequence), Some(key), Some(piece)) => {
                    sequence.push(key, &piece, piece.left.clone(), self.counted.tokens - before);
                }
                _ => sequence = None,
            }
        }
        if let (Some(sequence), true, 0) = (sequence, new, self.counted.rest) {
            self.memory.put_sequence(sequence);
        }
        Ok(())
    }

    /// Whether the first text of a round is `bos`; none if that is not to be told from its tokens.
    fn begins_with(&self, round: &Round, bos: &str) -> Option<bool> {
        let id = self.vocabulary.anchor(bos)?;
        match round {
            Round::Run(text, _) => Some(text.starts_with(bos)).filter(|_| text.len() >= bos.len()),
            Round::Known(_, piece) => starts_with(piece, bos, id),
            Round::Front(known, rounds) => starts_with(&known.front(*rounds).piece(), bos, id),
        }
    }

    /// A round that was run: counted, and kept; none if not all of it was counted.
    fn run(&mut self, text: String, key: Option<(Key, Vec<Value>)>) -> Result<Option<Arc<Piece>>, String> {
        let cut = match self.stop.is_passed_by(self.counted.tokens) {
            // Nobody wants to know any more.
            true => {
                self.counted.rest += self.most(&text);
                return Ok(None);
            }
            false => self.vocabulary.cut(&text, self.for_vllm, key.is_none(), self.stop)?,
        };
        let piece = match cut {
            None => Piece { head: text, body: None, tail: String::new(), left: Vec::new() },
            Some(cut) if cut.counted.rest > 0 => {
                self.open.push_str(cut.head);
                self.close()?;
                self.counted.tokens += cut.counted.tokens;
                self.counted.rest += cut.counted.rest;
                self.open.push_str(cut.tail);
                return Ok(None);
            }
            Some(cut) => Piece {
                head: cut.head.to_owned(),
                body: Some((cut.first, cut.counted.tokens)),
                tail: cut.tail.to_owned(),
                left: Vec::new(),
            },
        };
        self.add(&piece)?;
        let (key, left) = key.unzip();
        let piece = Arc::new(Piece { left: left.unwrap_or_default(), ..piece });
        if let Some(key) = key {
            self.memory.put_round(key, piece.clone());
        }
        Ok(Some(piece))
    }

    fn add(&mut self, piece: &Piece) -> Result<(), String> {
        self.open.push_str(&piece.head);
        if let Some((_, tokens)) = piece.body {
            self.close()?;
            self.counted.tokens += tokens;
            self.open.push_str(&piece.tail);
        }
        Ok(())
    }

    /// Counts what stands open.
    fn close(&mut self) -> Result<(), String> {
        if self.open.is_empty() {
            return Ok(());
        }
        if self.open != self.last.0 {
            if self.stop.is_passed_by(self.counted.tokens) {
                self.counted.rest += self.most(&self.open);
                self.open.clear();
                return Ok(());
            }
            let counted = self.vocabulary.count(&self.open, self.for_vllm, self.stop)?;
            if counted.rest > 0 {
                self.counted.tokens += counted.tokens;
                self.counted.rest += counted.rest;
                self.open.clear();
                return Ok(());
            }
            self.last = (self.open.clone(), counted.tokens);
        }
        self.counted.tokens += self.last.1;
        self.open.clear();
        Ok(())
    }

    /// The most tokens that a text can have.
    fn most(&self, text: &str) -> u64 {
        text.len() as u64 * if self.for_vllm { 3 } else { 1 }
    }
}

/// Whether a piece begins with an anchor of this text and number.
fn starts_with(piece: &Piece, text: &str, id: u32) -> Option<bool> {
    match piece.head.is_empty() {
        true => piece.body.map(|(first, _)| first == id),
        false => Some(false).filter(|_| piece.head.len() >= text.len()),
    }
}
