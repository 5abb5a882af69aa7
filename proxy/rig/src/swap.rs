//! The swap API: one card, several backends, one of them up at a time.
//!
//! It answers like club-3090's `tools/model-switch` (commit e36f9f3, from source): `POST /switch` takes the running
//! backend down, starts the other one on its own port and answers when that is ready; a second one meanwhile gets 409.
//! A transition goes on when its client hangs up, as there. Not simulated: weights on disk, forced slugs, the watchdog
//! (a backend comes back by itself, if its spec says so). It must never have two backends up.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::DuplexStream,
    runtime::Handle,
    sync::{OwnedMutexGuard, mpsc},
    task::{AbortHandle, JoinSet},
};

use crate::{
    Clock, EventKind, Fleet, Member, Rig,
    process::listen,
    wire::{Answered, Broken, json as json_answer},
};

/// Simulated seconds until the running backend is gone.
const TEARDOWN: f64 = 3.0;
const LARGEST_BODY: usize = 1 << 20;
const PIPE: usize = 64 << 10;

/// A running swap server. Dropping it stops it and what it has started.
#[derive(Debug)]
pub struct Swap {
    addr: SocketAddr,
    card: Arc<Card>,
    dial: mpsc::Sender<DuplexStream>,
    server: AbortHandle,
}

/// The card, and who is on it.
#[derive(Debug)]
struct Card {
    members: Vec<Member>,
    clock: Clock,
    token: Option<String>,
    /// Held by a transition.
    transition: Arc<tokio::sync::Mutex<()>>,
    running: Mutex<Running>,
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Running {
    rig: Option<Rig>,
    since: f64,
    desired: Option<String>,
    task: Option<AbortHandle>,
}

impl Swap {
    /// Starts the server with nothing on the card. With a token, all but `/healthz` wants it as a bearer token.
    ///
    /// # Errors
    /// Why the address can't be bound, or that there is no tokio runtime.
    pub fn start(fleet: Fleet, addr: SocketAddr, clock: Clock, token: Option<String>) -> io::Result<Self> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let listener = listen(addr)?;
        let addr = listener.local_addr()?;
        let (dial, mut dialled) = mpsc::channel(16);
        let (transition, running) = (Arc::default(), Mutex::default());
        let card =
            Card { members: fleet.members, clock, token, transition, running, runtime: runtime.clone() };
        let card = Arc::new(card);
        let serving = Arc::clone(&card);
        let server = runtime.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    biased;
                    Ok((stream, _)) = listener.accept() => {
                        connections.spawn(converse(stream, Arc::clone(&serving)));
                    }
                    Some(stream) = dialled.recv() => {
                        connections.spawn(converse(stream, Arc::clone(&serving)));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { addr, card, dial, server: server.abort_handle() })
    }

    /// Its base URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The name of the backend that is on the card, ready or not.
    pub fn current(&self) -> Option<String> {
        self.card.running.lock().rig.as_ref().map(|rig| rig.spec().name.clone())
    }

    /// A connection in memory instead of a socket, for tests with paused time.
    ///
    /// # Errors
    /// `ConnectionRefused` if the server is gone.
    pub async fn connect(&self) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(PIPE);
        self.dial.send(far).await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(near)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        self.server.abort();
        let mut running = self.card.running.lock();
        if let Some(task) = running.task.take() {
            task.abort();
        }
        running.rig = None;
    }
}

async fn converse(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    card: Arc<Card>,
) {
    let service = service_fn(|request| answer(Arc::clone(&card), request));
    // how a connection ended is the client's business
    let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(card: Arc<Card>, request: Request<Incoming>) -> Answered {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|_| Broken)?.to_bytes();
    let (method, path) = (head.method.as_str(), head.uri.path());
    let known = head.headers.get(header::AUTHORIZATION).and_then(|given| given.to_str().ok());
    let allowed = |token: &String| known.and_then(|given| given.strip_prefix("Bearer ")) == Some(token);
    let open = (method, path) == ("GET", "/healthz");
    if !open && !card.token.as_ref().is_none_or(allowed) {
        return Ok(json_answer(StatusCode::UNAUTHORIZED, &json!({"error": "unauthorized"})));
    }
    Ok(match (method, path) {
        ("GET", "/healthz") => json_answer(StatusCode::OK, &json!({"ok": true})),
        ("GET", "/status") => json_answer(StatusCode::OK, &card.status()),
        ("GET", "/models") => json_answer(StatusCode::OK, &card.models()),
        ("POST", "/switch") => match card.target(&body) {
            Ok(target) => card.change(Some(target)).await?,
            Err(refusal) => json_answer(StatusCode::BAD_REQUEST, &refusal),
        },
        ("POST", "/down") => card.change(None).await?,
        _ => json_answer(StatusCode::NOT_FOUND, &json!({"error": "not found"})),
    })
}

impl Card {
    /// Which member a body names, by slug or by model.
    fn target(&self, body: &Bytes) -> Result<Member, Value> {
        let body: Value =
            serde_json::from_slice(body).map_err(|error| json!({"error": format!("bad body: {error}")}))?;
        if !body.is_object() {
            return Err(json!({"error": "request body must be a JSON object"}));
        }
        let slugs = || self.members.iter().map(|member| &member.spec.name).collect::<Vec<_>>();
        if let Some(slug) = body["slug"].as_str().filter(|slug| !slug.is_empty()) {
            let found = self.members.iter().find(|member| member.spec.name == slug);
            let error = || json!({"error": format!("unknown slug '{slug}'"), "available": slugs()});
            return found.cloned().ok_or_else(error);
        }
        let Some(model) = body["model"].as_str().filter(|model| !model.is_empty()) else {
            return Err(json!({"error": "provide 'slug' or 'model'"}));
        };
        let mut models: Vec<&str> = self.members.iter().map(|member| member.spec.model.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        let exact = models.iter().copied().filter(|known| *known == model);
        let begun = models.iter().copied().filter(|known| known.starts_with(model));
        let candidates: Vec<&str> = if models.contains(&model) { exact.collect() } else { begun.collect() };
        match candidates[..] {
            [one] => {
                let found = self.members.iter().find(|member| member.spec.model == one);
                found.cloned().ok_or_else(|| json!({"error": format!("unknown model '{model}'")}))
            }
            [] => Err(json!({"error": format!("unknown model '{model}'"), "available": models})),
            _ => Err(json!({"error": format!("ambiguous model '{model}'"), "candidates": candidates})),
        }
    }

    /// Brings this member up instead of what is there, or takes that down; answers when it is done.
    async fn change(self: &Arc<Self>, target: Option<Member>) -> Answered {
        let Ok(turn) = Arc::clone(&self.transition).try_lock_owned() else {
            let error = json!({"error": "a transition is already in progress"});
            return Ok(json_answer(StatusCode::CONFLICT, &error));
        };
        if let Some(target) = &target
            && self.is_ready(&target.spec.name)
        {
            let (slug, model) = (&target.spec.name, &target.spec.model);
            let answer =
                json!({"ok": true, "slug": slug, "model": model, "status": "already-running", "took_s": 0});
            return Ok(json_answer(StatusCode::OK, &answer));
        }
        let task = self.runtime.spawn(Arc::clone(self).carry_out(target, turn));
        self.running.lock().task = Some(task.abort_handle());
        let (status, answer) = task.await.map_err(|_| Broken)?;
        Ok(json_answer(status, &answer))
    }

    async fn carry_out(
        self: Arc<Self>,
        target: Option<Member>,
        turn: OwnedMutexGuard<()>,
    ) -> (StatusCode, Value) {
        let from = self.clock.now();
        let before = self.take_down().await;
        let outcome = match &target {
            None => (StatusCode::OK, json!({"ok": true, "status": "down"})),
            Some(member) => match self.bring_up(member).await {
                Ok(()) => {
                    let took = ((self.clock.now() - from) * 10.0).round() / 10.0;
                    let (slug, model) = (&member.spec.name, &member.spec.model);
                    (StatusCode::OK, json!({"ok": true, "slug": slug, "model": model, "took_s": took}))
                }
                Err(error) => self.roll_back(member, before, &error).await,
            },
        };
        drop(turn);
        outcome
    }

    /// Stops what runs; returns what it was.
    async fn take_down(&self) -> Option<Member> {
        let rig = {
            let mut running = self.running.lock();
            running.desired = None;
            running.rig.take()
        }?;
        let before = Member { spec: rig.spec().clone(), listen: rig.addr() };
        rig.shutdown().await;
        self.clock.sleep(TEARDOWN).await;
        Some(before)
    }

    async fn bring_up(&self, member: &Member) -> io::Result<()> {
        let mut spec = member.spec.clone();
        spec.cold = true;
        let rig = Rig::start(spec, member.listen, self.clock)?;
        let ready = rig.watch();
        {
            let mut running = self.running.lock();
            running.desired = Some(member.spec.name.clone());
            running.since = self.clock.now();
            running.rig = Some(rig);
        }
        ready.find(0, |event| event.kind == EventKind::Ready).await;
        Ok(())
    }

    async fn roll_back(
        &self,
        member: &Member,
        before: Option<Member>,
        error: &io::Error,
    ) -> (StatusCode, Value) {
        let mut answer = json!({"ok": false, "error": "switch failed", "attempted": member.spec.name,
            "slug": member.spec.name, "detail": error.to_string(), "rolled_back_to": null});
        if let Some(before) = before {
            match self.bring_up(&before).await {
                Ok(()) => answer["rolled_back_to"] = json!(before.spec.name),
                Err(error) => answer["rollback_failed"] = json!(error.to_string()),
            }
        }
        (StatusCode::INTERNAL_SERVER_ERROR, answer)
    }

    fn is_ready(&self, slug: &str) -> bool {
        let running = self.running.lock();
        running.rig.as_ref().is_some_and(|rig| rig.spec().name == slug && rig.is_ready())
    }

    fn status(&self) -> Value {
        let running = self.running.lock();
        let rig = running.rig.as_ref();
        let state = match rig {
            Some(rig) if rig.is_ready() => "healthy",
            Some(_) => "unready",
            None => "absent",
        };
        let deaths = |rig: &Rig| {
            rig.events().iter().filter(|event| matches!(event.kind, EventKind::Died { .. })).count()
        };
        json!({
            "current_slug": rig.map(|rig| &rig.spec().name), "current_model": rig.map(|rig| &rig.spec().model),
            "desired_slug": running.desired, "force_authorized": false, "docker_state": state,
            "healthy": state == "healthy", "port": rig.map(|rig| rig.addr().port()),
            "container": rig.map(|rig| rig.spec().name.replace('/', "-")), "restart_count": rig.map(deaths),
            "uptime_s": rig.map(|_| (self.clock.now() - running.since) as u64), "gpu_count": 1,
            "degraded": false, "watchdog": {"enabled": false, "thread_alive": false, "heals_in_window": 0},
        })
    }

    fn models(&self) -> Value {
        let row = |member: &Member| {
            json!({
                "slug": member.spec.name, "model": member.spec.model, "status": "production",
                "port": member.listen.port(), "topology": "single", "gpu_eligible": true, "requires_force": false,
                "recommended": true,
            })
        };
        json!({"host_topology": "single", "gpu_count": 1, "available": self.members.iter().map(row).collect::<Vec<_>>()})
    }
}
