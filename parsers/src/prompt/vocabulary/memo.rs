//! How many tokens a text between two special tokens had when it was counted before.
//!
//! Why: an agent sends its whole conversation with every turn, and special tokens stand between its messages, so all but the newest were
//! counted a moment ago. No token reaches over a special token, so the parts' counts are the whole's. Keys are 128 bits of keyed hashes
//! with the text's length: nobody who does not know the keys, which are drawn at the start, can make two texts meet. It must stay bounded
//! in bytes whatever is sent, and never change a count.

use ahash::RandomState;
use moka::sync::Cache;

/// Shorter texts are counted as fast as they are looked up.
const SHORTEST: usize = 512;
/// What an entry takes, with moka's own bookkeeping.
const ENTRY: u32 = 192;
/// The bound that is kept if nobody says another: some 80,000 texts.
const BYTES: u64 = 16 << 20;

/// How a text is to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Way {
    /// Composed first.
    pub(super) nfc: bool,
    /// Bytes that are no tokens count.
    pub(super) gaps_count: bool,
    /// It is the front of the whole text, and that matters.
    pub(super) is_front: bool,
}

/// A text, and how it is to be counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    hashes: [u64; 2],
    length: u32,
    way: Way,
}

/// Counts of texts.
pub(super) struct Memo {
    keys: [RandomState; 2],
    counts: Cache<Key, u32, RandomState>,
}

impl Default for Memo {
    fn default() -> Self {
        Self::with_bytes(BYTES)
    }
}

impl Memo {
    /// A memo that takes so many bytes at most; 0 remembers nothing.
    pub(super) fn with_bytes(bytes: u64) -> Self {
        let counts = Cache::builder().weigher(|_, _| ENTRY).max_capacity(bytes);
        Self {
            keys: [RandomState::new(), RandomState::new()],
            counts: counts.build_with_hasher(RandomState::new()),
        }
    }

    /// The key of a text; none for one that is not worth it.
    pub(super) fn key(&self, text: &str, way: Way) -> Option<Key> {
        if text.len() < SHORTEST {
            return None;
        }
        let length = u32::try_from(text.len()).ok()?;
        let [one, other] = &self.keys;
        Some(Key { hashes: [one.hash_one(text), other.hash_one(text)], length, way })
    }

    pub(super) fn get(&self, key: Key) -> Option<u64> {
        self.counts.get(&key).map(u64::from)
    }

    pub(super) fn put(&self, key: Key, count: u64) {
        // A text has no more tokens than bytes, and those fit.
        if let Ok(count) = u32::try_from(count) {
            self.counts.insert(key, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Memo, SHORTEST, Way};

    const COMPOSED: Way = Way { nfc: true, gaps_count: false, is_front: false };

    #[test]
    fn a_text_is_known_again_as_it_was_counted() {
        let memo = Memo::default();
        let text = "x".repeat(SHORTEST);
        let key = memo.key(&text, COMPOSED).unwrap();
        assert_eq!(memo.get(key), None);
        memo.put(key, 7);
        assert_eq!(memo.get(memo.key(&text, COMPOSED).unwrap()), Some(7));
        assert_eq!(memo.get(memo.key(&text, Way::default()).unwrap()), None);
        assert!(memo.key("short", COMPOSED).is_none());
    }

    #[test]
    fn the_memo_does_not_grow_beyond_its_bytes() {
        let memo = Memo::with_bytes(100 * 192);
        for number in 0..10_000 {
            let key = memo.key(&format!("{number:0512}"), COMPOSED).unwrap();
            memo.put(key, 1);
        }
        memo.counts.run_pending_tasks();
        assert!(memo.counts.entry_count() <= 100, "{}", memo.counts.entry_count());
    }
}
