//! A request waits until its backend is there: in its own future, with keep-alives and its position.
//!
//! Dropping the future takes the wish back. It must never wait beyond `wait`, nor for a load that has failed.

use std::sync::Arc;
use std::time::Duration;

use switchback_policies::client::Class;
use switchback_policies::facts::{BackendState, Loaded};
use switchback_policies::loading::{Index, Presence, Standing, Ticket};
use tokio::time::Instant;

use super::{Inner, Loader};
use crate::answer::Out;
use crate::app::App;
use crate::backend::{Backend, probe};
use crate::call::Call;
use crate::error::ApiError;
use crate::identify::Client;
use crate::plan::Plan;

/// Why a backend is not there for a request.
#[derive(Debug)]
pub(crate) enum NotThere {
    /// It could not be loaded, or not for this request: another may do.
    Elsewhere,
    /// The request has to be refused.
    Refused(ApiError),
}

/// The backend that a plan would have loaded before anything else, if it would.
pub(crate) fn first_to_load(plan: &Plan) -> Option<&Arc<Backend>> {
    let first = plan.decision.choices.first()?.candidate.backend;
    matches!(plan.backend_facts[first].loaded, Loaded::After(_)).then(|| &plan.backends[first])
}

/// Whether a request may have another backend loaded in place of one that is there. Agents have their prompts counted again
/// and again: nothing is loaded for that.
pub(crate) fn may_load(app: &App, call: &Call, client: &Client) -> bool {
    let background = || app.loader.as_ref().is_some_and(|loader| loader.for_background());
    client.may_swap && !call.counts() && (client.class != Class::Background || background())
}

/// Waits until a backend is there and takes requests; at once if it is.
pub(crate) async fn until_there(
    app: &App,
    call: &Call,
    client: &Client,
    backend: &Arc<Backend>,
    out: &Out,
) -> Result<Duration, NotThere> {
    let begun = Instant::now();
    let Some(loader) = &app.loader else { return Ok(begun.elapsed()) };
    let inner = &loader.inner;
    let Some(index) = inner.index(backend).filter(|_| !loader.admits(backend)) else {
        return Ok(begun.elapsed());
    };
    let mut changed = inner.changed.subscribe();
    // Nobody is refused, and nothing loaded, before it is known who is there.
    let _ = inner.looked.subscribe().wait_for(|looks| *looks > 0).await;
    let ticket = inner.ticket();
    let wish = inner.cards.lock().wish(ticket, index, may_load(app, call, client), inner.now());
    if let Err(standing) = wish {
        return Err(refused(loader, backend, standing));
    }
    let wish = Wish { inner: inner.clone(), ticket };
    inner.bell.notify_one();
    let (told, name) = (Arc::downgrade(inner), backend.name().to_owned());
    out.waits_for(Some(Box::new(move || told.upgrade().and_then(|inner| inner.words(ticket, index, &name)))));
    let outcome = loop {
        changed.mark_unchanged();
        let standing = inner.cards.lock().standing(ticket, inner.now());
        match standing {
            Standing::Go => break Ok(()),
            Standing::Waits { .. } => {}
            other => break Err(refused(loader, backend, other)),
        }
        // Time alone ends the longest wait, too.
        let _ = tokio::time::timeout(super::AGAIN, changed.changed()).await;
    };
    out.waits_for(None);
    outcome?;
    if backend.probed() == BackendState::Unknown {
        // It was there before anybody looked: what it is has yet to be asked.
        probe::once(backend, app.config.probe.timeout).await;
    }
    drop(wish);
    Ok(begun.elapsed())
}

fn refused(loader: &Loader, backend: &Arc<Backend>, standing: Standing) -> NotThere {
    let rules = loader.inner.config.rules;
    match standing {
        Standing::TooLong { expected } => {
            NotThere::Refused(ApiError::load_takes_too_long(backend.name(), expected, rules.wait))
        }
        Standing::QueueFull => NotThere::Refused(ApiError::too_many_wait_for_loads(rules.queue)),
        Standing::Failed(_) | Standing::Denied | Standing::Go | Standing::Waits { .. } => NotThere::Elsewhere,
    }
}

/// A wish. Dropping it takes it back.
struct Wish {
    inner: Arc<Inner>,
    ticket: Ticket,
}

impl Drop for Wish {
    fn drop(&mut self) {
        self.inner.cards.lock().forget(self.ticket);
        self.inner.admission.left.notify_one();
    }
}

impl Inner {
    /// How a wish stands, for its client.
    fn words(&self, ticket: Ticket, index: Index, name: &str) -> Option<String> {
        let cards = self.cards.lock();
        let Standing::Waits { before, expected } = cards.standing(ticket, self.now()) else { return None };
        let loading = cards.presence(index) == Presence::Coming;
        let what = if loading { "is being loaded" } else { "has to be loaded" };
        Some(format!("{name} {what}, position {}, about {:.0} s", before + 1, expected.as_secs_f64().ceil()))
    }
}
