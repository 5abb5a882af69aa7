//! Puts a count together: the template's own text, the rounds that are known, and those that were run.
//!
//! What stands between two anchors is joined to one text, whoever printed its parts, and counted as one. It must never count a part of a
//! text that another part could change.

use super::memory::{Key, Memory, Piece};
use crate::prompt::stop::Stop;
use crate::prompt::template::Round;
use crate::prompt::vocabulary::{Counted, Vocabulary};
use minijinja::Value;

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
            for round in rounds {
                match round {
                    Round::Known(piece) => self.add(&piece)?,
                    Round::Run(text, key) => self.run(text, key)?,
                }
            }
            self.open.push_str(text);
        }
        self.close()?;
        self.counted.tokens -= without_bos;
        Ok(Some(self.counted))
    }

    /// Whether the first text of a round is `bos`; none if that is not to be told from its tokens.
    fn begins_with(&self, round: &Round, bos: &str) -> Option<bool> {
        let id = self.vocabulary.anchor(bos)?;
        match round {
            Round::Run(text, _) => Some(text.starts_with(bos)).filter(|_| text.len() >= bos.len()),
            Round::Known(piece) if piece.head.is_empty() => piece.body.map(|(first, _)| first == id),
            Round::Known(piece) => Some(false).filter(|_| piece.head.len() >= bos.len()),
        }
    }

    /// A round that was run: counted, and kept.
    fn run(&mut self, text: String, key: Option<(Key, Vec<Value>)>) -> Result<(), String> {
        let cut = match self.stop.is_passed_by(self.counted.tokens) {
            // Nobody wants to know any more.
            true => {
                self.counted.rest += self.most(&text);
                return Ok(());
            }
            false => self.vocabulary.cut(&text, self.for_vllm, self.stop)?,
        };
        let piece = match cut {
            None => Piece { head: text, body: None, tail: String::new(), left: Vec::new() },
            Some(cut) if cut.counted.rest > 0 => {
                self.open.push_str(cut.head);
                self.close()?;
                self.counted.tokens += cut.counted.tokens;
                self.counted.rest += cut.counted.rest;
                self.open.push_str(cut.tail);
                return Ok(());
            }
            Some(cut) => Piece {
                head: cut.head.to_owned(),
                body: Some((cut.first, cut.counted.tokens)),
                tail: cut.tail.to_owned(),
                left: Vec::new(),
            },
        };
        self.add(&piece)?;
        if let Some((key, left)) = key {
            self.memory.put_round(key, Piece { left, ..piece });
        }
        Ok(())
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
