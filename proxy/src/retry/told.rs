//! What to tell a client when nobody is left to be tried, and what is told of those that were tried before.
//!
//! Of several failures the one that tells most of what the client can do: its own mistake, an overflow with its numbers, a path
//! that nobody serves; else who was asked, and when to come back. Must never name a number that is a guess as a limit.

use switchback_policies::failover::{self, Fault};

use super::Retry;
use crate::error::ApiError;
use crate::plan::Plan;

/// When clients may come back while nobody is up, seconds.
const RETRY_AFTER: u64 = 10;

impl Retry<'_> {
    /// What to tell the client: the failure that tells most of what it can do.
    pub(crate) fn error(&self, plan: &Plan) -> ApiError {
        self.mistake()
            .or_else(|| self.overflow(plan))
            .or_else(|| self.body_too_large())
            .or_else(|| self.not_served())
            .or_else(|| self.model_unknown())
            .unwrap_or_else(|| self.unavailable(plan))
    }

    fn mistake(&self) -> Option<ApiError> {
        let (_, failure) = self.failures.iter().find(|(_, failure)| failure.fault == Fault::ClientMistake)?;
        let error = failure.error.as_deref();
        let message = error.map_or("the backend refused the request", |error| error.message.as_str());
        Some(ApiError::refused_by_backend(message, error.and_then(|error| error.param.as_deref())))
    }

    fn overflow(&self, plan: &Plan) -> Option<ApiError> {
        let expected = plan.facts.prompt.expected();
        let guilty_above = self.app.config.failover.death_is_overflow_above;
        let overflows = self.failures.iter().filter_map(|(backend, failure)| match failure.fault {
            Fault::TooLong { prompt, limit } => {
                // One that tells no number found too long what we thought to fit: then our limit is wrong.
                let ours = plan.limit(*backend).filter(|limit| *limit < expected);
                let limit = limit.or(ours).unwrap_or(expected.saturating_sub(1));
                Some((prompt.unwrap_or(expected).max(limit.saturating_add(1)), limit))
            }
            _ if failure.suspect => {
                let least = plan.facts.prompt.low();
                failover::safe_after_death(least, guilty_above).map(|safe| (least, safe))
            }
            _ => None,
        });
        let (tokens, limit) = overflows.max_by_key(|(_, limit)| *limit)?;
        let backends = self
            .failures
            .iter()
            .map(|(backend, failure)| format!("{}: {}", plan.backends[*backend].name(), failure.fault));
        Some(ApiError::context_length_exceeded(tokens, limit, Some(backends.collect::<Vec<_>>().join("; "))))
    }

    /// Nobody takes so many bytes: what makes them fewer makes the prompt shorter, too.
    fn body_too_large(&self) -> Option<ApiError> {
        let all = self.failures.iter().all(|(_, failure)| failure.fault == Fault::BodyTooLarge);
        (all && !self.failures.is_empty()).then(|| ApiError::body_refused(self.call.body.len()))
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
    pub(crate) fn before(&self, plan: &Plan) -> String {
        let failed = self.failures.iter().map(|(backend, failure)| {
            format!("; after {}: {}", plan.backends[*backend].name(), failure.fault)
        });
        failed.collect()
    }

    fn unavailable(&self, plan: &Plan) -> ApiError {
        let failures = self.failures.iter();
        let mut tried: Vec<String> = Vec::new();
        for (backend, failure) in failures {
            let one = format!("{}: {}", plan.backends[*backend].name(), failure.fault);
            // Who loads or is away is asked again and again.
            if !tried.contains(&one) {
                tried.push(one);
            }
        }
        let not_asked = plan.decision.choices.iter().map(|choice| &plan.backends[choice.candidate.backend]);
        for backend in not_asked.filter(|backend| backend.is_doubted()) {
            tried.push(format!("{}: it has not produced a token since it fell silent", backend.name()));
        }
        let message = format!("no backend answered ({})", tried.join("; "));
        let faults = || self.failures.iter().map(|(_, failure)| failure.fault);
        // Somebody was asked, and all said the same.
        if !self.failures.is_empty() && faults().all(|fault| fault == Fault::Unauthorized) {
            return ApiError::backend_refuses_key(message);
        }
        // Who does not serve it will not, but another one might, once it is there: nothing was read so far.
        let is_away = |fault| matches!(fault, Fault::Unreachable | Fault::Loading | Fault::Overloaded);
        if faults().all(|fault| is_away(fault) || matches!(fault, Fault::NotServed | Fault::ModelUnknown))
            && (self.failures.is_empty() || faults().any(is_away))
        {
            let refused = plan.decision.refusals.iter();
            let why =
                refused.map(|(backend, refusal)| format!("{}: {refusal}", plan.backends[*backend].name()));
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
