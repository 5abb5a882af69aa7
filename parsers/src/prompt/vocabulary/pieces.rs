//! Where added tokens stand in a text, and what text is left between them, as tokenizers 0.2x has it, which the engines run.
//!
//! Why not the library's own iterator: 1.0 takes the white space that a token strips and looks on behind it. 0.2x finds all tokens first and
//! strips afterwards: a token of blanks within what another one has stripped is still a token, a token that must be a word of its own is
//! asked for the letters of its neighbours too, and is passed by as a whole where it is none. So the library is asked for plain tokens only, and the rules
//! are applied here. Must never look at a text twice.

use std::collections::HashMap;

use tokenizers::pipeline::{NormalizerChain, PipelinePatternMatcher};
use tokenizers::pre_tokenizers::whitespace::is_word_char;
use tokenizers::vocab::bucket_added_vocabulary::{AddedToken, AddedVocabulary};

use super::guarded;

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// What is no added token, and where it begins.
    Text { text: &'a str, at: usize },
    /// An added token.
    Token(u32),
}

/// The added tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct Added {
    plain: AddedVocabulary,
    /// Tokens that care for what stands beside them, by id.
    demanding: HashMap<u32, Beside>,
}

/// What a token does with its neighbours.
#[derive(Clone, Copy, Debug)]
struct Beside {
    strips_left: bool,
    strips_right: bool,
    is_word: bool,
}

impl Added {
    /// The tokens that the library has read.
    ///
    /// # Errors
    /// Two tokens that read the same once they are normalised, and some that care for what stands beside them.
    pub(super) fn new(read: &AddedVocabulary) -> Result<Self, String> {
        let tokens = read.get_added_tokens_decoder();
        let demands = |token: &AddedToken| token.lstrip || token.rstrip || token.single_word;
        let demanding: HashMap<_, _> = tokens
            .iter()
            .filter(|(_, token)| demands(token))
            .map(|(id, token)| {
                let (strips_left, strips_right) = (token.lstrip, token.rstrip);
                (*id, Beside { strips_left, strips_right, is_word: token.single_word })
            })
            .collect();
        if demanding.is_empty() {
            return Ok(Self { plain: read.clone(), demanding });
        }
        let ids: HashMap<&str, u32> =
            tokens.iter().map(|(id, token)| (token.content.as_str(), *id)).collect();
        // The library tells them by what they read.
        if ids.len() < read.len() {
            return Err("two added tokens read the same once they are normalised".into());
        }
        let calm = tokens.values().map(|token| token.clone().lstrip(false).rstrip(false).single_word(false));
        let plain = guarded(|| {
            let mut plain = AddedVocabulary::new();
            plain.add_tokens(calm, 0, |token| ids.get(token).copied(), None::<&NormalizerChain<'_>>)?;
            Ok(plain)
        })?;
        Ok(Self { plain, demanding })
    }

    /// The tokens, by id.
    pub(super) fn tokens(&self) -> impl Iterator<Item = (u32, AddedToken)> {
        self.plain.get_added_tokens_decoder().into_iter().map(|(id, token)| match self.demanding.get(&id) {
            None => (id, token),
            Some(beside) => {
                let token = token.lstrip(beside.strips_left).rstrip(beside.strips_right);
                (id, token.single_word(beside.is_word))
            }
        })
    }

    /// Whether `token` is one of them.
    pub(super) fn has(&self, token: &str) -> bool {
        self.plain.token_to_id(token).is_some()
    }

    /// The pieces of a text: of one that was normalised, cut at the tokens that are looked for there, or of one that was not yet.
    pub(super) fn pieces<'a>(&'a self, text: &'a str, normalized: bool) -> Pieces<'a> {
        Pieces { added: self, text, normalized, searched: 0, taken: 0, found: None }
    }
}

/// The pieces of a text, in order.
pub(super) struct Pieces<'a> {
    added: &'a Added,
    text: &'a str,
    normalized: bool,
    /// Tokens are looked for from here on.
    searched: usize,
    /// What stands before this belongs to a piece.
    taken: usize,
    found: Option<u32>,
}

impl Pieces<'_> {
    /// What the token that stands at `start..end` takes of the text, if it is one there.
    fn taken_by(&self, id: u32, start: usize, end: usize) -> Option<(usize, usize)> {
        let Some(beside) = self.added.demanding.get(&id) else { return Some((start, end)) };
        let (before, behind) = (self.text.get(..start)?, self.text.get(end..)?);
        if beside.is_word
            && (before.chars().next_back().is_some_and(is_word_char)
                || behind.chars().next().is_some_and(is_word_char))
        {
            return None;
        }
        // Where the token before has stripped, nothing is left to be stripped.
        let start = match beside.strips_left {
            true => self.taken + before.get(self.taken..).unwrap_or_default().trim_end().len(),
            false => start,
        };
        let end = match beside.strips_right {
            true => self.text.len() - self.text.get(end.max(self.taken)..)?.trim_start().len(),
            false => end,
        };
        Some((start, end))
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if let Some(id) = self.found.take() {
            return Some(Piece::Token(id));
        }
        let (bytes, plain) = (self.text.as_bytes(), &self.added.plain);
        while let Some(((start, end), id)) = plain.extract_next(bytes, self.searched, self.normalized, false)
        {
            self.searched = end;
            let Some((start, end)) = self.taken_by(id, start, end) else { continue };
            let at = std::mem::replace(&mut self.taken, end);
            // All of it was stripped by the token before: it is none.
            let found = Some(id).filter(|_| start < end);
            match (self.text.get(at..start).filter(|text| !text.is_empty()), found) {
                (Some(text), _) => {
                    self.found = found;
                    return Some(Piece::Text { text, at });
                }
                (None, Some(id)) => return Some(Piece::Token(id)),
                (None, None) => {}
            }
        }
        self.searched = self.text.len();
        let at = std::mem::replace(&mut self.taken, self.text.len());
        self.text.get(at..).filter(|text| !text.is_empty()).map(|text| Piece::Text { text, at })
    }
}

#[cfg(test)]
mod tests {
    use super::{Added, AddedToken, AddedVocabulary, NormalizerChain, Piece};

    fn pieces(tokens: impl IntoIterator<Item = AddedToken>, text: &str) -> Vec<String> {
        let mut read = AddedVocabulary::new();
        read.add_tokens(tokens, 0, |_| None, None::<&NormalizerChain<'_>>).unwrap();
        let added = Added::new(&read).unwrap();
        let pieces = added.pieces(text, false);
        pieces
            .map(|piece| match piece {
                Piece::Text { text, .. } => format!("{text:?}"),
                Piece::Token(id) => id.to_string(),
            })
            .collect()
    }

    fn token(content: &str) -> AddedToken {
        AddedToken::from(content, true)
    }

    /// What tokenizers 0.23.3 gives.
    #[test]
    fn a_token_within_what_another_one_stripped_is_still_a_token() {
        let tokens = || [token("  "), token("[LR]").lstrip(true).rstrip(true)];
        assert_eq!(pieces(tokens(), "  [LR]\n  [LR]\n"), ["0", "1", "0", "1"]);
        assert_eq!(pieces(tokens(), "a [LR]   b"), ["\"a\"", "1", "0", "\" b\""]);
        assert_eq!(pieces(tokens(), "[LR] \n b"), ["1", "\"b\""]);
        // If it strips what was stripped, nothing is left of it.
        let line = || [token("\n").lstrip(true).rstrip(true)];
        assert_eq!(pieces(line(), "a\n\n\nb \n"), ["\"a\"", "0", "\"b\"", "0"]);
    }

    #[test]
    fn a_word_of_its_own_has_no_letters_beside_it_and_is_passed_by_as_a_whole() {
        let tokens = || [token("word").single_word(true), token("or"), token("x|")];
        assert_eq!(pieces(tokens(), "a word, words"), ["\"a \"", "0", "\", words\""]);
        assert_eq!(pieces(tokens(), "or or word"), ["1", "\" \"", "1", "\" \"", "0"]);
        assert_eq!(pieces(tokens(), "orword"), ["1", "\"word\""]);
        assert_eq!(pieces(tokens(), "x|word"), ["2", "0"]);
    }

    #[test]
    fn tokens_that_ask_for_nothing_are_found_as_they_stand() {
        assert_eq!(pieces([token("<a>"), token("<a>b")], " <a>b<a> "), ["\" \"", "1", "0", "\" \""]);
        assert_eq!(pieces([], ""), [""; 0]);
    }
}
