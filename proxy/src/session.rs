//! Which conversation a request belongs to, and what is remembered of it.
//!
//! The client's own name for it, where its profile knows one; else the system prompt and the first user message, which
//! stay the same over the turns of most agents. Never shared between keys, addresses or paths. Kept for ten minutes, for a bounded number of
//! sessions; the names are hashed with a key of this process, so that nobody can forge another one's.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use parking_lot::Mutex;
use switchback_parsers::json::{Kind, Value};
use switchback_policies::admission::Whose;
use switchback_policies::affinity::{Drift, Outline};
use switchback_policies::session::{Circle, LoopLimit, Session};

use crate::call::Call;
use crate::identify::Client;

/// What is remembered of one.
#[derive(Debug, Default)]
struct Remembered {
    course: Session,
    /// The backend that answered last.
    home: Option<String>,
    /// The prompt then.
    outline: Outline,
}

/// What is remembered of all sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    hasher: RandomState,
    known: Cache<u64, Arc<Mutex<Remembered>>>,
    limit: LoopLimit,
}

impl Sessions {
    pub(crate) fn new(limit: LoopLimit) -> Self {
        let idle = limit.within.max(Duration::from_secs(600));
        Self {
            hasher: RandomState::new(),
            known: Cache::builder().max_capacity(10_000).time_to_idle(idle).build(),
            limit,
        }
    }

    /// The same sessions under another limit.
    pub(crate) fn under(&self, limit: LoopLimit) -> Self {
        Self { hasher: self.hasher.clone(), known: self.known.clone(), limit }
    }

    /// The session's name for this process: nobody shares it with another key or address, nor one path with another. Whose
    /// body says nothing that stays the same over a conversation is alone with its very body.
    pub(crate) fn key(&self, call: &Call, client: &Client) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        (&client.whose, &client.user, &call.endpoint.path).hash(&mut hasher);
        if let Some(own) = &client.conversation {
            own.hash(&mut hasher);
            return hasher.finish();
        }
        let Some(request) = &call.request else {
            call.id.hash(&mut hasher);
            return hasher.finish();
        };
        let root = request.root();
        for member in ["system", "instructions"] {
            root.get(member).map_or("", |value| value.raw()).hash(&mut hasher);
        }
        let turns = ["messages", "input", "prompt"].into_iter().find_map(|member| root.get(member));
        match turns {
            Some(turns) if turns.kind() == Kind::Array => {
                for turn in turns.elements() {
                    turn.raw().hash(&mut hasher);
                    if turn.get("role").and_then(Value::as_str).as_deref() == Some("user") {
                        break;
                    }
                }
            }
            Some(text) => text.raw().hash(&mut hasher),
            None => request.body().hash(&mut hasher),
        }
        hasher.finish()
    }

    /// As whom a client shares places with others: by its key, else by its address, which it cannot make up; and with those
    /// behind that by its user, else by its conversation.
    pub(crate) fn whose(&self, client: &Client, session: u64) -> Whose {
        let part = match &client.user {
            Some(user) => self.hasher.hash_one((&client.name, user)),
            None => session,
        };
        Whose { client: self.hasher.hash_one(&client.whose), part }
    }

    /// Whom an allowance is for: what the operator allows a client, all behind its key or address have together.
    pub(crate) fn account(&self, client: &Client) -> u64 {
        self.hasher.hash_one((&client.name, &client.whose))
    }

    /// The kind of request that it is: of whom, with which tools.
    pub(crate) fn kind(&self, call: &Call, client: &Client) -> u64 {
        let tools = call.request.as_ref().and_then(|request| request.root().get("tools"));
        self.hasher.hash_one((&client.name, &client.whose, tools.map_or("", |tools| tools.raw())))
    }

    /// A request of the session arrives at `now`.
    pub(crate) fn arrive(&self, key: u64, now: Duration) -> Arrival {
        let Some(session) = self.known.get(&key) else { return Arrival::Usual };
        let mut session = session.lock();
        let course = &mut session.course;
        match course.circle(now, self.limit) {
            Some(circle) => Arrival::Loops(circle, self.limit),
            None if course.may_fill() => Arrival::MayFill,
            None => Arrival::Usual,
        }
    }

    /// It was refused as too long.
    pub(crate) fn overflowed(&self, key: u64, now: Duration) {
        self.known.get_with(key, Arc::default).lock().course.overflowed(now, self.limit);
    }

    /// It cost a prefill and got no whole answer.
    pub(crate) fn failed(&self, key: u64, now: Duration) {
        self.known.get_with(key, Arc::default).lock().course.failed(now, self.limit);
    }

    /// It was answered to its end.
    pub(crate) fn answered(&self, key: u64) {
        if let Some(session) = self.known.get(&key) {
            session.lock().course.answered();
        }
    }

    /// The backend that answered the session last.
    pub(crate) fn home(&self, key: u64) -> Option<String> {
        self.known.get(&key)?.lock().home.clone()
    }

    /// The session's prompt has been read by another backend, which is its home from now on.
    pub(crate) fn moves(&self, key: u64, backend: &str) {
        self.known.get_with(key, Arc::default).lock().home = Some(backend.to_owned());
    }

    /// A backend answers the session's prompt of this outline. Tells where it parts from the one before, if that spoiled a
    /// cache.
    pub(crate) fn settle(&self, key: u64, backend: &str, outline: &Outline) -> Option<Drift> {
        let session = self.known.get_with(key, Arc::default);
        let mut session = session.lock();
        session.home = Some(backend.to_owned());
        let before = std::mem::replace(&mut session.outline, outline.clone());
        outline.drift_from(&before)
    }
}

/// How a session's next request is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Usual,
    /// The one before it was refused as too long: this one may use the headroom.
    MayFill,
    /// The same went wrong again and again.
    Loops(Circle, LoopLimit),
}
