//! From one candidate to the next: who is still to be tried, whether to wait for one that loads, and what to tell the
//! client when nobody is left.
//!
//! A backend that failed is not tried again for the request, unless it failed with its whole process and another one has taken
//! its place since. One that is loading, or that died under others and is not back yet, has not failed it, and is asked again
//! until `loading` has passed. Must never hand out a backend whose limit is known to be too small.

mod told;

use std::sync::Arc;

use switchback_policies::debt;
use switchback_policies::failover::{self, Verdict};
use switchback_policies::routing;
use tokio::time::{Duration, Instant};

use crate::app::App;
use crate::attempt::Failure;
use crate::backend::Backend;
use crate::call::Call;
use crate::identify::Client;
use crate::plan::Plan;

/// How often a loading backend is asked again at the least.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Whether more candidates may be tried after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    GoOn,
    Final,
}

/// The state of the loop over candidates.
pub(crate) struct Retry<'a> {
    app: &'a App,
    call: &'a Call,
    client: &'a Client,
    /// Per backend: whether it has failed the request.
    spent: Vec<Spent>,
    /// Backends that said that they are loading in this round, or that died lately and may come back.
    away: Vec<usize>,
    attempts: usize,
    /// Only backends whose prompt limit is above this.
    above: u64,
    /// This prompt has killed an engine.
    killed: bool,
    failures: Vec<(usize, Failure)>,
    /// How long one that is away is waited for: since the request came, or since it lost a backend.
    patience: Instant,
    debt: Debt,
}

/// The same between two configurations.
pub(crate) struct Memory {
    known: Vec<(Arc<Backend>, Spent)>,
    failures: Vec<(Arc<Backend>, Failure)>,
    attempts: usize,
    above: u64,
    killed: bool,
    patience: Instant,
    debt: Debt,
}

/// Whether a backend has failed the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spent {
    No,
    /// It has, in the life of this number: another process is another backend.
    InLife(u32),
    /// It has, and would again.
    ForGood,
}

/// What this request costs beyond its first reading.
#[derive(Debug, Default)]
struct Debt {
    /// A backend may have read the prompt.
    was_read: bool,
    /// Tokens that were read again.
    again: u64,
    /// Seconds that it would have to wait for its turn, if that is too long.
    owes: Option<u64>,
}

/// Who may be tried now.
enum Next {
    /// Positions of choices, the preferred one first.
    Choices(Vec<usize>),
    /// Too much has been read again lately.
    Owes(Duration),
    /// It has cost too much by itself.
    TooDear,
    Nobody,
}

impl<'a> Retry<'a> {
    pub(crate) fn new(app: &'a App, call: &'a Call, client: &'a Client, plan: &Plan) -> Self {
        Self {
            app,
            call,
            client,
            spent: vec![Spent::No; plan.backends.len()],
            away: Vec::new(),
            attempts: 0,
            above: 0,
            killed: false,
            failures: Vec::new(),
            patience: call.accepted + app.config.failover.loading,
            debt: Debt::default(),
        }
    }

    /// What is to be kept of it under another configuration.
    pub(crate) fn memory(self, plan: &Plan) -> Memory {
        let Self { attempts, above, killed, patience, debt, .. } = self;
        let known = plan.backends.iter().cloned().zip(self.spent).collect();
        let of = |(at, failure): (usize, Failure)| (plan.backends[at].clone(), failure);
        let failures = self.failures.into_iter().map(of).collect();
        Memory { known, failures, attempts, above, killed, patience, debt }
    }

    /// What happened before holds for those backends that are still what they were.
    pub(crate) fn remembers(self, memory: Memory, plan: &Plan) -> Self {
        let Memory { known, failures, attempts, above, killed, patience, debt } = memory;
        let at = |backend: &Arc<Backend>| plan.backends.iter().position(|now| Arc::ptr_eq(now, backend));
        let mut spent = self.spent;
        for (backend, was) in &known {
            if let Some(at) = at(backend) {
                spent[at] = *was;
            }
        }
        let failures =
            failures.into_iter().filter_map(|(backend, failure)| Some((at(&backend)?, failure))).collect();
        Self { spent, failures, attempts, above, killed, patience, debt, ..self }
    }

    /// Positions of the choices that may be tried next, the preferred one first; waits if those that are left are away, or if
    /// too much has been read again lately. Decides anew then, and after each failure: backends come and go.
    pub(crate) async fn next(&mut self, plan: &mut Plan) -> Option<Vec<usize>> {
        if self.attempts >= self.app.config.failover.attempts {
            return None;
        }
        if !self.failures.is_empty() {
            plan.renew(self.app, self.call, self.client);
        }
        loop {
            let changes = plan.changes();
            match self.choices(plan) {
                Next::Choices(choices) => return Some(choices),
                Next::TooDear => return None,
                Next::Owes(wait) => {
                    let until = Instant::now() + wait;
                    if until > self.patience {
                        self.debt.owes = Some(wait.as_secs() + 1);
                        return None;
                    }
                    // Who comes up meanwhile may owe nothing.
                    let _ = tokio::time::timeout_at(until, changes).await;
                }
                Next::Nobody if self.waits(plan) && Instant::now() < self.patience => {
                    let again = Instant::now() + ASK_AGAIN;
                    let _ = tokio::time::timeout_at(again.min(self.patience), changes).await;
                    self.away.clear();
                }
                Next::Nobody => return None,
            }
            plan.renew(self.app, self.call, self.client);
        }
    }

    /// Who may be tried now. Beside the first stand only those that will do as well: a worse one is tried when better ones
    /// have failed, and one that failed in another life when nobody else is there.
    pub(crate) fn choices_now(&self, plan: &Plan) -> Vec<usize> {
        match self.choices(plan) {
            Next::Choices(choices) => choices,
            Next::Owes(_) | Next::TooDear | Next::Nobody => Vec::new(),
        }
    }

    fn choices(&self, plan: &Plan) -> Next {
        let bounds = self.app.config.failover.prefill_again;
        let tokens = plan.facts.prompt.expected();
        if self.debt.was_read && !debt::request_may(self.debt.again, tokens, bounds) {
            return Next::TooDear;
        }
        let choices = &plan.decision.choices;
        let failed = |nth: &usize| self.spent[choices[*nth].candidate.backend] != Spent::No;
        let (back, fresh): (Vec<usize>, Vec<usize>) =
            (0..choices.len()).filter(|nth| self.is_open(*nth, plan)).partition(failed);
        let open = if fresh.is_empty() { back } else { fresh };
        let wait = |nth: usize| self.owes(&plan.backends[choices[nth].candidate.backend], tokens);
        let Some(first) = open.iter().copied().find(|nth| wait(*nth).is_zero()) else {
            return open.iter().map(|nth| wait(*nth)).min().map_or(Next::Nobody, Next::Owes);
        };
        let as_good = |nth: &usize| {
            let (other, first) = (&choices[*nth].candidate, &choices[first].candidate);
            other.reason.as_good_as(first.reason) && wait(*nth).is_zero()
        };
        let others = open.into_iter().filter(|nth| *nth > first).filter(as_good);
        Next::Choices(std::iter::once(first).chain(others).collect())
    }

    /// Whether a choice may be tried: it has not failed, and nothing speaks against it.
    pub(crate) fn is_open(&self, nth: usize, plan: &Plan) -> bool {
        let Some(choice) = plan.decision.choices.get(nth) else { return false };
        let at = choice.candidate.backend;
        let backend = &plan.backends[at];
        let failed = match self.spent[at] {
            Spent::No => false,
            // A doubtful word of it is not enough then: it must be there.
            Spent::InLife(life) => backend.starts() == life || !backend.state().takes_requests(),
            Spent::ForGood => true,
        };
        !failed
            && !self.away.contains(&at)
            && !backend.is_doubted()
            && plan.limit(at).is_none_or(|limit| limit > self.above)
            // What others died of meanwhile counts, too.
            && routing::refusal(&plan.facts, at, &backend.facts()).is_none()
    }

    /// Whether somebody who could be tried is away and may come back.
    fn waits(&self, plan: &Plan) -> bool {
        let patience = self.app.config.failover.loading;
        let candidates = plan.decision.choices.iter().map(|choice| choice.candidate.backend);
        candidates.into_iter().any(|at| {
            let large_enough = plan.limit(at).is_none_or(|limit| limit > self.above);
            let backend = &plan.backends[at];
            let back = matches!(self.spent[at], Spent::InLife(_)) && backend.may_come_back(patience);
            let proves_itself = self.spent[at] != Spent::ForGood && backend.is_doubted();
            large_enough && (self.away.contains(&at) || back || proves_itself)
        })
    }

    /// How long it has to wait before this backend reads it once more.
    fn owes(&self, backend: &Backend, tokens: u64) -> Duration {
        if !self.debt.was_read {
            return Duration::ZERO;
        }
        let (bounds, now) = (self.app.config.failover.prefill_again, self.app.now());
        let all = self.app.debt.lock().wait(now, tokens, bounds.minute);
        all.max(backend.debt.lock().wait(now, tokens, bounds.backend))
    }

    /// It has a place at this backend. Enters what it costs to read it once more; false: others were faster, and it has to
    /// wait.
    pub(crate) fn pays(&mut self, backend: &Backend, tokens: u64) -> bool {
        if !self.debt.was_read {
            return true;
        }
        let (bounds, now) = (self.app.config.failover.prefill_again, self.app.now());
        // Both locks, so that two requests do not take the same room.
        let mut all = self.app.debt.lock();
        let mut own = backend.debt.lock();
        let wait = all.wait(now, tokens, bounds.minute).max(own.wait(now, tokens, bounds.backend));
        if wait.is_zero() {
            all.enter(now, tokens);
            own.enter(now, tokens);
            self.debt.again = self.debt.again.saturating_add(tokens);
            self.app.metrics.read_again(backend.name(), tokens);
        }
        wait.is_zero()
    }

    /// A backend could not be loaded.
    pub(crate) fn cannot_load(&mut self, at: usize) {
        self.spent[at] = Spent::ForGood;
    }

    /// The backend was unloaded under the request: that is no fault of either, but not without an end.
    pub(crate) fn was_taken_away(&mut self, failure: Failure, at: usize) {
        self.attempts += 1;
        self.debt.was_read |= failover::was_read(failure.fault);
        self.failures.push((at, failure));
    }

    /// A part of the answer was shown: only these, which can go on with it, may be tried from now on.
    pub(crate) fn was_cut(&mut self, others: &[usize]) {
        self.debt.was_read = true;
        let barred = self.spent.iter_mut().enumerate().filter(|(at, _)| !others.contains(at));
        barred.for_each(|(_, spent)| *spent = Spent::ForGood);
    }

    /// Takes the failure of an attempt at a backend.
    pub(crate) fn failed(&mut self, at: usize, failure: Failure, plan: &Plan) -> Tried {
        let backend = &plan.backends[at];
        // Only what it surely has is held against it: a guess would name numbers that are none.
        let prompt = plan.facts.prompt.low();
        let guilty = failure.suspect && prompt > self.app.config.failover.death_is_overflow_above;
        let verdict = match failure.fault {
            _ if failure.was_dead => Verdict::Away,
            fault => failover::verdict(fault, prompt, plan.limit(at), guilty),
        };
        let patience = self.app.config.failover.loading;
        let fault = failure.fault;
        // It was not what the engine died of, and may go on as often as that happens to it.
        let innocent = failover::is_death(fault) && !failure.suspect;
        self.debt.was_read |= verdict != Verdict::Away && failover::was_read(fault);
        self.failures.push((at, failure));
        let spent = if failover::ends_with_the_process(fault) {
            Spent::InLife(backend.starts())
        } else {
            Spent::ForGood
        };
        match verdict {
            Verdict::Wait => {
                self.away.push(at);
                return Tried::GoOn;
            }
            Verdict::Away => {
                if backend.may_come_back(patience) {
                    self.away.push(at);
                } else {
                    self.spent[at] = spent;
                }
                return Tried::GoOn;
            }
            Verdict::Refuse => return Tried::Final,
            Verdict::NextAbove(above) => {
                self.above = self.above.max(above);
                self.spent[at] = Spent::ForGood;
            }
            Verdict::LastAbove(above) => {
                self.above = self.above.max(above);
                self.spent[at] = Spent::ForGood;
                if std::mem::replace(&mut self.killed, true) {
                    return Tried::Final;
                }
            }
            Verdict::Next => self.spent[at] = spent,
        }
        self.patience = Instant::now() + patience;
        self.attempts += usize::from(!innocent);
        Tried::GoOn
    }
}
