//! What of a prompt is likely cached, and what spoiled a cache.
//!
//! A prefix cache keeps a prompt up to the first difference. So a prompt is outlined as a chain: its tools, each line of its
//! first messages, each later message whole, as hashes of what reaches the engine, never as text. Two outlines tell where
//! they part; a mark after each message tells what a backend has read before. Hashes are the caller's.

/// Pieces that are told apart; the rest of a longer prompt is one piece.
const MOST: usize = 512;

/// A part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of what reaches the engine: the same text in another notation has the same hash.
    pub hash: u64,
    /// Its length.
    pub bytes: u32,
    /// Where it stands.
    pub place: Place,
    /// An answer, which the backend that wrote it has read, too.
    pub answer: bool,
}

/// Where a piece stands, counted from 1; message 0: the tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Which message.
    pub message: u16,
    /// Which line of it; 0: the whole message.
    pub line: u16,
}

/// A prompt, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    pieces: Vec<Piece>,
    bytes: u64,
}

/// The chain up to the end of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Of all up to here.
    pub hash: u64,
    /// The part of the prompt up to here, 0 to 1.
    pub share: f64,
    /// It ends with an answer.
    pub answer: bool,
}

/// Where a prompt parts from the one before it, although what follows is mostly the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// What differs.
    pub place: Place,
    /// The part of the earlier prompt from there on, which is computed again, 0 to 1.
    pub share: f64,
}

impl Outline {
    /// Appends a piece.
    pub fn push(&mut self, piece: Piece) {
        self.bytes += u64::from(piece.bytes);
        let full = self.pieces.len() >= MOST;
        match self.pieces.last_mut() {
            Some(last) if full => {
                last.hash = chain(last.hash, piece.hash);
                last.bytes = last.bytes.saturating_add(piece.bytes);
            }
            _ => self.pieces.push(piece),
        }
    }

    /// A mark after each message, and after the tools.
    #[must_use]
    pub fn marks(&self) -> Vec<Mark> {
        let mut marks: Vec<Mark> = Vec::new();
        let (mut hash, mut bytes) = (0, 0_u64);
        for (nth, piece) in self.pieces.iter().enumerate() {
            hash = chain(hash, piece.hash);
            bytes += u64::from(piece.bytes);
            let next = self.pieces.get(nth + 1).map(|next| next.place.message);
            if next != Some(piece.place.message) {
                let share = bytes as f64 / self.bytes.max(1) as f64;
                marks.push(Mark { hash, share, answer: piece.answer });
            }
        }
        marks
    }

    /// The part of the prompt, 0 to 1, that whoever has read up to the marks that are `known` has in its cache: an answer right
    /// behind them is its own.
    #[must_use]
    pub fn known_share(&self, known: impl Fn(&Mark) -> bool) -> f64 {
        let marks = self.marks();
        let Some(last) = marks.iter().rposition(known) else { return 0.0 };
        let own = marks.get(last + 1).filter(|next| next.answer);
        own.unwrap_or(&marks[last]).share
    }

    /// Where this prompt parts from an earlier one of the same conversation, if a small change in it spoiled the cache for what
    /// stands behind it. Not so if it only goes on, or if what follows is new as well: then it was meant.
    #[must_use]
    pub fn drift_from(&self, before: &Self) -> Option<Drift> {
        let same = self.pieces.iter().zip(&before.pieces).take_while(|(now, then)| now.hash == then.hash);
        let at = same.count();
        let (lost, now) = (before.pieces.get(at..)?, self.pieces.get(at..)?);
        let (first, behind) = (now.first()?, lost.get(1..)?);
        let there: std::collections::BTreeSet<u64> = now.iter().map(|piece| piece.hash).collect();
        let bytes = |pieces: &mut dyn Iterator<Item = &Piece>| {
            pieces.map(|piece| u64::from(piece.bytes)).sum::<u64>()
        };
        let again = bytes(&mut behind.iter().filter(|piece| there.contains(&piece.hash)));
        let lost = bytes(&mut lost.iter());
        (again * 2 > lost)
            .then(|| Drift { place: first.place, share: lost as f64 / before.bytes.max(1) as f64 })
    }
}

/// The hash of a chain with one more piece.
fn chain(hash: u64, piece: u64) -> u64 {
    (hash.rotate_left(23) ^ piece).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prompt of words; a word is a piece of a hundred bytes, `|` ends a message.
    fn outline(text: &str) -> Outline {
        let mut outline = Outline::default();
        for (message, words) in (1..).zip(text.split('|')) {
            for (line, word) in (1..).zip(words.split_whitespace()) {
                let hash = word.bytes().fold(7, |hash: u64, byte| hash * 131 + u64::from(byte));
                let answer = word.starts_with('=');
                outline.push(Piece { hash, bytes: 100, place: Place { message, line }, answer });
            }
        }
        outline
    }

    #[test]
    fn a_prompt_that_goes_on_keeps_all_marks_of_the_one_before() {
        let (before, now) = (outline("a b | c"), outline("a b | c | d | e"));
        let hashes = |outline: &Outline| outline.marks().iter().map(|mark| mark.hash).collect::<Vec<_>>();
        assert_eq!(hashes(&now)[..2], hashes(&before)[..]);
        assert_eq!(now.marks()[1].share, 0.6);
        assert_eq!(now.drift_from(&before), None);
        assert_eq!(before.drift_from(&before), None);
    }

    #[test]
    fn the_answer_behind_what_was_read_is_known_to_who_wrote_it() {
        let read = outline("a b | c").marks();
        let known = |mark: &Mark| read.iter().any(|read| read.hash == mark.hash);
        assert_eq!(outline("a b | c | =d | e").known_share(known), 0.8);
        assert_eq!(outline("a b | c | d | =e").known_share(known), 0.6);
        assert_eq!(outline("x | c").known_share(known), 0.0);
    }

    #[test]
    fn a_line_that_changes_is_found_with_what_it_costs() {
        let drift = outline("a 12:01 b c | d | e | f").drift_from(&outline("a 12:00 b c | d | e"));
        let place = Place { message: 1, line: 2 };
        assert_eq!(drift, Some(Drift { place, share: 5.0 / 6.0 }));
    }

    #[test]
    fn a_line_that_is_put_in_or_left_out_is_found_too() {
        let place = Place { message: 1, line: 2 };
        let put_in = outline("a new b c | d | e").drift_from(&outline("a b c | d | e"));
        assert_eq!(put_in.map(|drift| drift.place), Some(place));
        let left_out = outline("a c | d | e | f").drift_from(&outline("a b c | d | e"));
        assert_eq!(left_out.map(|drift| drift.place), Some(place));
    }

    #[test]
    fn a_compaction_and_another_conversation_are_no_drift() {
        assert_eq!(outline("a b | summary | q").drift_from(&outline("a b | c | d | e | f")), None);
        assert_eq!(outline("x y | z").drift_from(&outline("a b | c")), None);
        assert_eq!(Outline::default().drift_from(&outline("a")), None);
    }

    #[test]
    fn a_prompt_of_any_length_has_a_bounded_outline() {
        let mut long = Outline::default();
        for hash in 0..100_000 {
            long.push(Piece { hash, bytes: 10, place: Place::default(), answer: false });
        }
        assert_eq!((long.pieces.len(), long.bytes), (MOST, 1_000_000));
        assert_eq!(long.marks().last().map(|mark| mark.share), Some(1.0));
    }
}
