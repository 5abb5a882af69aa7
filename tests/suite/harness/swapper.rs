//! A scripted model-switch: one of the scripted backends listens at a time, and a switch takes its time.
//!
//! It answers as the real one does (club-3090, `tools/model-switch/server.py` at e36f9f3), goes on when its client hangs
//! up, and goes back by itself when a load fails, unless it is told not to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use switchback::Io;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use tokio::time::Instant;

use super::backend::{Backend, read_request};

#[derive(Debug)]
struct State {
    /// What runs, and whether it is ready.
    current: Option<(String, bool)>,
    /// A switch is under way.
    busy: bool,
    load: Duration,
    /// Loads of these that will fail.
    fails: HashMap<String, usize>,
    rolls_back: bool,
    listening: bool,
    /// What the next looks are told instead of the truth.
    told: Vec<&'static str>,
}

/// A scripted model-switch.
#[derive(Debug)]
pub(crate) struct Swapper {
    backends: HashMap<String, Arc<Backend>>,
    state: Mutex<State>,
    /// The switches that were asked for and taken, with their times since the start.
    switches: watch::Sender<Vec<(String, u64)>>,
    started: Instant,
}

impl Swapper {
    pub(super) fn new(backends: HashMap<String, Arc<Backend>>) -> Arc<Self> {
        for backend in backends.values() {
            backend.listens(false);
        }
        let state = State {
            current: None,
            busy: false,
            load: Duration::from_secs(100),
            fails: HashMap::new(),
            rolls_back: true,
            listening: true,
            told: Vec::new(),
        };
        Arc::new(Self {
            backends,
            state: Mutex::new(state),
            switches: watch::Sender::default(),
            started: Instant::now(),
        })
    }

    /// This one is there, as if somebody had loaded it by hand.
    pub(crate) fn has(&self, slug: &str) -> &Self {
        self.put(Some(slug));
        self
    }

    /// The next loads of this one fail.
    pub(crate) fn fails(&self, slug: &str, times: usize) -> &Self {
        self.state.lock().fails.insert(slug.to_owned(), times);
        self
    }

    /// After a load that failed it leaves the card empty.
    pub(crate) fn does_not_roll_back(&self) -> &Self {
        self.state.lock().rolls_back = false;
        self
    }

    /// Loads take so long from now on.
    pub(crate) fn takes(&self, load: Duration) -> &Self {
        self.state.lock().load = load;
        self
    }

    /// Refuses connections from now on, or accepts them again.
    pub(crate) fn listens(&self, listening: bool) -> &Self {
        self.state.lock().listening = listening;
        self
    }

    /// Its next looks find docker in these states, one after the other.
    pub(crate) fn tells(&self, states: &[&'static str]) -> &Self {
        self.state.lock().told = states.iter().rev().copied().collect();
        self
    }

    /// Somebody else has begun a switch to this one, which takes as long as any.
    pub(crate) fn is_switched_by_hand(self: &Arc<Self>, slug: &str) {
        let (swapper, slug) = (self.clone(), slug.to_owned());
        self.state.lock().busy = true;
        tokio::spawn(async move { swapper.carry_out(&slug).await });
    }

    /// The slugs that it was asked to switch to, in order.
    pub(crate) fn switches(&self) -> Vec<String> {
        self.switches.borrow().iter().map(|(slug, _)| slug.clone()).collect()
    }

    /// When the last switch was asked for, seconds since the start.
    pub(crate) fn last_switch(&self) -> u64 {
        self.switches.borrow().last().map_or(0, |(_, at)| *at)
    }

    /// Waits until so many switches were asked for.
    pub(crate) async fn until_switches(&self, count: usize) {
        self.switches.subscribe().wait_for(|switches| switches.len() >= count).await.expect("it lives");
    }

    fn put(&self, slug: Option<&str>) {
        for (name, backend) in &self.backends {
            backend.listens(slug == Some(name));
        }
        self.state.lock().current = slug.map(|slug| (slug.to_owned(), true));
    }

    pub(super) fn accept(self: &Arc<Self>) -> Option<Box<dyn Io>> {
        if !self.state.lock().listening {
            return None;
        }
        let (near, far) = tokio::io::duplex(64 << 10);
        let swapper = self.clone();
        tokio::spawn(async move { swapper.serve(far).await });
        Some(Box::new(near))
    }

    async fn serve(self: Arc<Self>, mut pipe: DuplexStream) {
        let Some(request) = read_request(&mut pipe).await else { return };
        let (status, body) = match request.path.as_str() {
            "/status" => (200, self.status()),
            "/switch" => self.switch(&request.json()).await,
            _ => (404, json!({"error": "not found"})),
        };
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let _ = pipe.write_all(answer.as_bytes()).await;
    }

    fn status(&self) -> Value {
        let mut state = self.state.lock();
        let told = state.told.pop();
        let docker = match (&state.current, told) {
            (_, Some(told)) => told,
            (Some((_, true)), None) => "healthy",
            (Some((_, false)), None) => "unready",
            (None, None) => "absent",
        };
        let seen = state.current.as_ref().filter(|_| docker == "healthy" || docker == "unready");
        let slug = seen.map(|(slug, _)| slug);
        json!({"current_slug": slug, "current_model": slug, "desired_slug": null, "docker_state": docker,
            "healthy": docker == "healthy", "degraded": false})
    }

    async fn switch(self: &Arc<Self>, body: &Value) -> (u16, Value) {
        let slug = body["slug"].as_str().unwrap_or_default().to_owned();
        if !self.backends.contains_key(&slug) {
            return (400, json!({"error": format!("unknown slug '{slug}'")}));
        }
        {
            let mut state = self.state.lock();
            if state.busy {
                return (409, json!({"error": "a transition is already in progress"}));
            }
            state.busy = true;
        }
        let at = self.started.elapsed().as_secs();
        self.switches.send_modify(|switches| switches.push((slug.clone(), at)));
        let swapper = self.clone();
        let task = tokio::spawn(async move { swapper.carry_out(&slug).await });
        task.await.expect("a switch ends")
    }

    async fn carry_out(&self, slug: &str) -> (u16, Value) {
        let before = self.state.lock().current.clone().map(|(slug, _)| slug);
        self.put(None);
        let load = {
            let mut state = self.state.lock();
            state.current = Some((slug.to_owned(), false));
            state.load
        };
        tokio::time::sleep(load).await;
        let fails = {
            let mut state = self.state.lock();
            state
                .fails
                .get_mut(slug)
                .is_some_and(|times| std::mem::replace(times, times.saturating_sub(1)) > 0)
        };
        let answer = if fails {
            let back = before.filter(|_| self.state.lock().rolls_back);
            self.put(back.as_deref());
            (
                500,
                json!({"ok": false, "error": "switch failed", "rolled_back_to": back, "detail": "CUDA out of memory"}),
            )
        } else {
            self.put(Some(slug));
            (200, json!({"ok": true, "slug": slug, "model": slug, "took_s": load.as_secs()}))
        };
        self.state.lock().busy = false;
        answer
    }
}
