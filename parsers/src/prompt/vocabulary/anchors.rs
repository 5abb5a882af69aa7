//! Tokens that nothing reaches over: where such a token stands in a text, the text before and the text behind are counted apart.
//!
//! Why: what a round of a template printed can only be remembered as a number if the number is the same whatever stands around it. A special
//! token is looked for before all others, but another one may overlap it (`\n` and `\n\n`) or swallow the white space beside it. An anchor
//! is one of which that cannot happen, found by holding every special token against every other one. Wherever an anchor stands in a text,
//! it is a token.

use std::collections::HashMap;

use tokenizers::pre_tokenizers::whitespace::is_word_char;
use tokenizers::vocab::bucket_added_vocabulary::AddedToken;

use super::pieces::Piece;
use super::{Counted, Vocabulary};
use crate::prompt::stop::Stop;

/// A text, cut at its first and behind its last anchor.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::prompt) struct Cut<'a> {
    pub(in crate::prompt) head: &'a str,
    /// The first anchor's id, and the tokens from it to the last one.
    pub(in crate::prompt) first: u32,
    pub(in crate::prompt) counted: Counted,
    pub(in crate::prompt) tail: &'a str,
}

/// The anchors among the added tokens of a vocabulary, by id.
pub(super) fn find(added: impl Iterator<Item = (u32, AddedToken)>) -> HashMap<u32, String> {
    let added: Vec<_> = added.filter(|(_, token)| !token.normalized && !token.content.is_empty()).collect();
    // One that must be a word of its own looks at the letter beside it.
    let words = added.iter().any(|(_, token)| token.single_word);
    let is_anchor = |candidate: &AddedToken| {
        let text = candidate.content.as_str();
        let ends_in_letters = text.starts_with(is_word_char) || text.ends_with(is_word_char);
        candidate.special
            && !(candidate.lstrip || candidate.rstrip || candidate.single_word)
            && text.trim() == text
            && !(words && ends_in_letters)
            && added.iter().all(|(_, other)| match other.content == text {
                // Of three blanks, two are a token, but which?
                true => !ends_in_front(text, text),
                false => !meet(&other.content, text),
            })
    };
    let anchors = added.iter().filter(|(_, token)| is_anchor(token));
    anchors.map(|(id, token)| (*id, token.content.clone())).collect()
}

/// Whether `other` may stand where a part of `anchor` stands, and begin no later.
fn meet(other: &str, anchor: &str) -> bool {
    other.contains(anchor) || anchor.starts_with(other) || ends_in_front(other, anchor)
}

/// Whether `other` ends with a part of `anchor` from its front.
fn ends_in_front(other: &str, anchor: &str) -> bool {
    (1..anchor.len()).any(|end| anchor.get(..end).is_some_and(|front| other.ends_with(front)))
}

impl Vocabulary {
    /// The id of an anchor.
    pub(in crate::prompt) fn anchor(&self, text: &str) -> Option<u32> {
        self.anchors.iter().find(|(_, anchor)| *anchor == text).map(|(id, _)| *id)
    }

    /// Whether there are tokens to cut texts at.
    pub(in crate::prompt) fn has_anchors(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// Cuts `text` at its anchors and counts what is between them, which need not be remembered if somebody else does; none if it has none.
    ///
    /// # Errors
    /// As [`Self::count`].
    pub(in crate::prompt) fn cut<'a>(
        &self,
        text: &'a str,
        for_vllm: bool,
        remember: bool,
        stop: &Stop,
    ) -> Result<Option<Cut<'a>>, String> {
        let is_anchor = |id: &u32| self.anchors.contains_key(id);
        let first = self.added.pieces(text, false).find_map(|piece| match piece {
            Piece::Token(id) => Some(id).filter(is_anchor),
            Piece::Text { .. } => None,
        });
        let Some(first) = first else { return Ok(None) };
        let text_of = |id| self.anchors.get(&id).map(String::as_str).unwrap_or_default();
        // Each place of an anchor's text is one, so the first and the last of them are those.
        let (head, rest) = text.split_at(text.find(text_of(first)).unwrap_or(0));
        let mut last = (first, 0);
        let notes = (|id| is_anchor(&id), |id, before| last = (id, before + 1));
        let counted = self.count_noting(rest, for_vllm, remember, stop, notes)?;
        if counted.rest > 0 {
            return Ok(Some(Cut { head, first, counted, tail: "" }));
        }
        // What stands behind the last one was counted for nothing: it is short.
        let (id, tokens) = last;
        let end = rest.rfind(text_of(id)).map_or(rest.len(), |at| at + text_of(id).len());
        Ok(Some(Cut { head, first, counted: Counted { tokens, rest: 0 }, tail: &rest[end..] }))
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::vocab::bucket_added_vocabulary::AddedToken;

    use super::{find, meet};

    #[test]
    fn only_a_token_that_no_other_can_overlap_is_an_anchor() {
        let tokens = ["<|im_start|>", "<|im_end|>", "\n", "\n\n", "<a>", "<a>\n", "x<", "<end", "d>"];
        let added = tokens.iter().enumerate().map(|(id, text)| (id as u32, AddedToken::from(*text, true)));
        let loose = AddedToken::from("[strip]", true).rstrip(true);
        let mut anchors: Vec<_> = find(added.chain([(99, loose)])).into_values().collect();
        anchors.sort();
        // It takes the first letter of all others.
        assert_eq!(anchors, ["x<"]);
        let twice = [(0, AddedToken::from("▁▁", true)), (1, AddedToken::from("aba", true))];
        assert!(find(twice.into_iter()).is_empty());
        let letters = [(0, AddedToken::from("<a", true)), (1, AddedToken::from("w", true).single_word(true))];
        assert!(find(letters.into_iter()).is_empty());
        let added = ["<|im_start|>", "<|im_end|>", "\n", "\n\n"].iter().enumerate();
        let mut anchors: Vec<_> =
            find(added.map(|(id, text)| (id as u32, AddedToken::from(*text, true)))).into_values().collect();
        anchors.sort();
        assert_eq!(anchors, ["<|im_end|>", "<|im_start|>"]);
    }

    #[test]
    fn tokens_meet_where_one_can_take_what_is_the_others() {
        for (other, anchor, expected) in [
            ("a<|x|>", "<|x|>", true),
            ("<|x|>b", "<|x|>", true),
            ("a<", "<|x|>", true),
            ("<|", "<|x|>", true),
            ("|>a", "<|x|>", false),
            ("<|y|>", "<|x|>", false),
        ] {
            assert_eq!(meet(other, anchor), expected, "{other} {anchor}");
        }
    }
}
