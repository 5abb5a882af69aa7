//! The prefix cache: which beginning of a prompt the engine still holds.
//!
//! A prompt is a chain of hashes, one every [`GRAIN`] tokens, each over everything before it: equal hashes, equal
//! prefixes. vLLM keeps whole blocks of any conversation as long as the KV pool has room, the least recently used
//! leaves first; llama.cpp keeps what stands in each slot, and only that slot has it. It must never know how much of a
//! hit saves time: that is the model's business ([`PrefixCache::reuse`]).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::Spec;

/// Tokens between two hashes of a chain.
pub(crate) const GRAIN: usize = 16;

/// The hashes of a prompt and its answer.
pub(crate) type Chain = Arc<[u64]>;

/// How a backend reuses the beginnings of prompts that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixCache {
    /// Hits come in whole blocks of this many tokens (rounded up to a multiple of 16): 1,600 for hybrid (GDN) models
    /// on vLLM.
    pub block: usize,
    /// φ: the share of a hit that need not be computed again. 1 for attention alone, 0 where the recurrent state is
    /// replayed (one card, published), between on two cards (not published; 0.5 assumed).
    pub reuse: f64,
}

/// What one engine holds.
#[derive(Debug)]
pub(crate) enum Held {
    Nothing,
    /// vLLM: blocks, with the time of their last use.
    Blocks {
        grains: usize,
        most: usize,
        used: HashMap<u64, u64>,
        order: BTreeMap<u64, u64>,
        clock: u64,
    },
    /// llama.cpp: the chain in each slot.
    Slots {
        grains: usize,
        chains: Vec<Chain>,
    },
}

impl Held {
    pub(crate) fn new(spec: &Spec) -> Self {
        let Some(cache) = spec.prefix_cache else { return Self::Nothing };
        let grains = cache.block.div_ceil(GRAIN).max(1);
        if spec.engine.has_slots() {
            return Self::Slots { grains, chains: vec![Chain::default(); spec.slots] };
        }
        let (used, order) = (HashMap::new(), BTreeMap::new());
        Self::Blocks { grains, most: spec.kv_pool() / (grains * GRAIN), used, order, clock: 0 }
    }

    /// How many tokens at the beginning of a prompt are held, for a request in this slot.
    pub(crate) fn hit(&self, chain: &[u64], slot: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Blocks { grains, used, .. } => {
                let held = ends(chain, *grains).take_while(|end| used.contains_key(end)).count();
                held * grains * GRAIN
            }
            Self::Slots { grains, chains } => {
                let same = |held: &Chain| held.iter().zip(chain).take_while(|(a, b)| a == b).count();
                chains.get(slot).map_or(0, same) / grains * grains * GRAIN
            }
        }
    }

    /// The first `tokens` tokens of this chain now stand in this slot.
    pub(crate) fn keep(&mut self, chain: &Chain, tokens: usize, slot: usize) {
        let whole = (tokens / GRAIN).min(chain.len());
        match self {
            Self::Nothing => {}
            Self::Blocks { grains, most, used, order, clock } => {
                // the end of a chain leaves before its beginning: without that it is of no use
                for end in ends(&chain[..whole], *grains).collect::<Vec<_>>().into_iter().rev() {
                    *clock += 1;
                    order.insert(*clock, end);
                    if let Some(before) = used.insert(end, *clock) {
                        order.remove(&before);
                    }
                }
                while used.len() > *most
                    && let Some((_, oldest)) = order.pop_first()
                {
                    used.remove(&oldest);
                }
            }
            Self::Slots { chains, .. } => {
                if let Some(held) = chains.get_mut(slot) {
                    *held = if whole == chain.len() { Arc::clone(chain) } else { chain[..whole].into() };
                }
            }
        }
    }
}

/// The hashes at the ends of whole blocks.
fn ends(chain: &[u64], grains: usize) -> impl Iterator<Item = u64> {
    chain.iter().skip(grains - 1).step_by(grains).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;

    fn held(engine: Engine, block: usize, pool: usize) -> Held {
        let spec = serde_json::json!({"engine": engine, "slots": 2, "window": 64, "kv_pool": pool,
            "prefix_cache": {"block": block, "reuse": 1.0}});
        Held::new(&serde_json::from_value(spec).unwrap())
    }

    fn chain(hashes: impl IntoIterator<Item = u64>) -> Chain {
        hashes.into_iter().collect()
    }

    #[test]
    fn vllm_hits_whole_blocks_from_any_slot() {
        let mut held = held(Engine::Vllm, 32, 1_000);
        held.keep(&chain(1..=5), 80, 0);
        assert_eq!(held.hit(&chain(1..=9), 1), 64, "two blocks of 32; the third is not full");
        assert_eq!(held.hit(&chain([1, 2, 3, 9]), 1), 32);
        assert_eq!(held.hit(&chain([6, 7, 3, 4]), 0), 0, "a prefix begins at the beginning");
    }

    #[test]
    fn what_was_used_least_recently_leaves_first_and_from_its_end() {
        let mut held = held(Engine::Vllm, 16, 96);
        held.keep(&chain(1..=4), 64, 0);
        held.keep(&chain(11..=14), 64, 0);
        assert_eq!((held.hit(&chain(1..=4), 0), held.hit(&chain(11..=14), 0)), (32, 64));
    }

    #[test]
    fn llama_hits_only_in_the_slot_that_has_it() {
        let mut held = held(Engine::LlamaCpp, 16, 1_000);
        held.keep(&chain(1..=5), 80, 1);
        assert_eq!((held.hit(&chain(1..=9), 0), held.hit(&chain(1..=9), 1)), (0, 80));
        held.keep(&chain(7..=9), 40, 1);
        assert_eq!((held.hit(&chain(1..=9), 1), held.hit(&chain(7..=9), 1)), (0, 32));
    }
}
