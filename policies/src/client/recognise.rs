//! From clues to a profile, with reasons.
//!
//! What a client says of itself (user agent, headers of its own) comes first, then the set of its tools, then the shape of
//! its body. Tool sets are compared by majority, not equality: versions drift, and users add tools of their own. Of two
//! profiles with evidence of the same kind the one with more of it wins, then the earlier in the table: the same clues
//! always give the same answer, and every set of clues gives one.

use std::cmp::Reverse;
use std::fmt;

use super::builtin::{BUILTIN, PLAIN};
use super::clues::Clues;
use super::mark::{Confidence, Mark};
use super::profile::Profile;

/// So many tools are looked at. Clients send up to a hundred.
const TOOLS: usize = 256;
/// From so many names on, a majority of a profile's tools is proof whatever else is there; fewer are such common words
/// (`read`, `bash`, `edit`, `write`) that they must also be half of the request's tools.
const ENOUGH: usize = 5;
/// Letters of a user agent that a reason repeats.
const SHOWN: usize = 64;

/// Why a profile was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// Its user agent, cut to the product.
    UserAgent(String),
    /// A header of its own, by name.
    Header(&'static str),
    /// The tools that it is known for.
    Tools {
        /// So many of them are there.
        seen: usize,
        /// So many it has.
        of: usize,
    },
    /// The operator gave the API key the client's name.
    KeyName,
    /// The shape of its body, in words.
    Body(String),
    /// Nothing spoke for any client.
    Nothing,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserAgent(agent) => write!(f, "user agent {agent}"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Tools { seen, of } => write!(f, "{seen} of {of} tool names"),
            Self::KeyName => f.write_str("the name of its api key"),
            Self::Body(shape) => f.write_str(shape),
            Self::Nothing => f.write_str("nothing that a known client sends"),
        }
    }
}

/// Who is calling.
#[derive(Clone, Debug, PartialEq)]
pub struct Recognised {
    /// The client.
    pub profile: &'static Profile,
    /// All that speaks for it; never empty.
    pub because: Vec<Because>,
    /// How sure it is.
    pub confidence: Confidence,
}

impl fmt::Display for Recognised {
    /// One sentence: `OpenCode: user agent opencode/1.18.33, 10 of 10 tool names`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.profile.name)?;
        for (nth, because) in self.because.iter().enumerate() {
            write!(f, "{} {because}", if nth == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// Who is calling. Always an answer: at least the library, or [`PLAIN`].
#[must_use]
pub fn recognise(clues: &Clues<'_>) -> Recognised {
    let clues = Clues { tools: clues.tools.get(..TOOLS).unwrap_or(clues.tools), ..*clues };
    let best = BUILTIN
        .iter()
        .enumerate()
        .map(|(row, profile)| (Evidence::of(profile, &clues), Reverse(row), profile))
        .max_by_key(|(evidence, row, _)| (*evidence, *row));
    match best {
        Some((evidence, _, profile)) if evidence.confidence > Confidence::Unknown => {
            Recognised { profile, because: reasons(profile, &clues), confidence: evidence.confidence }
        }
        _ => Recognised { profile: &PLAIN, because: vec![Because::Nothing], confidence: Confidence::Unknown },
    }
}

/// How much speaks for a profile. Ordered: the kind of evidence, then how much there is of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Evidence {
    confidence: Confidence,
    pieces: usize,
}

impl Evidence {
    fn of(profile: &Profile, clues: &Clues<'_>) -> Self {
        let signs = profile.signs.iter().filter(|sign| sign.holds(clues));
        let signs = signs.map(|sign| (sign.confidence, sign.marks.len()));
        let all = signs
            .chain(tools_seen(profile, clues).map(|seen| (Confidence::Likely, seen)))
            .chain(named_by_key(profile, clues).then_some((Confidence::Likely, 1)));
        let mut best = Self { confidence: Confidence::Unknown, pieces: 0 };
        for (confidence, pieces) in all {
            if confidence > best.confidence {
                best = Self { confidence, pieces: 0 };
            }
            if confidence == best.confidence {
                best.pieces += pieces;
            }
        }
        best
    }
}

/// How many of the profile's tools the request has, if they are enough to speak for it.
fn tools_seen(profile: &Profile, clues: &Clues<'_>) -> Option<usize> {
    let seen = profile.tools.iter().filter(|tool| clues.tools.contains(tool)).count();
    let majority = seen > 0 && seen * 2 >= profile.tools.len();
    (majority && (seen >= ENOUGH || seen * 2 >= clues.tools.len())).then_some(seen)
}

fn named_by_key(profile: &Profile, clues: &Clues<'_>) -> bool {
    clues.key_name.is_some_and(|name| name.eq_ignore_ascii_case(profile.id))
}

/// All that speaks for a profile, in the order of its table row.
fn reasons(profile: &Profile, clues: &Clues<'_>) -> Vec<Because> {
    let mut because = Vec::new();
    for sign in profile.signs.iter().filter(|sign| sign.holds(clues)) {
        let mut shape = Vec::new();
        for mark in sign.marks {
            let told = match *mark {
                Mark::UserAgent(part) | Mark::UserAgentHas(part) => Because::UserAgent(product(clues, part)),
                Mark::Header(name, _) => Because::Header(name),
                _ => {
                    shape.push(mark.seen(clues));
                    continue;
                }
            };
            if !because.contains(&told) {
                because.push(told);
            }
        }
        because.extend(match &shape[..] {
            [] => None,
            [only] => Some(Because::Body(only.clone())),
            [first, rest @ ..] => Some(Because::Body(format!("{first} with {}", rest.join(", ")))),
        });
    }
    because.extend(tools_seen(profile, clues).map(|seen| Because::Tools { seen, of: profile.tools.len() }));
    because.extend(named_by_key(profile, clues).then_some(Because::KeyName));
    because
}

/// The user agent up to the end of the word in which the known part ends: the product and its version.
fn product(clues: &Clues<'_>, part: &str) -> String {
    let agent = clues.header("user-agent").unwrap_or_default();
    let known = agent.find(part).unwrap_or(0) + part.len();
    let rest = agent.get(known..).and_then(|rest| rest.find(char::is_whitespace));
    let shown = rest.and_then(|rest| agent.get(..known + rest)).unwrap_or(agent);
    shown.chars().take(SHOWN).filter(|letter| !letter.is_control()).collect()
}
