//! From one candidate to the next: who is still to be tried, whether to wait for one that loads, and what to tell the
//! client when nobody is left.
//!
//! A backend that failed is not tried again for the request; one that is loading, or that died under others and is not back
//! yet, has not failed it, and is asked again until `loading` has passed. Must never hand out a backend whose limit is known to be too small.

use switchback_policies::debt;
use switchback_policies::decision::Choice;
use switchback_policies::facts::{BackendFacts, BackendState};
use switchback_policies::failover::{self, Fault, Verdict};
use switchback_policies::routing;
use tokio::time::{Duration, Instant};

use crate::app::App;
use crate::attempt::Failure;
use crate::call::Call;
use crate::error::ApiError;
use crate::pipeline::Plan;

/// How often a loading backend is asked again at the least.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// When clients may come back while nobody is up, seconds.
const RETRY_AFTER: u64 = 10;

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
    plan: &'a Plan,
    /// Per choice: whether it was tried and failed.
    spent: Vec<bool>,
    /// Choices that said that they are loading in this round, or that died lately and may come back.
    loading: Vec<usize>,
    attempts: usize,
    /// Only backends whose prompt limit is above this.
    above: u64,
    /// This prompt has killed an engine.
    killed: bool,
    failures: Vec<(usize, Failure)>,
    patience: Instant,
    debt: Debt,
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

impl<'a> Retry<'a> {
    pub(crate) fn new(app: &'a App, call: &'a Call, plan: &'a Plan) -> Self {
        Self {
            app,
            call,
            plan,
            spent: vec![false; plan.decision.choices.len()],
            loading: Vec::new(),
            attempts: 0,
            above: 0,
            killed: false,
            failures: Vec::new(),
            patience: call.accepted + app.config.failover.loading,
            debt: Debt::default(),
        }
    }

    fn limit(&self, backend: usize) -> Option<u64> {
        self.plan.backend_facts.get(backend).and_then(BackendFacts::prompt_limit)
    }

    /// Positions of the choices that may be tried next, the preferred one first; waits if those that are left are loading, or
    /// if too much has been read again lately. Beside the first stand only those that will do as well: a worse one is
    /// tried when better ones have failed.
    pub(crate) async fn next(&mut self) -> Option<Vec<usize>> {
        if self.attempts >= self.app.config.failover.attempts {
            return None;
        }
        let plan = self.plan;
        loop {
            let mut least: Option<Duration> = None;
            for (nth, choice) in plan.decision.choices.iter().enumerate() {
                if !self.is_open(nth) {
                    continue;
                }
                if !self.debt.was_read {
                    return Some(self.as_good_as(nth, choice));
                }
                let wait = self.in_debt(choice.candidate.backend)?;
                if wait.is_zero() {
                    // What it costs was entered for this one.
                    return Some(vec![nth]);
                }
                least = Some(least.map_or(wait, |least| least.min(wait)));
            }
            if let Some(wait) = least {
                let until = Instant::now() + wait;
                if until > self.patience {
                    self.debt.owes = Some(wait.as_secs() + 1);
                    return None;
                }
                tokio::time::sleep_until(until).await;
            } else if self.loading.is_empty() || Instant::now() >= self.patience {
                return None;
            } else {
                self.until_one_has_loaded().await;
                self.loading.clear();
            }
        }
    }

    /// The choice, and those after it that will do as well.
    fn as_good_as(&self, nth: usize, first: &Choice) -> Vec<usize> {
        let choices = self.plan.decision.choices.iter().enumerate().skip(nth + 1);
        let as_good = |choice: &Choice| choice.candidate.reason.as_good_as(first.candidate.reason);
        let others = choices.filter(|(other, choice)| as_good(choice) && self.is_open(*other));
        std::iter::once(nth).chain(others.map(|(other, _)| other)).collect()
    }

    /// Whether a choice may be tried: it has not failed, and nothing speaks against it.
    pub(crate) fn is_open(&self, nth: usize) -> bool {
        let Some(choice) = self.plan.decision.choices.get(nth) else { return false };
        let backend = choice.candidate.backend;
        !self.spent[nth]
            && !self.loading.contains(&nth)
            && self.limit(backend).is_none_or(|limit| limit > self.above)
            // What others died of meanwhile counts, too.
            && routing::refusal(&self.plan.facts, backend, &self.plan.backends[backend].facts()).is_none()
    }

    /// Enters one more reading by this backend. `None`: the request has cost too much; else how long it has to wait, and
    /// nothing is entered unless that is zero.
    fn in_debt(&mut self, backend: usize) -> Option<Duration> {
        let bounds = self.app.config.failover.prefill_again;
        let tokens = self.plan.facts.prompt.expected();
        if !debt::request_may(self.debt.again, tokens, bounds) {
            return None;
        }
        let now = self.app.now();
        // Both locks, so that two requests do not take the same room.
        let mut all = self.app.debt.lock();
        let mut own = self.plan.backends[backend].debt.lock();
        let wait = all.wait(now, tokens, bounds.minute).max(own.wait(now, tokens, bounds.backend));
        if wait.is_zero() {
            all.enter(now, tokens);
            own.enter(now, tokens);
            self.debt.again = self.debt.again.saturating_add(tokens);
            self.app.metrics.read_again(self.plan.backends[backend].name(), tokens);
        }
        Some(wait)
    }

    /// A choice's backend could not be loaded.
    pub(crate) fn cannot_load(&mut self, nth: usize) {
        self.spent[nth] = true;
    }

    /// The backend was unloaded under the request: that is no fault of either, but not without an end.
    pub(crate) fn was_taken_away(&mut self, failure: Failure, backend: usize) {
        self.attempts += 1;
        self.debt.was_read |= failover::was_read(failure.fault);
        self.failures.push((backend, failure));
    }

    async fn until_one_has_loaded(&self) {
        let choices = &self.plan.decision.choices;
        let waiting = self.loading.iter().map(|nth| {
            let backend = self.plan.backends[choices[*nth].candidate.backend].clone();
            Box::pin(async move { backend.until(BackendState::takes_requests).await })
        });
        let mut waiting: Vec<_> = waiting.collect();
        let any = std::future::poll_fn(|cx| {
            if waiting.iter_mut().any(|one| one.as_mut().poll(cx).is_ready()) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        });
        let again = Instant::now() + ASK_AGAIN;
        let _ = tokio::time::timeout_at(again.min(self.patience), any).await;
    }

    /// Takes the failure of an attempt at a backend.
    pub(crate) fn failed(&mut self, backend: usize, failure: Failure) -> Tried {
        let nth = self.plan.decision.choices.iter().position(|choice| choice.candidate.backend == backend);
        let prompt = self.plan.facts.prompt.expected();
        let guilty_above = self.app.config.failover.death_is_overflow_above;
        let guilty = failure.suspect && prompt > guilty_above;
        let verdict = match failure.fault {
            _ if failure.was_dead => Verdict::Away,
            fault => failover::verdict(fault, prompt, self.limit(backend), guilty),
        };
        self.debt.was_read |= verdict != Verdict::Away && failover::was_read(failure.fault);
        self.failures.push((backend, failure));
        match (verdict, nth) {
            (Verdict::Wait, Some(nth)) => {
                self.loading.push(nth);
                return Tried::GoOn;
            }
            (Verdict::Away, Some(nth)) => {
                let patience = self.app.config.failover.loading;
                if self.plan.backends[backend].may_come_back(patience) {
                    self.loading.push(nth);
                } else {
                    self.spent[nth] = true;
                }
                return Tried::GoOn;
            }
            (Verdict::Refuse, _) | (_, None) => return Tried::Final,
            (Verdict::NextAbove(above), Some(nth)) => {
                self.above = self.above.max(above);
                self.spent[nth] = true;
            }
            (Verdict::LastAbove(above), Some(nth)) => {
                self.above = self.above.max(above);
                self.spent[nth] = true;
                if std::mem::replace(&mut self.killed, true) {
                    return Tried::Final;
                }
            }
            (Verdict::Next, Some(nth)) => self.spent[nth] = true,
        }
        self.attempts += 1;
        Tried::GoOn
    }

    /// What to tell the client: the failure that tells most of what it can do.
    pub(crate) fn error(&self) -> ApiError {
        self.mistake()
            .or_else(|| self.overflow())
            .or_else(|| self.not_served())
            .or_else(|| self.model_unknown())
            .unwrap_or_else(|| self.unavailable())
    }

    fn mistake(&self) -> Option<ApiError> {
        let (_, failure) = self.failures.iter().find(|(_, failure)| failure.fault == Fault::ClientMistake)?;
        let error = failure.error.as_deref();
        let message = error.map_or("the backend refused the request", |error| error.message.as_str());
        Some(ApiError::refused_by_backend(message, error.and_then(|error| error.param.as_deref())))
    }

    fn overflow(&self) -> Option<ApiError> {
        let expected = self.plan.facts.prompt.expected();
        let guilty_above = self.app.config.failover.death_is_overflow_above;
        let overflows = self.failures.iter().filter_map(|(backend, failure)| match failure.fault {
            Fault::TooLong { prompt, limit } => {
                // One that tells no number found too long what we thought to fit: then our limit is wrong.
                let ours = self.limit(*backend).filter(|limit| *limit < expected);
                let limit = limit.or(ours).unwrap_or(expected.saturating_sub(1));
                Some((prompt.unwrap_or(expected).max(limit.saturating_add(1)), limit))
            }
            _ if failure.suspect => {
                failover::safe_after_death(expected, guilty_above).map(|safe| (expected, safe))
            }
            _ => None,
        });
        let (tokens, limit) = overflows.max_by_key(|(_, limit)| *limit)?;
        let backends = self
            .failures
            .iter()
            .map(|(backend, failure)| format!("{}: {}", self.plan.backends[*backend].name(), failure.fault));
        Some(ApiError::context_length_exceeded(tokens, limit, Some(backends.collect::<Vec<_>>().join("; "))))
    }

    fn not_served(&self) -> Option<ApiError> {
        let all = |wanted| {
            !self.failures.is_empty() && self.failures.iter().all(|(_, failure)| failure.fault == wanted)
        };
        if !all(Fault::NotServed) {
            return None;
        }
        // The path is there, and it is something in the request that no backend does: its own words tell what.
        let told = self.failures.iter().filter_map(|(_, failure)| failure.error.as_deref());
        let refused = told
            .into_iter()
            .find(|error| !error.message.is_empty() && !matches!(error.status, None | Some(404 | 405 | 501)));
        Some(match refused {
            Some(error) => ApiError::refused_by_backend(&error.message, error.param.as_deref()),
            None => ApiError::path_not_served(&self.call.endpoint.path),
        })
    }

    /// Nobody knows the model by the name that it was asked for by.
    fn model_unknown(&self) -> Option<ApiError> {
        let mut faults = self.failures.iter().map(|(_, failure)| failure.fault);
        let all = !self.failures.is_empty() && faults.all(|fault| fault == Fault::ModelUnknown);
        let model = self.call.model.as_deref().unwrap_or_default();
        all.then(|| ApiError::model_not_found(model, &crate::models::names(self.app), None))
    }

    /// Who was tried before, for the sentence that names the next: empty, or `; after …`.
    pub(crate) fn before(&self) -> String {
        let failed = self.failures.iter().map(|(backend, failure)| {
            format!("; after {}: {}", self.plan.backends[*backend].name(), failure.fault)
        });
        failed.collect()
    }

    fn unavailable(&self) -> ApiError {
        let failures = self.failures.iter();
        let mut tried: Vec<String> = Vec::new();
        for (backend, failure) in failures {
            let one = format!("{}: {}", self.plan.backends[*backend].name(), failure.fault);
            // Who loads or is away is asked again and again.
            if !tried.contains(&one) {
                tried.push(one);
            }
        }
        let message = format!("no backend answered ({})", tried.join("; "));
        let faults = || self.failures.iter().map(|(_, failure)| failure.fault);
        if faults().all(|fault| fault == Fault::Unauthorized) {
            return ApiError::backend_refuses_key(message);
        }
        // Who does not serve it will not, but another one might, once it is there: nothing was read so far.
        let is_away = |fault| matches!(fault, Fault::Unreachable | Fault::Loading | Fault::Overloaded);
        if faults().all(|fault| is_away(fault) || matches!(fault, Fault::NotServed | Fault::ModelUnknown))
            && faults().any(is_away)
        {
            let refused = self.plan.decision.refusals.iter();
            let why = refused
                .map(|(backend, refusal)| format!("{}: {refusal}", self.plan.backends[*backend].name()));
            let others: Vec<String> = why.collect();
            let message = if others.is_empty() {
                message
            } else {
                format!("{message}, not asked: {}", others.join("; "))
            };
            return ApiError::no_backend(message, "start one of them, or try again in a moment", RETRY_AFTER);
        }
        if let Some(seconds) = self.debt.owes {
            let limit = self.app.config.failover.prefill_again;
            let message = format!(
                "{message}; so many prompts were read again in the last minute that this one must wait (limit {} tokens a \
                 backend, {} in all)",
                limit.backend, limit.minute
            );
            return ApiError::no_backend(message, "see prefill_again in [failover]", seconds);
        }
        if faults().all(|fault| matches!(fault, Fault::NoFirstToken | Fault::Stalled)) {
            return ApiError::backend_timeout(message);
        }
        ApiError::backend_failed(message)
    }
}
