//! Which characters Python's `repr()` prints as they are.
//!
//! Two questions, since versions differ: what of Unicode 14 is printable, which is the same in all of them, and what it had assigned. Others print as the
//! engine's Python knows them or not, so nothing that holds one is counted where it would be printed so. `unassigned.txt` has the ranges without a character in
//! Unicode 14, as `unicodedata.category` tells them.

use std::sync::OnceLock;

/// Below it every character is assigned.
const FIRST: u32 = 0x370;

/// Whether Unicode 14 has the character.
pub(super) fn is_assigned(c: char) -> bool {
    static UNASSIGNED: OnceLock<Vec<(u32, u32)>> = OnceLock::new();
    let code = c as u32;
    if code < FIRST {
        return true;
    }
    let ranges = UNASSIGNED.get_or_init(|| {
        let number = |digits| u32::from_str_radix(digits, 16).unwrap_or_default();
        let lines = include_str!("unassigned.txt").lines();
        lines
            .map(|line| line.split_once('-').unwrap_or((line, line)))
            .map(|(a, b)| (number(a), number(b)))
            .collect()
    });
    let at = ranges.partition_point(|(_, last)| *last < code);
    ranges.get(at).is_none_or(|(first, _)| code < *first)
}

/// `str.isprintable`: no control or format character, no separator but the space, nothing of private use.
pub(super) fn is_printable(c: char) -> bool {
    !matches!(
        c,
        '\0'..='\x1f' | '\x7f'..='\u{a0}' | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{1680}' | '\u{180e}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{2064}' | '\u{2066}'..='\u{206f}' | '\u{3000}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{13438}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}' | '\u{f0000}'..
    )
}

#[cfg(test)]
mod tests {
    use super::{is_assigned, is_printable};

    #[test]
    fn what_is_printable_is_told_from_what_is_not_known() {
        for (c, assigned, printable) in [
            ('a', true, true),
            ('\u{ad}', true, false),
            ('\u{3000}', true, false),
            ('漢', true, true),
            ('😀', true, true),
            ('\u{e000}', true, false),
            ('\u{378}', false, true),
            ('\u{1f6d8}', false, true),
            ('\u{10ffff}', false, false),
        ] {
            assert_eq!((is_assigned(c), is_printable(c)), (assigned, printable), "{c:?}");
        }
    }
}
