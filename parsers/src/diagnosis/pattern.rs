//! The little language that the table of error sentences is written in.
//!
//! A pattern is text that a sentence must contain, in any case of letters. In it, `{prompt}` and `{limit}` are
//! numbers to be read, `{}` is any other number, and `…` is anything at all. Thousands may be set apart by commas.

/// The numbers that a sentence gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) prompt: Option<u64>,
    pub(super) limit: Option<u64>,
}

/// Whether `sentence` contains `pattern`, and the numbers in it.
pub(super) fn find(pattern: &str, sentence: &str) -> Option<Numbers> {
    let sentence = sentence.to_ascii_lowercase();
    let mut rest = &*sentence;
    let mut numbers = Numbers::default();
    for part in pattern.to_ascii_lowercase().split('…') {
        let places = rest.char_indices().map(|(at, _)| at);
        let (behind, found) = places.filter_map(|at| read(part, &rest[at..], numbers)).next()?;
        (rest, numbers) = (behind, found);
    }
    Some(numbers)
}

/// Reads a part without gaps at the very beginning of `text`; gives what follows it.
fn read<'t>(part: &str, mut text: &'t str, mut numbers: Numbers) -> Option<(&'t str, Numbers)> {
    let mut part = part;
    while let Some((literal, place)) = part.split_once('{') {
        let (name, behind) = place.split_once('}')?;
        text = text.strip_prefix(literal)?;
        let length = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b',').count();
        let (digits, after) = text.split_at(length);
        if !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let number = digits.replace(',', "").parse().ok();
        match name {
            "prompt" => numbers.prompt = number,
            "limit" => numbers.limit = number,
            _ => {}
        }
        (part, text) = (behind, after);
    }
    Some((text.strip_prefix(part)?, numbers))
}

#[cfg(test)]
mod tests {
    use super::{Numbers, find};

    #[test]
    fn a_pattern_is_found_anywhere_and_reads_its_numbers() {
        let pattern = "request ({prompt} tokens) exceeds … ({limit} tokens)";
        let sentence =
            "Error: Request (61,204 tokens) exceeds the available context size (48000 tokens), try";
        assert_eq!(find(pattern, sentence), Some(Numbers { prompt: Some(61_204), limit: Some(48_000) }));
        assert_eq!(find(pattern, "request (many tokens) exceeds (1 tokens)"), None);
        assert_eq!(find(pattern, "request (1 tokens) exceeds"), None);
    }

    #[test]
    fn a_number_beyond_64_bits_is_a_number_that_cannot_be_told() {
        assert_eq!(find("{limit} tokens", "99999999999999999999999 tokens"), Some(Numbers::default()));
    }

    #[test]
    fn a_comma_behind_a_number_ends_no_match() {
        assert_eq!(find("longer than {limit}", "longer than 4096, sorry").and_then(|n| n.limit), Some(4096));
    }
}
