//! A request waits until its backend is there: in its own future, with keep-alives and its position.
//!
//! Dropping the future takes the wish back. It must never wait beyond `wait`, nor for a load that has failed.

use std::sync::Arc;
use std::time::Duration;

use switchback_policies::client::Class;
use switchback_policies::facts::{BackendState, Loaded};
use switchback_policies::loading::{Hold, Index, Presence, Standing, Ticket};
use tokio::time::Instant;

use super::driver::AGAIN;
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
    let (told, name) = (Arc::downgrade(inner), backend.name().to_owned());
    let waits = |ticket| {
        out.waits_for(Some(Box::new(move || {
            told.upgrade().and_then(|inner| inner.words(ticket, index, &name))
        })));
    };
    let waited = wait(inner, index, may_load(app, call, client), waits).await;
    out.waits_for(None);
    let wish = waited.map_err(|instead| refused(loader, backend, instead))?;
    if backend.probed() == BackendState::Unknown {
        // It was there before anybody looked: what it is has yet to be asked.
        probe::once(backend, app.config.probe.timeout).await;
    }
    drop(wish);
    Ok(begun.elapsed())
}

impl Loader {
    /// The same for nobody who waits: the next turn of a conversation will need it. False: it cannot be had.
    pub(crate) async fn ahead(&self, backend: &Arc<Backend>) -> bool {
        let Some(index) = self.inner.index(backend) else { return true };
        wait(&self.inner, index, true, |_| {}).await.is_ok()
    }
}

/// Why a wish ends without its backend.
enum Instead {
    Stands(Standing, Option<Hold>),
    /// The proxy is about to end.
    Stops,
}

/// Wishes for a backend, and waits until it takes requests. `waits` is told the wish once it is entered.
async fn wait(
    inner: &Arc<Inner>,
    index: Index,
    may_swap: bool,
    waits: impl FnOnce(Ticket),
) -> Result<Wish, Instead> {
    let mut changed = inner.changed.subscribe();
    // Nobody is refused, and nothing loaded, before it is known who is there.
    let _ = inner.looked.subscribe().wait_for(|looks| *looks > 0).await;
    let ticket = inner.ticket();
    let wish = inner.cards.lock().wish(ticket, index, may_swap, inner.now());
    wish.map_err(|standing| Instead::Stands(standing, None))?;
    let wish = Wish { inner: inner.clone(), ticket };
    inner.bell.notify_one();
    waits(ticket);
    loop {
        changed.mark_unchanged();
        let (standing, hold) = {
            let (cards, now) = (inner.cards.lock(), inner.now());
            (cards.standing(ticket, now), cards.hold(ticket, now))
        };
        match standing {
            Standing::Go => return Ok(wish),
            Standing::Waits { .. } => {}
            other => return Err(Instead::Stands(other, hold)),
        }
        tokio::select! {
            // Time alone ends the longest wait, too.
            _ = tokio::time::timeout(AGAIN, changed.changed()) => {}
            () = inner.processes.until_no_more() => return Err(Instead::Stops),
        }
    }
}

fn refused(loader: &Loader, backend: &Arc<Backend>, instead: Instead) -> NotThere {
    let (inner, name) = (&loader.inner, backend.name());
    let rules = inner.config.rules;
    let (standing, hold) = match instead {
        Instead::Stands(standing, hold) => (standing, hold),
        Instead::Stops => return NotThere::Refused(ApiError::not_loaded_any_more(name)),
    };
    match standing {
        Standing::TooLong { expected } => {
            NotThere::Refused(ApiError::load_takes_too_long(name, expected, rules.wait))
        }
        Standing::Expired { waited } => {
            let why = hold.map(|hold| inner.why(hold)).unwrap_or_default();
            NotThere::Refused(ApiError::waited_too_long_for_load(name, waited, &why))
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
        let now = self.now();
        let Standing::Waits { before, expected } = cards.standing(ticket, now) else { return None };
        let loading = cards.presence(index) == Presence::Coming;
        let hold = cards.hold(ticket, now).filter(|hold| !matches!(hold, Hold::Loads(_) | Hold::Next));
        drop(cards);
        let what = if loading { "is being loaded" } else { "has to be loaded" };
        let why = hold.map(|hold| format!(": {}", self.why(hold))).unwrap_or_default();
        Some(format!(
            "{name} {what}, position {}, about {:.0} s{why}",
            before + 1,
            expected.as_secs_f64().ceil()
        ))
    }

    /// What a wish waits for, in words for clients.
    fn why(&self, hold: Hold) -> String {
        let name = |index: Index| self.backends[index].name();
        match hold {
            Hold::Loads(since) => format!("it is being loaded, for {} s now", since.as_secs()),
            Hold::Other(other, since) => {
                format!("{} is being loaded first, for {} s now", name(other), since.as_secs())
            }
            Hold::Unreachable(since) => {
                let trouble = self.trouble.lock().as_ref().map(|trouble| trouble.said.clone());
                let trouble = trouble.unwrap_or_else(|| "who loads backends does not answer".to_owned());
                format!("{trouble}, for {} s now", since.as_secs())
            }
            Hold::Older(other) => format!("older requests wait for {}", name(other)),
            Hold::Stays(other, left) => {
                format!("{} keeps its place for {:.0} s", name(other), left.as_secs_f64().ceil())
            }
            Hold::Runs(other, own, others) => {
                format!("{} goes when the {} requests that run there have ended", name(other), own + others)
            }
            Hold::Next => "it is next".to_owned(),
        }
    }
}
