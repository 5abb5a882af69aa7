//! What a backend survives, as far as deaths and successes have told: the cliff map of one backend.
//!
//! A request has a [`Shape`]. A death is held against each size of the suspect that nothing as large has survived: nine
//! tenths of the smallest killer are then the limit. A size that others survived is acquitted, unless a fifth of them died
//! too: cliffs are ramps, and an engine that somebody stops, or that crashes at any length, proves nothing about length. Below
//! a floor it takes three, and tiny ones are never blamed. What is learned fades when the backend is restarted on purpose or becomes another version:
//! hard, then soft, then forgotten.
//!
//! Must never bar a short prompt because a long one died: limits are of shapes, not of backends.

mod region;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

pub use region::{Beyond, Bound, Region};

/// What about a request may kill an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// Prompt tokens that the backend is not likely to remember.
    New,
    /// The whole prompt of a conversation that goes on.
    Accumulated,
    /// Tokens of all requests that the proxy has there at once.
    Resident,
    /// The number of those requests.
    Running,
    /// Pictures in the prompt.
    Images,
}

impl Dimension {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::New, Self::Accumulated, Self::Resident, Self::Running, Self::Images];

    /// What its numbers count.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::New => "new tokens",
            Self::Accumulated => "tokens of a conversation",
            Self::Resident => "tokens at once",
            Self::Running => "requests at once",
            Self::Images => "pictures",
        }
    }

    /// Its one-word name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Accumulated => "accumulated",
            Self::Resident => "resident",
            Self::Running => "running",
            Self::Images => "images",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The size of a request on a backend, in every dimension; 0: it has none there, and neither proves nor suffers anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// See [`Dimension::New`].
    pub new: u64,
    /// See [`Dimension::Accumulated`]; 0 for a first turn.
    pub accumulated: u64,
    /// See [`Dimension::Resident`]; with this request.
    pub resident: u64,
    /// See [`Dimension::Running`]; with this request.
    pub running: u64,
    /// See [`Dimension::Images`].
    pub images: u64,
    /// Tokens of the largest of the requests that it stands beside, itself among them. No size of its own: many small
    /// ones that died together prove nothing of how much was too much.
    pub largest: u64,
}

impl Shape {
    /// Its size in one dimension.
    #[must_use]
    pub fn size(&self, dimension: Dimension) -> u64 {
        match dimension {
            Dimension::New => self.new,
            Dimension::Accumulated => self.accumulated,
            Dimension::Resident => self.resident,
            Dimension::Running => self.running,
            Dimension::Images => self.images,
        }
    }
}

/// One death, in one dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Killer {
    /// The size that died.
    pub size: u64,
    /// The largest size below it that was survived afterwards; 0: none.
    pub survived: u64,
    /// 1 when it happened; less with every restart and change since. Below a half the limit is soft.
    pub confidence: f64,
    /// When, seconds of the Unix epoch.
    pub at: u64,
}

/// What is known in one dimension.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Deaths, oldest first.
    pub killers: Vec<Killer>,
    /// How many requests of which size were survived: steps of [`step`] to counts.
    pub survived: BTreeMap<u32, u64>,
}

/// The limits that a death has set or lowered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lesson {
    /// Dimension, limit before, limit now.
    pub lowered: Vec<(Dimension, Option<u64>, u64)>,
}

/// The cliff map of one backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cliffs {
    /// One axis for each of [`Dimension::ALL`].
    pub axes: [Axis; 5],
    /// The engine's version when it was last seen.
    pub version: Option<String>,
    /// Deaths until then do not count: the operator knows better. Seconds of the Unix epoch.
    pub forgotten: u64,
    /// Deaths of any size since then. An engine that dies of anything has no cliff.
    pub deaths: u64,
}

/// Steps of sizes: twelve to a doubling, so that two sizes of one step differ by six percent at most.
const STEPS: f64 = 12.0;

/// Of the requests that were at least so large, this part died: then it was the size.
const PART: f64 = 0.2;

/// A limit below the floor would bar nearly everything, and no cliff is known there: three deaths of about one size are
/// needed, most of all its deaths, and three of four such requests.
const THREE: f64 = 2.5;
/// See [`THREE`].
const MOST: f64 = 0.75;

/// No number of tokens below this is ever held guilty: no card has its cliff there, such sizes are mostly guesses from bounds, and
/// whatever kills an engine then would leave it nothing to serve.
const LEAST: u64 = 4096;

/// Deaths that are remembered in one dimension.
const MOST_KILLERS: usize = 16;

/// Survivals that are counted in one step. More prove no more, and a change of the machine must be noticed.
const MOST_SURVIVED: u64 = 100;

/// Below this confidence a death is forgotten.
const FORGOTTEN: f64 = 0.1;

/// The step that a size falls into.
#[must_use]
pub fn step(size: u64) -> u32 {
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
    let steps = (size.max(1) as f64).log2() * STEPS;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the logarithm of a number that is at least 1, below 64 steps of 12"
    )]
    let step = steps as u32;
    step
}

/// The smallest size of a step.
#[must_use]
pub fn first_of(wanted: u32) -> u64 {
    let (mut low, mut high) = (1, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if step(middle) < wanted { low = middle + 1 } else { high = middle }
    }
    low
}

/// Nine tenths of a size, at least 1 below it.
fn below(size: u64) -> u64 {
    (size - size / 10).min(size.saturating_sub(1))
}

impl Axis {
    /// Requests of at least this size (as exactly as steps are) that were survived.
    fn survived(&self, size: u64) -> f64 {
        let count =
            self.survived.range(step(size)..).fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let count = count as f64;
        count
    }

    /// About the largest size that was survived; the true one is at most six percent above.
    #[must_use]
    pub fn most_survived(&self) -> Option<u64> {
        self.survived.last_key_value().map(|(step, _)| first_of(*step))
    }

    /// Deaths of about this size. Much larger ones have cliffs of their own.
    fn died_near(&self, size: u64) -> f64 {
        let alike = self.killers.iter().filter(|other| (below(size)..=size + size / 4).contains(&other.size));
        alike.map(|other| other.confidence).sum()
    }

    /// The limit that follows from all deaths at `least` so large. `floor`: see [`Cliffs::died`].
    fn bound(&self, least: u64, floor: u64, deaths: u64) -> Option<Bound> {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let most = deaths as f64 / 2.0;
        let bounds = self.killers.iter().filter(|killer| killer.size >= least).filter_map(|killer| {
            let near = below(killer.size);
            let died = self.died_near(killer.size);
            let share = died / (died + self.survived(killer.size));
            let guilty = if killer.size >= floor {
                share >= PART
            } else {
                died >= THREE && died > most && share >= MOST
            };
            guilty.then(|| Bound {
                limit: near.max(killer.survived),
                killer: killer.size,
                soft: killer.confidence < 0.5,
            })
        });
        bounds.min_by_key(|bound| (bound.limit, bound.soft))
    }

    fn survive(&mut self, size: u64) {
        if size == 0 {
            return;
        }
        let count = self.survived.entry(step(size)).or_default();
        *count = (*count + 1).min(MOST_SURVIVED);
        for killer in &mut self.killers {
            if size < killer.size {
                killer.survived = killer.survived.max(size);
            }
        }
    }

    fn die(&mut self, size: u64, at: u64) {
        if self.killers.len() == MOST_KILLERS {
            // The largest teaches least.
            let largest = self.killers.iter().enumerate().max_by_key(|(_, killer)| killer.size);
            if let Some((index, _)) = largest {
                self.killers.remove(index);
            }
        }
        self.killers.push(Killer { size, survived: 0, confidence: 1.0, at });
    }

    fn fade(&mut self, by: f64) {
        for killer in &mut self.killers {
            killer.confidence *= by;
        }
        self.killers.retain(|killer| killer.confidence >= FORGOTTEN);
    }
}

impl Cliffs {
    /// What is known in one dimension.
    #[must_use]
    pub fn axis(&self, dimension: Dimension) -> &Axis {
        &self.axes[dimension as usize]
    }

    fn axis_mut(&mut self, dimension: Dimension) -> &mut Axis {
        &mut self.axes[dimension as usize]
    }

    /// A request of this shape was answered to its end.
    pub fn survived(&mut self, shape: &Shape) {
        for dimension in Dimension::ALL {
            self.axis_mut(dimension).survive(shape.size(dimension));
        }
    }

    /// The backend died at `at` (seconds of the Unix epoch) with a suspect of this shape. Prompts below `floor` tokens are
    /// held guilty only if it happens again and again. Returns what was learned: nothing, if as much was survived often enough.
    ///
    /// Tokens are blamed first: that there were many requests, or pictures, counts only where no number of tokens does.
    pub fn died(&mut self, shape: &Shape, at: u64, floor: u64) -> Lesson {
        let before = self.region(floor, false);
        self.deaths += 1;
        let unheard = |cliffs: &Self, dimension: Dimension| {
            let size = shape.size(dimension);
            let axis = cliffs.axis(dimension);
            let died = axis.died_near(size) + 1.0;
            size > 0 && died / (died + axis.survived(size)) >= PART
        };
        let tokens: Vec<Dimension> = [Dimension::New, Dimension::Accumulated, Dimension::Resident]
            .into_iter()
            // One request alone is no crowd, and small ones alone are no load: engines are killed from outside, too.
            .filter(|dimension| {
                *dimension != Dimension::Resident || (shape.running > 1 && shape.largest >= floor)
            })
            .filter(|dimension| shape.size(*dimension) >= LEAST && unheard(self, *dimension))
            .collect();
        let large = tokens.iter().any(|dimension| shape.size(*dimension) >= floor);
        let others = [Dimension::Images, Dimension::Running].into_iter().find(|dimension| {
            let least = u64::from(*dimension == Dimension::Running) + 1;
            shape.size(*dimension) >= least && unheard(self, *dimension)
        });
        for dimension in tokens.into_iter().chain(others.filter(|_| !large)) {
            self.axis_mut(dimension).die(shape.size(dimension), at);
        }
        let after = self.region(floor, false);
        let lowered = Dimension::ALL.into_iter().filter_map(|dimension| {
            let (was, is) = (before.bound(dimension), after.bound(dimension)?);
            (was != Some(is)).then(|| (dimension, was.map(|bound| bound.limit), is.limit))
        });
        Lesson { lowered: lowered.collect() }
    }

    /// It was stopped and started on purpose: it may have been changed.
    pub fn restarted(&mut self) {
        self.axes.iter_mut().for_each(|axis| axis.fade(0.5));
    }

    /// It says its version. Another one than before may have other cliffs, and what the old one survived proves nothing.
    pub fn is_version(&mut self, version: &str) {
        if self.version.as_deref().is_some_and(|known| known != version) {
            for axis in &mut self.axes {
                axis.fade(0.4);
                axis.survived.clear();
            }
        }
        self.version = Some(version.to_owned());
    }

    /// The limits that follow. `floor`: as for [`Cliffs::died`]; of numbers of requests and pictures all are below it.
    #[must_use]
    pub fn region(&self, floor: u64, explores: bool) -> Region {
        let bounds = Dimension::ALL.map(|dimension| {
            let (least, floor) = match dimension {
                Dimension::New | Dimension::Accumulated | Dimension::Resident => (LEAST, floor),
                Dimension::Running | Dimension::Images => (0, u64::MAX),
            };
            self.axis(dimension).bound(least, floor, self.deaths)
        });
        Region { bounds, explores }
    }

    /// Forgets the deaths until `at` (seconds of the Unix epoch).
    pub fn forget(&mut self, at: u64) {
        if at > self.forgotten {
            (self.forgotten, self.deaths) = (at, 0);
        }
        for axis in &mut self.axes {
            axis.killers.retain(|killer| killer.at > self.forgotten);
        }
    }

    /// Takes what another map of the same backend knows: deaths that are not known here, and the greater number of
    /// survivals.
    pub fn merge(&mut self, other: &Self) {
        for (axis, theirs) in self.axes.iter_mut().zip(&other.axes) {
            for killer in &theirs.killers {
                match axis.killers.iter_mut().find(|own| (own.size, own.at) == (killer.size, killer.at)) {
                    Some(own) => own.survived = own.survived.max(killer.survived),
                    None => axis.killers.push(*killer),
                }
            }
            axis.killers.sort_by_key(|killer| killer.size);
            axis.killers.truncate(MOST_KILLERS);
            axis.killers.sort_by_key(|killer| killer.at);
            for (step, count) in &theirs.survived {
                let own = axis.survived.entry(*step).or_default();
                *own = (*own).max((*count).min(MOST_SURVIVED));
            }
        }
        self.version = self.version.take().or_else(|| other.version.clone());
        self.forget(other.forgotten);
        self.deaths = self.deaths.max(other.deaths);
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.axes.iter().all(|axis| axis.killers.is_empty() && axis.survived.is_empty())
    }
}
