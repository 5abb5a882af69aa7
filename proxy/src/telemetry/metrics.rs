//! Metrics in Prometheus' text format. Names follow its rules: a prefix, a unit, `_total` for counters.
//!
//! The registry is a value of the application, not a global. Labels are names of backends, outcomes and faults: a bounded
//! set, never something that a client sends.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use switchback_parsers::chunk::Usage;
use switchback_policies::failover::Fault;

use crate::backend::Fleet;
use crate::record::End;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    backend: String,
    outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FaultLabels {
    backend: String,
    fault: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabels {
    backend: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CountLabels {
    backend: String,
    agrees: String,
}

type Histograms = Family<BackendLabels, Histogram, fn() -> Histogram>;

/// All metrics of the proxy.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<OutcomeLabels, Counter>,
    faults: Family<FaultLabels, Counter>,
    in_flight: Gauge,
    duration: Histograms,
    first_content: Histograms,
    admission_wait: Histograms,
    queued: Gauge,
    prompt_tokens: Family<BackendLabels, Counter>,
    completion_tokens: Family<BackendLabels, Counter>,
    counts: Family<CountLabels, Counter>,
    drift: Family<BackendLabels, Counter>,
    again: Family<BackendLabels, Counter>,
    gone_on: Family<BackendLabels, Counter>,
    ahead: Family<BackendLabels, Counter>,
    correction: Family<BackendLabels, Gauge>,
    loads: Family<OutcomeLabels, Counter>,
    up: Family<BackendLabels, Gauge>,
    needs_restart: Family<BackendLabels, Gauge>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// 50 ms to nearly half an hour: from a short prompt to a prefill of a quarter of a million tokens.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.05, 2.0, 16))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            requests: Family::default(),
            faults: Family::default(),
            in_flight: Gauge::default(),
            duration: Family::new_with_constructor(seconds),
            first_content: Family::new_with_constructor(seconds),
            admission_wait: Family::new_with_constructor(seconds),
            queued: Gauge::default(),
            prompt_tokens: Family::default(),
            completion_tokens: Family::default(),
            counts: Family::default(),
            correction: Family::default(),
            drift: Family::default(),
            again: Family::default(),
            gone_on: Family::default(),
            ahead: Family::default(),
            loads: Family::default(),
            up: Family::default(),
            needs_restart: Family::default(),
        };
        let mut registry = Registry::with_prefix("switchback");
        registry.register(
            "requests",
            "Requests that ended, by backend and outcome",
            metrics.requests.clone(),
        );
        registry.register("backend_faults", "Failed attempts, by backend and fault", metrics.faults.clone());
        registry.register("loads", "Loads of backends that ended, by outcome", metrics.loads.clone());
        registry.register("requests_in_flight", "Requests that have not ended", metrics.in_flight.clone());
        registry.register(
            "request_duration_seconds",
            "From acceptance to the end of the answer",
            metrics.duration.clone(),
        );
        registry.register(
            "time_to_first_content_seconds",
            "From acceptance to the first content",
            metrics.first_content.clone(),
        );
        registry.register(
            "admission_wait_seconds",
            "Time that requests waited for a place at a backend",
            metrics.admission_wait.clone(),
        );
        registry.register(
            "requests_queued",
            "Requests that wait for a place at a backend",
            metrics.queued.clone(),
        );
        registry.register(
            "prompt_tokens",
            "Prompt tokens as the backends counted them",
            metrics.prompt_tokens.clone(),
        );
        registry.register(
            "completion_tokens",
            "Tokens of the answers as the backends counted them",
            metrics.completion_tokens.clone(),
        );
        registry.register(
            "exact_counts_checked",
            "Exact prompt counts compared with the count that the backend reported",
            metrics.counts.clone(),
        );
        registry.register(
            "count_correction_tokens",
            "By how much our latest exact count was corrected, as this backend's own counts taught; 0 where they agree",
            metrics.correction.clone(),
        );
        registry.register(
            "prefill_again_tokens",
            "Prompt tokens sent again after an attempt that may have read them",
            metrics.again.clone(),
        );
        registry.register(
            "prefill_ahead_tokens",
            "Prompt tokens read ahead for a conversation that is about to move",
            metrics.ahead.clone(),
        );
        registry.register(
            "answers_continued",
            "Answers that a backend went on with after another had failed in their midst, by who went on",
            metrics.gone_on.clone(),
        );
        registry.register(
            "prefix_drift_tokens",
            "Prompt tokens computed again because a client changed an early line of a conversation",
            metrics.drift.clone(),
        );
        registry.register(
            "backend_up",
            "1 if the backend is up or not yet probed, else 0",
            metrics.up.clone(),
        );
        registry.register(
            "backend_needs_restart",
            "1 if its answers are empty or garbage, and it gets no work until it has been restarted",
            metrics.needs_restart.clone(),
        );
        Self { registry: Mutex::new(registry), ..metrics }
    }

    pub(crate) fn began(&self) {
        self.in_flight.inc();
    }

    pub(crate) fn fault(&self, backend: &str, fault: Fault) {
        // Faults that carry numbers are counted under their kind.
        let fault = match fault {
            Fault::SilentTruncation { .. } => "prompt shortened".to_owned(),
            fault => fault.to_string(),
        };
        self.faults.get_or_create(&FaultLabels { backend: backend.to_owned(), fault }).inc();
    }

    pub(crate) fn ended(
        &self,
        end: End,
        backend: &str,
        took: Duration,
        first_content: Option<Duration>,
        usage: Option<Usage>,
    ) {
        self.in_flight.dec();
        let backend = backend.to_owned();
        self.requests
            .get_or_create(&OutcomeLabels { backend: backend.clone(), outcome: end.name().to_owned() })
            .inc();
        let labels = BackendLabels { backend };
        self.duration.get_or_create(&labels).observe(took.as_secs_f64());
        if let Some(time) = first_content {
            self.first_content.get_or_create(&labels).observe(time.as_secs_f64());
        }
        if let Some(usage) = usage {
            self.prompt_tokens.get_or_create(&labels).inc_by(usage.prompt_tokens.unwrap_or(0));
            self.completion_tokens.get_or_create(&labels).inc_by(usage.completion_tokens.unwrap_or(0));
        }
    }

    /// So many tokens were computed again because of an early change.
    pub(crate) fn drifted(&self, backend: &str, tokens: u64) {
        self.drift.get_or_create(&BackendLabels { backend: backend.to_owned() }).inc_by(tokens);
    }

    /// How long a request waited for its places.
    pub(crate) fn waited(&self, backend: &str, waited: Duration) {
        let labels = BackendLabels { backend: backend.to_owned() };
        self.admission_wait.get_or_create(&labels).observe(waited.as_secs_f64());
    }

    /// An exact count was compared with the backend's own.
    /// `correction`: the difference that stays, in tokens of that prompt.
    pub(crate) fn counted(&self, backend: &str, agrees: bool, correction: i64) {
        let labels = CountLabels { backend: backend.to_owned(), agrees: agrees.to_string() };
        self.counts.get_or_create(&labels).inc();
        self.correction.get_or_create(&BackendLabels { backend: backend.to_owned() }).set(correction);
    }

    /// A load of a backend has ended.
    pub(crate) fn loaded(&self, backend: &str, well: bool) {
        let outcome = if well { "loaded" } else { "failed" };
        let labels = OutcomeLabels { backend: backend.to_owned(), outcome: outcome.to_owned() };
        self.loads.get_or_create(&labels).inc();
    }

    /// A backend reads a prompt that another may have read.
    pub(crate) fn read_again(&self, backend: &str, tokens: u64) {
        self.again.get_or_create(&BackendLabels { backend: backend.to_owned() }).inc_by(tokens);
    }

    /// A backend has read so many tokens for a turn that is still to come.
    pub(crate) fn read_ahead(&self, backend: &str, tokens: u64) {
        self.ahead.get_or_create(&BackendLabels { backend: backend.to_owned() }).inc_by(tokens);
    }

    /// A backend goes on with an answer that another has begun.
    pub(crate) fn goes_on(&self, backend: &str) {
        self.gone_on.get_or_create(&BackendLabels { backend: backend.to_owned() }).inc();
    }

    /// The text that a scraper gets.
    pub(crate) fn text(&self, fleet: &Fleet, queued: usize) -> String {
        self.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        for backend in fleet.all() {
            let up = backend.state().takes_requests();
            let labels = BackendLabels { backend: backend.name().to_owned() };
            self.up.get_or_create(&labels).set(i64::from(up));
            let sick = backend.needs_restart().is_some() || backend.collapsed().is_some();
            self.needs_restart.get_or_create(&labels).set(i64::from(sick));
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry.lock());
        text
    }
}
