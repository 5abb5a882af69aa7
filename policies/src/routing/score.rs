//! When the answer is expected to end, and which backend that makes the better one.
//!
//! Seconds of waiting, prefill and decode, from what is known of each machine. Two thoughts are added that seconds alone
//! miss: a large machine is kept free for what only it can do, and nobody waits for a background task, so it takes the
//! smallest. A backend overtakes one that the operator put before it only if it is clearly better.

use super::{BackendIndex, Candidate, Reason};
use crate::client::Class;
use crate::facts::{BackendFacts, Loaded, RequestFacts, Speed};

/// What it costs to occupy a large machine with what a small one could answer: so many times the seconds it takes.
const RESERVE: f64 = 1.5;

/// A machine that carries so many times what another carries is a large one beside it.
const LARGE: u64 = 4;

/// Answers of so many tokens are decided by decode speed: the fastest machine is the right one for them.
const LONG_ANSWER: u64 = 4000;

/// To overtake, a backend must be better by a quarter and by a second: below that, guesses would shuffle the order.
const BETTER: (f64, f64) = (0.75, 1.0);

/// What a backend is expected to take, seconds.
pub(super) struct Times {
    pub(super) wait: f64,
    pub(super) prefill: f64,
    /// From now to the answer's end.
    pub(super) finish: f64,
}

/// Tokens of an answer that are counted as time at the most. A limit says what may come, seldom what comes: taken at its word,
/// one request for 32,000 would have everybody else refused for a wait of ten minutes.
const COMES: u64 = 2000;

/// A conversation's home has read most of the prompt before.
pub(super) fn times(request: &RequestFacts, index: BackendIndex, backend: &BackendFacts) -> Times {
    let speed = backend.speed.unwrap_or(Speed::USUAL);
    let full = backend.slots.is_some_and(|slots| backend.load.running >= slots.max(1));
    let loads = if let Loaded::After(seconds) = backend.loaded { seconds } else { 0.0 };
    let wait = loads + if full { backend.load.first_ends_in } else { 0.0 };
    let cached = request.home.filter(|home| home.backend == index).map_or(0, |home| home.cached);
    let prompt = request.prompt.expected();
    let prefill = speed.prefill(cached, prompt);
    // Decode is as slow as its whole context makes it. What a window would cut off does not make a backend faster.
    let output = request.expected_output().min(COMES);
    let whole = speed.seconds(prompt, output) - speed.prefill(0, prompt);
    Times { wait, prefill, finish: wait + prefill + whole }
}

/// Orders candidates of one rank, which stand in the operator's order.
pub(super) fn order(request: &RequestFacts, backends: &[BackendFacts], candidates: &mut [Candidate]) {
    // Ties keep affinity: a conversation's home is asked first unless another is clearly better.
    if !request.own_order
        && let Some(home) = request.home
        && let Some(at) = candidates.iter().position(|candidate| candidate.backend == home.backend)
    {
        candidates[..=at].rotate_right(1);
    }
    if request.class == Class::Background {
        candidates.sort_by_key(|candidate| capacity(&backends[candidate.backend]));
        return;
    }
    let costs: Vec<(usize, f64)> = candidates
        .iter()
        .map(|candidate| (candidate.backend, cost(request, backends, candidates, candidate)))
        .collect();
    let cost_of = |backend: usize| {
        costs.iter().find(|(index, _)| *index == backend).map_or(f64::MAX, |(_, cost)| *cost)
    };
    // An insertion sort: "clearly better" is no order that a sort could use.
    for last in 1..candidates.len() {
        let mut at = last;
        while at > 0 && clearly_better(cost_of(candidates[at].backend), cost_of(candidates[at - 1].backend)) {
            candidates.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Moves those that have to be loaded before those that are there, but end clearly later all the same.
pub(super) fn load_if_better(candidates: &mut [Candidate]) {
    for last in 1..candidates.len() {
        let mut at = last;
        while at > 0
            && matches!(candidates[at].reason, Reason::AfterLoading { .. })
            && clearly_better(candidates[at].finish, candidates[at - 1].finish)
        {
            candidates.swap(at, at - 1);
            at -= 1;
        }
    }
}

fn clearly_better(one: f64, other: f64) -> bool {
    one < other * BETTER.0 - BETTER.1
}

fn cost(
    request: &RequestFacts,
    backends: &[BackendFacts],
    rivals: &[Candidate],
    candidate: &Candidate,
) -> f64 {
    let own = capacity(&backends[candidate.backend]);
    let smaller_will_do =
        rivals.iter().any(|rival| own >= capacity(&backends[rival.backend]).saturating_mul(LARGE));
    let short = request.expected_output() < LONG_ANSWER;
    let at_home = request.home.is_some_and(|home| home.backend == candidate.backend);
    if smaller_will_do && short && !request.agent && !at_home {
        candidate.finish * (1.0 + RESERVE)
    } else {
        candidate.finish
    }
}

/// What a backend can carry; unknown is much.
fn capacity(backend: &BackendFacts) -> u64 {
    let soft = backend.accumulated.map(|limit| limit.tokens);
    [backend.prompt_limit(), soft].into_iter().flatten().min().unwrap_or(u64::MAX)
}
