//! The rig's own token: a simple, deterministic piece of text.
//!
//! A token is one of
//! - a *word piece*: up to 6 letters or digits (2 where they are not ASCII), with the one space before them, if any;
//! - one other visible character, with the one space before it, if any;
//! - a run of line breaks; a run of other white space that no piece took.
//!
//! English prose comes to about 1.3 tokens a word, as with real vocabularies. Pieces put together are the text
//! again. It shares nothing with any proxy's counter, on purpose: shared code proves nothing.

use crate::prose::prose;

/// How many characters of a word make one token, ASCII and other.
const WORD: usize = 6;
const WORD_NOT_ASCII: usize = 2;

/// The tokens of a text, in order; together they are the text.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(first_piece(rest)?);
        rest = after;
        Some(piece)
    })
}

/// How many tokens a text has.
pub fn count_tokens(text: &str) -> usize {
    pieces(text).count()
}

/// Prose of exactly `tokens` tokens, the same for the same `seed`. As a prompt it costs a few tokens more, for the
/// template around it.
pub fn text_of_tokens(tokens: usize, seed: u64) -> String {
    prose(seed)
        .flat_map(|sentence| pieces(sentence).map(str::to_owned).collect::<Vec<_>>())
        .take(tokens)
        .collect()
}

/// The length of the first piece in bytes.
fn first_piece(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    let (_, first) = chars.next()?;
    let end_of_run = |same: fn(char) -> bool| text.find(|c| !same(c)).unwrap_or(text.len());
    if is_line_break(first) {
        return Some(end_of_run(is_line_break));
    }
    let (start, head) = match (first, chars.peek()) {
        (' ', Some(&(at, next))) if !next.is_whitespace() => (at, next),
        (c, _) if c.is_whitespace() => {
            // the last space of a run goes to the word after it
            let end = end_of_run(|c| c.is_whitespace() && !is_line_break(c));
            let word_follows = text[end..].chars().next().is_some_and(|c| !c.is_whitespace());
            let spare = usize::from(word_follows && end > 1 && text[..end].ends_with(' '));
            return Some(end - spare);
        }
        (c, _) => (0, c),
    };
    if !head.is_alphanumeric() {
        return Some(start + head.len_utf8());
    }
    let most = if head.is_ascii() { WORD } else { WORD_NOT_ASCII };
    let word = text[start..]
        .chars()
        .take(most)
        .take_while(|c| c.is_alphanumeric() && c.is_ascii() == head.is_ascii());
    Some(start + word.map(char::len_utf8).sum::<usize>())
}

fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        assert_eq!(pieces(text).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn a_token_is_a_word_piece_a_mark_or_a_run_of_space() {
        check("", &[]);
        check("Hello, world!", &["Hello", ",", " world", "!"]);
        check("antidisestablish", &["antidi", "sestab", "lish"]);
        check("a\n\nb   c", &["a", "\n\n", "b", "  ", " c"]);
        check("  \t\n x ", &["  \t", "\n", " x", " "]);
        check("日本語 über", &["日本", "語", " ü", "ber"]);
        check("{\"a\": -1}", &["{", "\"", "a", "\"", ":", " -", "1", "}"]);
    }

    #[test]
    fn pieces_put_together_are_the_text() {
        for text in ["", " ", "  ", "   a", "\r\n\r\n", "a\u{a0} b", "🙂🙂 x\t y", "\u{3000}\u{3000}z"] {
            assert_eq!(pieces(text).collect::<String>(), text, "{text:?}");
        }
    }

    #[test]
    fn text_of_n_tokens_has_n_tokens() {
        for tokens in [0, 1, 7, 1_000, 20_000] {
            assert_eq!(count_tokens(&text_of_tokens(tokens, 3)), tokens);
        }
    }
}
