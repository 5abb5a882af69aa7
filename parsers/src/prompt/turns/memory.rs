//! What is remembered of conversations: of each message what it is, of each round of a template what it printed.
//!
//! Keys are 128 bits of a hash that is keyed with 192 bytes, which are drawn at the start: nobody who does not know them can make two
//! texts meet. It must stay bounded in bytes whatever is sent; what is forgotten is made again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;
use minijinja::Value;
use moka::sync::Cache;
use xxhash_rust::xxh3::xxh3_128_with_secret;

use super::sequence::Sequence;

/// A hash of a text, or of what a round reads.
pub(in crate::prompt) type Key = [u8; 16];

/// What an entry takes beside its texts, with moka's own bookkeeping.
const ENTRY: usize = 320;
/// The bound of all entries: some 40,000 messages with their rounds.
const BYTES: u64 = 32 << 20;
/// The longest text of a round that is kept as it is, in bytes.
const MAX_TEXT: usize = 256 << 10;

/// What a key stands for.
#[derive(Clone, Debug)]
enum Known {
    Items(Arc<[(Key, Item)]>),
    Round(Arc<Piece>),
    Sequence(Arc<Sequence>),
}

/// What a message or a tool is besides its text.
#[derive(Clone, Debug)]
pub(in crate::prompt) struct Item {
    /// The role of a message, as the template sees it.
    pub(super) role: Option<Value>,
    /// Parts that are no text.
    pub(super) media: u64,
    /// Digits of integers that are not to be told exactly.
    pub(super) wide: u64,
}

/// What a round printed: the tokens that stand between the first and the last token that nothing can reach over, and the texts around.
#[derive(Debug)]
pub(in crate::prompt) struct Piece {
    pub(super) head: String,
    /// The first such token, and how many tokens there are from it to the last one; none if there is none, and all text is `head`.
    pub(super) body: Option<(u32, u64)>,
    pub(super) tail: String,
    pub(super) left: Vec<Value>,
}

impl Piece {
    /// What the round left in the members of state.
    pub(in crate::prompt) fn state(&self) -> &[Value] {
        &self.left
    }

    fn weight(&self) -> usize {
        let left = self.left.iter().map(|value| 24 + value.as_str().map_or(0, str::len));
        ENTRY + self.head.len() + self.tail.len() + left.sum::<usize>()
    }
}

/// What a counter remembers.
pub(in crate::prompt) struct Memory {
    secret: [u8; 192],
    mark: String,
    known: Cache<Key, Known, RandomState>,
    met: AtomicU64,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} entries)", self.known.entry_count())
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_bytes(BYTES)
    }
}

impl Memory {
    /// A memory that takes so many bytes at most.
    fn with_bytes(bytes: u64) -> Self {
        let drawn = RandomState::new();
        let mut secret = [0; 192];
        for (at, bytes) in secret.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&drawn.hash_one(at).to_le_bytes());
        }
        let weigher = |_: &Key, known: &Known| match known {
            Known::Items(items) => {
                let roles = items.iter().filter_map(|(_, item)| item.role.as_ref()?.as_str());
                let weight = ENTRY + size_of_val(&**items) + roles.map(str::len).sum::<usize>();
                u32::try_from(weight).unwrap_or(u32::MAX)
            }
            Known::Round(piece) => u32::try_from(piece.weight()).unwrap_or(u32::MAX),
            Known::Sequence(sequence) => {
                let weight = sequence.weight().map_or(usize::MAX, |weight| ENTRY + weight);
                u32::try_from(weight).unwrap_or(u32::MAX)
            }
        };
        let known = Cache::builder().weigher(weigher).max_capacity(bytes);
        Self {
            secret,
            mark: format!("\u{2}{:016x}{:016x}\u{3}", drawn.hash_one("mark"), drawn.hash_one("and mark")),
            known: known.build_with_hasher(RandomState::new()),
            met: AtomicU64::new(0),
        }
    }

    /// Stands in a rendered text for the rounds of a loop. Nobody else knows it.
    pub(in crate::prompt) fn mark(&self) -> &str {
        &self.mark
    }

    pub(in crate::prompt) fn hash(&self, bytes: &[u8]) -> Key {
        xxh3_128_with_secret(bytes, &self.secret).to_le_bytes()
    }

    /// What messages or tools are that follow each other, with the hashes of their bytes.
    pub(super) fn items(&self, key: Key) -> Option<Arc<[(Key, Item)]>> {
        match self.known.get(&key) {
            Some(Known::Items(items)) => Some(items),
            _ => None,
        }
    }

    /// What a round printed.
    pub(in crate::prompt) fn round(&self, key: Key) -> Option<Arc<Piece>> {
        match self.known.get(&key) {
            Some(Known::Round(piece)) => {
                self.met.fetch_add(1, Ordering::Relaxed);
                Some(piece)
            }
            _ => None,
        }
    }

    /// The rounds that began with these two.
    pub(in crate::prompt) fn sequence(&self, name: [Key; 2]) -> Option<Arc<Sequence>> {
        match self.known.get(&self.hash(name.as_flattened())) {
            Some(Known::Sequence(sequence)) => {
                self.met.fetch_add(1, Ordering::Relaxed);
                Some(sequence)
            }
            _ => None,
        }
    }

    /// How many rounds were known when they were asked for.
    pub(super) fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    pub(super) fn put_items(&self, key: Key, items: Arc<[(Key, Item)]>) {
        self.known.insert(key, Known::Items(items));
    }

    pub(super) fn put_round(&self, key: Key, piece: Arc<Piece>) {
        if piece.head.len() + piece.tail.len() <= MAX_TEXT {
            self.known.insert(key, Known::Round(piece));
        }
    }

    pub(super) fn put_sequence(&self, sequence: Sequence) {
        if let (Some(name), Some(_)) = (sequence.name(), sequence.weight()) {
            self.known.insert(self.hash(name.as_flattened()), Known::Sequence(Arc::new(sequence)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Piece};

    #[test]
    fn the_memory_does_not_grow_beyond_its_bytes() {
        let memory = Memory::with_bytes(100_000);
        for number in 0_u64..5_000 {
            let text = "x".repeat(number as usize % 900);
            let piece = Piece { head: text.clone(), body: None, tail: text, left: vec![] };
            memory.put_round(memory.hash(&number.to_le_bytes()), piece.into());
        }
        memory.known.run_pending_tasks();
        assert!(memory.known.weighted_size() <= 100_000, "{}", memory.known.weighted_size());
        assert!(memory.known.entry_count() > 10);
    }

    #[test]
    fn two_memories_hash_differently() {
        assert_ne!(Memory::default().hash(b"text"), Memory::default().hash(b"text"));
    }
}
