//! Words of a vocabulary that has no pattern to cut text by, as Gemma's: it merges whole lines.
//!
//! Why: the library remembers the tokens of words, and a line is no word that comes again. But where no token of the vocabulary has a blank
//! (`▁`) behind another character, no merge ever reaches over such a place, whatever stands around: cutting there changes nothing. The few
//! tokens that do (Gemma 3 has one, `>▁</`) are looked for at each place, which is then left whole.
//!
//! It must never cut where a token could stand: what is not certain is no word.

use memchr::memmem::Finder;
use serde_json::Value as Json;
use tokenizers::pipeline::Span;

/// What stands for a blank.
const BLANK: &str = "▁";
/// More tokens that reach over a blank than these, and looking for them does not pay.
const MOST_REACHING: usize = 32;

/// Cuts texts in front of blanks.
pub(super) struct Words {
    blank: Finder<'static>,
    /// Tokens that reach over such a place: what stands before it and behind.
    reaching: Vec<(String, String)>,
}

impl Words {
    /// What the model of a canonical tokenizer.json allows; none if it allows nothing.
    pub(super) fn of_json(model: &Json) -> Option<Self> {
        let flag = |key: &str| model.get(key).and_then(Json::as_bool).unwrap_or(false);
        let is_set = |key: &str| model.get(key).and_then(Json::as_str).is_some_and(|text| !text.is_empty());
        let plain = model.get("type").and_then(Json::as_str) == Some("BPE")
            && !["byte_level", "ignore_merges"].iter().any(|key| flag(key))
            && !["continuing_subword_prefix", "end_of_word_suffix"].iter().any(|key| is_set(key));
        let vocab = model.get("vocab").and_then(Json::as_object).filter(|_| plain)?;
        Self::of_tokens(vocab.keys().map(String::as_str))
    }

    fn of_tokens<'a>(tokens: impl Iterator<Item = &'a str>) -> Option<Self> {
        let blank = Finder::new(BLANK).into_owned();
        let (mut reaching, mut has_blank) = (Vec::new(), false);
        for token in tokens {
            has_blank |= token == BLANK;
            for at in blank.find_iter(token.as_bytes()).filter(|at| is_place(token, *at)) {
                // A token of bytes does not read as what it stands for.
                if token.contains("<0x") || reaching.len() == MOST_REACHING {
                    return None;
                }
                let (before, behind) = token.split_at(at);
                reaching.push((before.to_owned(), behind.to_owned()));
            }
        }
        has_blank.then_some(Self { blank, reaching })
    }

    /// Cuts each of `spans` of `text` into words.
    pub(super) fn cut(&self, text: &str, spans: &[Span], words: &mut Vec<Span>) {
        words.clear();
        for span in spans {
            let range = span.range();
            let part = &text[range.clone()];
            let mut start = 0;
            for at in self.blank.find_iter(part.as_bytes()) {
                if is_place(part, at) && !self.is_reached_over(part, at) {
                    words.push(Span::new((range.start + start) as u32, (range.start + at) as u32));
                    start = at;
                }
            }
            words.push(Span::new((range.start + start) as u32, range.end as u32));
        }
    }

    fn is_reached_over(&self, text: &str, at: usize) -> bool {
        let (before, behind) = text.split_at(at);
        self.reaching.iter().any(|(left, right)| behind.starts_with(right) && before.ends_with(left))
    }
}

/// Whether the blank at `at` follows something that is none.
fn is_place(text: &str, at: usize) -> bool {
    at > 0 && !text[..at].ends_with(BLANK)
}

#[cfg(test)]
mod tests {
    use tokenizers::pipeline::Span;

    use super::Words;

    fn cut(tokens: &[&str], text: &str) -> Vec<String> {
        let words = Words::of_tokens(tokens.iter().copied()).unwrap();
        let mut spans = Vec::new();
        words.cut(text, &[Span::new(0, text.len() as u32)], &mut spans);
        spans.iter().map(|span| text[span.range()].to_owned()).collect()
    }

    #[test]
    fn a_text_is_cut_in_front_of_blanks_where_no_token_reaches_over() {
        let tokens = ["▁", "▁▁", "▁the", "a", ">▁</"];
        assert_eq!(cut(&tokens, "▁the▁▁the▁a"), ["▁the", "▁▁the", "▁a"]);
        assert_eq!(cut(&tokens, "a>▁</a▁b>▁<b"), ["a>▁</a", "▁b>", "▁<b"]);
        assert_eq!(cut(&tokens, ""), [""]);
    }

    #[test]
    fn a_vocabulary_whose_tokens_reach_anywhere_is_not_cut() {
        assert!(Words::of_tokens(["a", "b"].into_iter()).is_none());
        assert!(Words::of_tokens(["▁", "<0xE2>▁"].into_iter()).is_none());
        let many: Vec<String> = (0..99).map(|number| format!("{number}▁x")).collect();
        assert!(Words::of_tokens(many.iter().map(String::as_str).chain(["▁"])).is_none());
    }
}
