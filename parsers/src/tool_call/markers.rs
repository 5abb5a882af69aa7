//! Which markers may stand at a place, told by its first three bytes: plain text, and floods of `<`, cost next to nothing.
//!
//! Built once from the tables; a marker that is added there is found here.

use std::sync::LazyLock;

use super::formats::{FORMATS, Format, INVENTED, LEAKS, SHELLS, SURPLUS, THOUGHTS};
use super::lines::{COMMENT, SHOWING};

struct Index {
    /// Openers, by their second byte.
    openers: [Vec<(&'static Format, &'static str)>; 256],
    /// Closers, by their third byte.
    closers: [Vec<&'static str>; 256],
    /// A bit for each pair of second and third byte behind `<`.
    pairs: Vec<u64>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index {
        openers: [const { Vec::new() }; 256],
        closers: [const { Vec::new() }; 256],
        pairs: vec![0; 1 << 10],
    };
    for format in FORMATS {
        for opener in format.openers {
            index.openers[usize::from(opener.as_bytes()[1])].push((format, opener));
            index.add(opener);
        }
        for closer in format.closers {
            let known = &mut index.closers[usize::from(closer.as_bytes()[2])];
            if !known.contains(closer) {
                known.push(closer);
            }
            index.add(closer);
        }
    }
    let shells =
        SHELLS.iter().flat_map(|(opener, closers)| [*opener].into_iter().chain(closers.iter().copied()));
    let others = [LEAKS, SURPLUS, INVENTED].into_iter().flatten().copied().chain(shells);
    let thoughts = THOUGHTS.iter().map(|(opener, _)| *opener);
    others.chain(thoughts).chain(["<s>", COMMENT]).for_each(|marker| index.add(marker));
    SHOWING.iter().for_each(|name| index.add(&format!("<{name}>")));
    SHOWING.iter().for_each(|name| index.add(&format!("</{name}>")));
    index
});

impl Index {
    fn add(&mut self, marker: &str) {
        if let [b'<', second, third, ..] = *marker.as_bytes() {
            let pair = usize::from(second) << 8 | usize::from(third);
            self.pairs[pair >> 6] |= 1 << (pair & 63);
        }
    }
}

/// Openers that the text may start with; the text has two bytes at least.
pub(super) fn openers(text: &[u8]) -> &'static [(&'static Format, &'static str)] {
    &INDEX.openers[usize::from(text[1])]
}

/// Closers that the text may start with; the text has three bytes at least.
pub(super) fn closers(text: &[u8]) -> &'static [&'static str] {
    &INDEX.closers[usize::from(text[2])]
}

/// False where no marker of any kind begins; the text starts with `<`.
pub(super) fn may_begin(text: &[u8]) -> bool {
    let [_, second, third, ..] = *text else { return true };
    let pair = usize::from(second) << 8 | usize::from(third);
    INDEX.pairs[pair >> 6] & (1 << (pair & 63)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of a dictionary as libFuzzer reads it.
    fn entry(marker: &str) -> String {
        let escape = |byte: u8| match byte {
            b'"' | b'\\' => format!("\\{}", char::from(byte)),
            b' '..=b'~' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02X}"),
        };
        format!("\"{}\"", marker.bytes().map(escape).collect::<String>())
    }

    #[test]
    #[ignore = "for those who fuzz: what the dictionary lacks is no defect"]
    fn the_dictionary_of_the_fuzz_target_has_every_marker() {
        let dictionary = include_str!("../../fuzz/tool_call.dict");
        let formats = FORMATS.iter().flat_map(|format| format.openers.iter().chain(format.closers));
        let shells = SHELLS.iter().flat_map(|(opener, closers)| [opener].into_iter().chain(*closers));
        let all = formats.chain(shells).chain([LEAKS, SURPLUS, INVENTED].into_iter().flatten());
        let missing: Vec<String> = all
            .map(|marker| entry(marker))
            .filter(|line| !dictionary.lines().any(|known| known == line))
            .collect();
        assert!(missing.is_empty(), "parsers/fuzz/tool_call.dict lacks\n{}", missing.join("\n"));
    }
}
