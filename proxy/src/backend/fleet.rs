//! All backends, in the order of the configuration, and whether any of them has come or gone.
//!
//! A reload makes a new fleet; whoever has the very same entry in it stays the one that it was, with all that is known of it. Must never
//! start anything: who is probed is the application's business.

use std::sync::Arc;
use std::task::Poll;

use super::Backend;
use super::client::Connect;
use crate::cliffs::CliffMaps;
use crate::config;

/// Resolves when one of these backends comes or goes: at the first such change after this call.
pub(crate) fn changes(backends: &[Arc<Backend>]) -> impl Future<Output = ()> + use<> {
    let waits = backends.iter().map(|backend| {
        let (backend, known) = (backend.clone(), (backend.state(), backend.starts()));
        Box::pin(
            async move { backend.health.until(|health| (health.state(), backend.starts()) != known).await },
        )
    });
    let mut waits: Vec<_> = waits.collect();
    std::future::poll_fn(move |cx| {
        if waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
}

/// All backends, in the order of the configuration.
#[derive(Debug)]
pub(crate) struct Fleet {
    backends: Vec<Arc<Backend>>,
}

impl Fleet {
    /// The configured backends. Those that `former` has under the very same configuration are taken over with all that is
    /// known of them.
    pub(crate) fn new(
        config: &config::Config,
        connector: &Arc<dyn Connect>,
        cliffs: &Arc<CliffMaps>,
        former: Option<&Self>,
    ) -> Self {
        let within = config.failover.connect;
        let backend = |backend: &config::Backend| {
            let known = former.and_then(|former| {
                former
                    .backends
                    .iter()
                    .find(|known| known.config == *backend && known.connect_within == within)
                    .filter(|known| Arc::ptr_eq(&known.cliffs, cliffs))
            });
            known.cloned().unwrap_or_else(|| {
                Arc::new(Backend::new(backend.clone(), connector.clone(), within, cliffs.clone()))
            })
        };
        Self { backends: config.backends.iter().map(backend).collect() }
    }

    pub(crate) fn all(&self) -> &[Arc<Backend>] {
        &self.backends
    }

    /// Those at the given positions, in that order.
    pub(crate) fn at(&self, positions: &[usize]) -> Vec<Arc<Backend>> {
        positions.iter().filter_map(|position| self.backends.get(*position).cloned()).collect()
    }
}
