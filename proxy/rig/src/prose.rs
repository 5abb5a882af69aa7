//! Prose: what a simulated model says when it has nothing to say.
//!
//! Endless sentences by a seed. It must never contain anything that a parser could take for markup.

use crate::random::Random;

const SENTENCES: [&str; 16] = [
    " The road climbs in short legs, and each turn gains a little height.",
    " A long prompt takes the long way round.",
    " The first card reads while the second one remembers.",
    " Nothing is lost between two turns.",
    " The valley is wide, the window is not.",
    " What was read once need not be read again.",
    " Every step costs a moment, every moment is counted.",
    " A queue forms quietly at the foot of the pass.",
    " The bridge carries what it was built to carry, and no more.",
    " Somewhere above, a light is on.",
    " The answer arrives in pieces, in their order.",
    " Rain fills the pool to its rim.",
    " One heavy cart can stop a whole column.",
    " The map shows the cliff, the sign shows the way round it.",
    " The second bend looks like the first one.",
    " At the top there is room for everybody.",
];

/// One sentence, with a space before it.
pub(crate) fn sentence(random: &mut Random) -> &'static str {
    SENTENCES[random.below(SENTENCES.len())]
}

/// Endless prose in sentences, each with a space before it.
pub(crate) fn prose(seed: u64) -> impl Iterator<Item = &'static str> {
    let mut random = Random::new(seed);
    std::iter::from_fn(move || Some(sentence(&mut random)))
}
