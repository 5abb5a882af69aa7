//! Programs of the operator's that start and stop backends: `load = { start = […], stop = […], check = […] }`.
//!
//! `start` either ends with 0 when the start is under way, and what it leaves in the background is for `stop` to end; or is the
//! server itself and stays: then it belongs to the proxy with all that it has started, and ends with it, or by the next proxy
//! if this one is ended by force. It stays the proxy's until it has ended, whoever waits for that. Each is a fixed list of words from the configuration: never a shell, never a word of a request.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchback_policies::loading::{Index, Job, Presence};
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::driver::{AGAIN, Found, Told, Trouble};
use super::left;
use super::process::{GRACE, Kind, Process};
use super::program::cannot_start;
use crate::backend::Backend;
use crate::config::{Commands, Way};

/// How long `check` may take.
const CHECK: Duration = Duration::from_secs(10);

/// One that hangs is not run again so soon, since everything else waits for it meanwhile.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

/// Between the request to stop and the end by force, for what is no server and did not end in time.
const SHORT_GRACE: Duration = Duration::from_secs(1);

/// How long `stop` may take, and after it the backend to be gone.
const STOP: Duration = Duration::from_secs(60);

/// What was started, by the name of its backend; and whose turn it is. Shared by all configurations, since a reload ends nothing.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    running: Mutex<HashMap<String, Arc<Process>>>,
    /// Held while something is loaded.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// The proxy is about to end.
    stopping: watch::Sender<bool>,
    /// Variables of the environment that hold keys of clients.
    without: Vec<String>,
    /// Where they are remembered; `None`: nowhere.
    folder: Option<PathBuf>,
    /// Held while that is written.
    writing: Mutex<()>,
    /// What a former proxy has left is ended.
    left: OnceCell<()>,
}

impl Processes {
    /// Nothing was started yet. `keys`: the variable of the environment that holds the clients' keys. `folder`: where it is
    /// remembered what was started.
    pub(crate) fn new(keys: Option<&str>, folder: Option<PathBuf>) -> Self {
        Self { without: keys.map(str::to_owned).into_iter().collect(), folder, ..Self::default() }
    }

    /// Ends what a former proxy has left that was ended by force, once.
    pub(crate) async fn end_left(&self) {
        let Some(folder) = &self.folder else { return };
        self.left.get_or_init(|| left::end_left(folder)).await;
    }

    /// Writes down what there is now. Goes on if the future is dropped.
    async fn remember(self: &Arc<Self>) {
        let Some(folder) = self.folder.clone() else { return };
        let this = self.clone();
        let write = move || {
            let _one = this.writing.lock();
            left::remember(&folder, this.ids());
        };
        let _ = tokio::task::spawn_blocking(write).await;
    }

    fn ids(&self) -> BTreeMap<String, left::Id> {
        let running = self.running.lock();
        let here = running.iter().filter(|(_, process)| !process.is_gone());
        here.filter_map(|(name, process)| Some((name.clone(), process.id()?))).collect()
    }

    /// The proxy is about to end: nothing is started from now on, and what is being loaded is given up.
    pub(crate) fn no_more(&self) {
        self.stopping.send_replace(true);
    }

    /// Resolves when the proxy is about to end.
    pub(super) async fn until_no_more(&self) {
        let mut stopping = self.stopping.subscribe();
        if stopping.wait_for(|stopping| *stopping).await.is_err() {
            std::future::pending().await
        }
    }

    /// Ends all servers that belong to the proxy, together: by force after `grace`.
    pub(crate) async fn end(self: &Arc<Self>, grace: Duration) {
        self.no_more();
        // Whoever loads gives up at once, and has started nothing then that is not known here.
        let _ = tokio::time::timeout(grace, self.turn.lock()).await;
        let running: Vec<Arc<Process>> = self.running.lock().values().cloned().collect();
        let mut ending = JoinSet::new();
        for process in running {
            ending.spawn(async move { process.stop(grace.min(GRACE)).await });
        }
        // What even force does not end hangs in the kernel.
        let _ =
            tokio::time::timeout(grace + GRACE / 2, async { while ending.join_next().await.is_some() {} })
                .await;
        self.remember().await;
    }

    /// Whose servers belong to the proxy.
    pub(super) fn names(&self) -> Vec<String> {
        let running = self.running.lock();
        running.iter().filter(|(_, process)| !process.is_gone()).map(|(name, _)| name.clone()).collect()
    }

    /// Ends what was started for this backend and still runs: by force after `grace`. It stays the proxy's until it has ended,
    /// and ends also if the future is dropped.
    pub(super) async fn end_one(self: &Arc<Self>, name: &str, grace: Duration) {
        let process = self.running.lock().get(name).cloned();
        if let Some(process) = process.filter(|process| !process.is_gone()) {
            process.stop(grace).await;
            self.remember().await;
        }
    }

    /// Runs a program to its end: how that was, if it came in time.
    async fn run(&self, words: &[String], until: Instant) -> Result<Result<(), String>, String> {
        let process = match Process::start(words, &self.without, Kind::Errand) {
            Ok(process) => process,
            Err(error) => return Ok(Err(error)),
        };
        let Ok(ended) = tokio::time::timeout_at(until, process.end()).await else {
            process.ask_to_stop(SHORT_GRACE);
            return Err(format!("{} did not end in time; it wrote: {}", words.join(" "), process.tail()));
        };
        Ok(match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                Err(format!("{} ended with {status}; it wrote: {}", words.join(" "), process.tail()))
            }
            Err(error) => Err(error),
        })
    }

    /// Asks them to stop, and waits for none.
    pub(crate) fn let_go(&self) {
        self.running.lock().values().for_each(|process| process.ask_to_stop(GRACE));
    }
}

#[derive(Debug)]
pub(super) struct Command {
    backends: Vec<Arc<Backend>>,
    processes: Arc<Processes>,
    /// Checks that hung, and when.
    hung: Mutex<HashMap<Index, Instant>>,
}

impl Command {
    pub(super) fn new(backends: &[Arc<Backend>], processes: Arc<Processes>) -> Self {
        Self { backends: backends.to_vec(), processes, hung: Mutex::default() }
    }

    fn commands(&self, index: Index) -> Option<&Commands> {
        match &self.backends.get(index)?.config.load.as_ref()?.way {
            Way::Command(commands) => Some(commands),
            Way::Slug { .. } | Way::Model { .. } | Way::Swap { .. } => None,
        }
    }

    fn started(&self, index: Index) -> Option<Arc<Process>> {
        self.processes.running.lock().get(self.backends[index].name()).cloned()
    }

    /// Runs all checks together.
    pub(super) async fn look(&self) -> Found {
        let mut told = vec![Told::AsProbed; self.backends.len()];
        let mut checks = JoinSet::new();
        for (index, told) in told.iter_mut().enumerate() {
            let Some(check) = self.commands(index).and_then(|commands| commands.check.clone()) else {
                continue;
            };
            *told = Told::AsBefore;
            let hung = self.hung.lock().get(&index).is_some_and(|since| since.elapsed() < CHECK_AGAIN);
            if !hung {
                let processes = self.processes.clone();
                checks.spawn(async move { (index, processes.run(&check, Instant::now() + CHECK).await) });
            }
        }
        while let Some(done) = checks.join_next().await {
            let Ok((index, done)) = done else { continue };
            told[index] = match done {
                Ok(status) => {
                    self.hung.lock().remove(&index);
                    Told::Is(if status.is_ok() { Presence::There } else { Presence::Away })
                }
                Err(_) => {
                    self.hung.lock().insert(index, Instant::now());
                    Told::AsBefore
                }
            };
        }
        let hung = (0..told.len()).find(|index| told[*index] == Told::AsBefore);
        let trouble = hung.map(|index| {
            let name = self.backends[index].name();
            let said = format!(
                "the check command of {name} did not end within {} s: see load.check in its [[backend]]",
                CHECK.as_secs()
            );
            let detail = self.commands(index).and_then(|commands| commands.check.as_ref());
            Trouble::new(said, detail.map(|words| words.join(" ")).unwrap_or_default())
        });
        Found { told, trouble }
    }

    pub(super) async fn load(&self, job: &Job, until: Instant) -> Result<(), Trouble> {
        let start = self.commands(job.target).map(|commands| commands.start.as_slice()).unwrap_or_default();
        if let Some(why) = start.first().and_then(|program| cannot_start(program)) {
            let said = "its start command cannot be started: see load in its [[backend]]";
            return Err(Trouble::new(said, why).before());
        }
        for victim in &job.stop {
            self.can_stop(*victim).await?;
        }
        for victim in &job.stop {
            self.stop(*victim, until).await?;
        }
        // One that was there and hangs may still hold memory.
        self.end(job.target, until).await?;
        let name = self.backends[job.target].name().to_owned();
        let process = self.start(start)?;
        self.processes.running.lock().insert(name, Arc::new(process));
        self.processes.remember().await;
        Ok(())
    }

    fn start(&self, words: &[String]) -> Result<Process, Trouble> {
        let started = Process::start(words, &self.processes.without, Kind::Server);
        started.map_err(|error| {
            Trouble::new("its command cannot be started: see load in its [[backend]]", error)
        })
    }

    /// Resolves if what was started has ended otherwise than well.
    pub(super) async fn broke(&self, target: Index) -> Trouble {
        let Some(process) = self.started(target) else { return std::future::pending().await };
        let how = match process.end().await {
            Ok(status) if status.success() => return std::future::pending().await,
            Ok(status) => status.to_string(),
            Err(error) => error,
        };
        Trouble::new(format!("its start command ended with {how}"), process.tail())
    }

    /// Takes away what is left of a start that failed.
    pub(super) async fn clear(&self, target: Index) {
        if let Some(stop) = self.commands(target).and_then(|commands| commands.stop.as_deref())
            && let Err(detail) = self.ends_well(stop, Instant::now() + STOP).await
        {
            tracing::warn!(
                backend = self.backends[target].name(),
                detail,
                "what is left of it cannot be stopped"
            );
        }
        self.processes.end_one(self.backends[target].name(), GRACE).await;
    }

    /// Ends what was started for this backend and still runs. That costs a load no more than half of its time: who does not
    /// listen is ended by force then.
    async fn end(&self, target: Index, until: Instant) -> Result<(), Trouble> {
        let name = self.backends[target].name();
        let grace = GRACE.min(until.saturating_duration_since(Instant::now()) / 2);
        tokio::time::timeout_at(until, self.processes.end_one(name, grace)).await.map_err(|_| {
            let text = format!("{name} has to go for it and does not end, not even by force");
            Trouble::new(text.clone(), text)
        })
    }

    /// Whether there is a way to take it away: two that do not fit at a time are never there together.
    async fn can_stop(&self, victim: Index) -> Result<(), Trouble> {
        let backend = &self.backends[victim];
        let has_command = self.commands(victim).is_some_and(|commands| commands.stop.is_some());
        let own = self.started(victim).is_some_and(|process| !process.is_gone());
        if has_command || own || !backend.listens().await {
            return Ok(());
        }
        let said = format!(
            "{} is in its place and there is no way to stop that one: see load.stop in its [[backend]]",
            backend.name()
        );
        Err(Trouble::new(said, "the proxy has not started it, or it went into the background").before())
    }

    async fn stop(&self, victim: Index, until: Instant) -> Result<(), Trouble> {
        let until = until.min(Instant::now() + STOP);
        let backend = &self.backends[victim];
        let stop = self.commands(victim).and_then(|commands| commands.stop.as_deref());
        if let Some(stop) = stop {
            self.ends_well(stop, until).await.map_err(|detail| {
                Trouble::new(format!("{} could not be stopped for it", backend.name()), detail)
            })?;
        }
        self.end(victim, until).await?;
        let gone = async {
            while backend.listens().await {
                tokio::time::sleep(AGAIN / 4).await;
            }
        };
        tokio::time::timeout_at(until, gone).await.map_err(|_| {
            let text = format!("{} was stopped for it and is still there", backend.name());
            Trouble::new(text.clone(), text)
        })
    }

    /// Runs a program to its end, which must be a good one.
    async fn ends_well(&self, words: &[String], until: Instant) -> Result<(), String> {
        self.processes.run(words, until).await.and_then(|ended| ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(server: &str) -> (Arc<Processes>, Arc<Process>) {
        let processes = Arc::new(Processes::new(None, None));
        let words = ["sh", "-c", server].map(str::to_owned);
        let server = Arc::new(Process::start(&words, &[], Kind::Server).unwrap());
        processes.running.lock().insert("server".to_owned(), server.clone());
        (processes, server)
    }

    #[tokio::test]
    async fn who_is_about_to_load_when_the_proxy_ends_is_told_so() {
        let processes = Arc::new(Processes::new(None, None));
        processes.end(GRACE).await;
        processes.until_no_more().await;
    }

    #[tokio::test]
    async fn servers_that_belong_to_the_proxy_end_with_it() {
        let (processes, server) = with("sleep 1000 & wait");
        processes.end(GRACE).await;
        assert!(server.has_ended().is_some() && processes.names().is_empty());
    }

    #[tokio::test]
    async fn a_deaf_server_whose_stop_was_given_up_still_belongs_to_the_proxy_and_ends_with_it() {
        let (processes, server) = with("trap '' TERM; echo up; while :; do sleep 1; done");
        while server.tail().is_empty() {
            tokio::task::yield_now().await;
        }
        let given_up = tokio::time::timeout(Duration::ZERO, processes.end_one("server", GRACE)).await;
        assert!(given_up.is_err());
        assert_eq!(processes.names(), ["server"]);
        processes.end(Duration::ZERO).await;
        assert!(server.is_gone() && processes.names().is_empty());
    }
}
