//! Words of a vocabulary that has no pattern to cut text by, as Gemma's: it merges whole lines.
//!
//! Why: the library remembers the tokens of words, and a line is no word that comes again. But where no token of the vocabulary has a blank
//! (`▁`) behind another character, no merge ever reaches over such a place, whatever stands around: cutting there changes nothing. The few
//! tokens that do (Gemma 3 has one, `>▁</`) are looked for at each place, which is then left whole.
//!
//! It must never cut where a token could stand: what is not certain is no word.

use memchr::memchr_iter;
use memchr::memmem::Finder;
use serde_json::{Map, Value as Json, json};
use tokenizers::pipeline::Span;

use super::lines::Pending;

/// What stands for a blank.
pub(super) const BLANK: &str = "▁";
/// More tokens that reach over a blank than these, and looking for them does not pay.
const MOST_REACHING: usize = 32;

/// Cuts texts in front of blanks.
pub(super) struct Words {
    blank: Finder<'static>,
    /// Tokens that reach over such a place.
    reaching: Vec<Reaching>,
    /// All that is done to a text before it is cut is to write its blanks: nothing is normalised, split or looked for besides.
    is_all: bool,
}

/// A token that reaches over a blank: what stands before it and behind.
struct Reaching {
    written: [String; 2],
    /// With blanks as texts have them.
    plain: [String; 2],
}

impl Words {
    /// What a canonical tokenizer.json allows; none if it allows nothing.
    pub(super) fn of_json(root: &Map<String, Json>) -> Option<Self> {
        let model = root.get("model")?;
        let flag = |key: &str| model.get(key).and_then(Json::as_bool).unwrap_or(false);
        let is_set = |key: &str| model.get(key).and_then(Json::as_str).is_some_and(|text| !text.is_empty());
        let plain = model.get("type").and_then(Json::as_str) == Some("BPE")
            && !["byte_level", "ignore_merges"].iter().any(|key| flag(key))
            && !["continuing_subword_prefix", "end_of_word_suffix"].iter().any(|key| is_set(key));
        let vocab = model.get("vocab").and_then(Json::as_object).filter(|_| plain)?;
        let words = Self::of_tokens(vocab.keys().map(String::as_str))?;
        let only_blanks = json!({"type": "Replace", "pattern": {"String": " "}, "content": BLANK});
        // No blank is left that it could split at.
        let splits_nothing = |splitter: &Json| {
            splitter.is_null()
                || splitter.get("type") == Some(&json!("Split"))
                    && splitter.get("pattern") == Some(&json!({"String": " "}))
        };
        let added = root.get("added_tokens").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_all = root.get("normalizer") == Some(&only_blanks)
            && root.get("pre_tokenizer").is_none_or(splits_nothing)
            && added.iter().all(|token| token.get("normalized") == Some(&Json::Bool(false)));
        Some(Self { is_all, ..words })
    }

    /// Whether nothing else is done to a text: [`Self::write`] is all.
    pub(super) fn are_all(&self) -> bool {
        self.is_all
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
                let written = [before.to_owned(), behind.to_owned()];
                let plain = [before.replace(BLANK, " "), behind.replace(BLANK, " ")];
                reaching.push(Reaching { written, plain });
            }
        }
        has_blank.then_some(Self { blank, reaching, is_all: false })
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

    /// Writes a part of a text behind what is pending, with its blanks as the model has them, and notes its words.
    pub(super) fn write(&self, part: &str, pending: &mut Pending) {
        let Pending { text, words } = pending;
        // A blank that the text writes as the model does is one as well.
        let written = self.blank.find(part.as_bytes()).map(|_| part.replace(BLANK, " "));
        let part = written.as_deref().unwrap_or(part);
        let (first, mut start) = (text.len(), text.len());
        let mut seen = 0;
        for at in memchr_iter(b' ', part.as_bytes()) {
            text.push_str(&part[seen..at]);
            let is_place = seen < at && text.len() > first;
            if is_place && !self.is_reached_over(part, at) {
                words.push(Span::new(start as u32, text.len() as u32));
                start = text.len();
            }
            text.push_str(BLANK);
            seen = at + 1;
        }
        text.push_str(&part[seen..]);
        words.push(Span::new(start as u32, text.len() as u32));
    }

    fn is_reached_over(&self, text: &str, at: usize) -> bool {
        let (before, behind) = text.as_bytes().split_at(at);
        self.reaching.iter().any(|reaching| {
            let [left, right] = if behind.starts_with(b" ") { &reaching.plain } else { &reaching.written };
            before.ends_with(left.as_bytes()) && behind.starts_with(right.as_bytes())
        })
    }
}

/// Whether the blank at `at` follows something that is none.
fn is_place(text: &str, at: usize) -> bool {
    at > 0 && !text[..at].ends_with(BLANK)
}

#[cfg(test)]
mod tests {
    use tokenizers::pipeline::Span;

    use super::{BLANK, Pending, Words};

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
    fn what_is_written_at_once_is_cut_as_what_was_written_before() {
        let words = Words::of_tokens(["▁", "▁▁", "a", ">▁</", "x▁▁y"].into_iter()).unwrap();
        let mut pending = Pending::default();
        for text in ["the  the a", " a> </a b> <b ", "", "  ", "▁a a▁b >▁</ > </", "x  y x y", "é  é\t "]
        {
            pending.text.clear();
            pending.words.clear();
            words.write(text, &mut pending);
            let written = text.replace(' ', BLANK);
            let mut spans = Vec::new();
            words.cut(&written, &[Span::new(0, written.len() as u32)], &mut spans);
            assert_eq!(pending.text, written);
            assert_eq!(pending.words, spans, "{text:?}");
        }
    }

    #[test]
    fn a_vocabulary_whose_tokens_reach_anywhere_is_not_cut() {
        assert!(Words::of_tokens(["a", "b"].into_iter()).is_none());
        assert!(Words::of_tokens(["▁", "<0xE2>▁"].into_iter()).is_none());
        let many: Vec<String> = (0..99).map(|number| format!("{number}▁x")).collect();
        assert!(Words::of_tokens(many.iter().map(String::as_str).chain(["▁"])).is_none());
    }
}
