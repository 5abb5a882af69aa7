//! A program of the operator's in a process group of its own, so that whatever it has started ends with it.
//!
//! No shell, nothing of a request in its arguments, no input. Its output is read as long as it runs, and the last lines of
//! it are kept for the log. A task of its own keeps it to the end: once it was asked to stop it does, by force if it must,
//! whatever becomes of whoever asked. Dropping it asks. A group's number is forgotten as soon as nobody of it is left, or what
//! is left is no business of the proxy's: it may be another's from then on, and must never be signalled.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::Instant;

use super::left::{Id, lives};

/// Bytes of output that are kept.
const TAIL: usize = 4 << 10;

/// Between the request to stop and the end by force, for a server.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// The same at the least for what outlives a server itself; and how long what was ended by force may take to be gone.
const LEFT_BEHIND: Duration = Duration::from_secs(3);

/// Between two looks at what is left.
const AGAIN: Duration = Duration::from_millis(50);

/// How long the output of a program that has ended is read.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It may stay, and belongs to the proxy with all that it has started, until it ends with 0: then it was no server, and
    /// what it has left in the background belongs to nobody here.
    Server,
    /// It says or does something. What it leaves behind of itself belongs to nobody here.
    Errand,
}

/// How a program stands.
#[derive(Debug)]
struct State {
    /// How it ended.
    ended: Option<Result<ExitStatus, String>>,
    /// Its group, as long as that is the proxy's to end.
    group: Option<Pid>,
}

/// A program that was started.
#[derive(Debug)]
pub(super) struct Process {
    id: Option<Id>,
    state: Arc<watch::Sender<State>>,
    /// By when it has to be gone, once it was asked to.
    stop: watch::Sender<Option<Instant>>,
    output: Arc<Mutex<VecDeque<u8>>>,
}

impl Process {
    /// Starts a program: the first word, with the others as its arguments. `without`: variables of the environment that are
    /// no business of its. Needs a tokio runtime.
    pub(super) fn start(words: &[String], without: &[String], kind: Kind) -> Result<Self, String> {
        let Some((program, arguments)) = words.split_first() else { return Err("no program".to_owned()) };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in without {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let output = Arc::default();
        let one = tokio::spawn(keep_tail(child.stdout.take(), Arc::clone(&output)));
        let other = tokio::spawn(keep_tail(child.stderr.take(), Arc::clone(&output)));
        let last_words = async move {
            // Whoever it has left behind may hold the pipe open for ever.
            let _ = tokio::time::timeout(LAST_WORDS, async { (one.await, other.await) }).await;
        };
        let state = Arc::new(watch::Sender::new(State { ended: None, group }));
        let (stop, asked) = watch::channel(None);
        tokio::spawn(keep(child, kind, last_words, state.clone(), asked));
        Ok(Self { id: group.and_then(Id::of), state, stop, output })
    }

    /// Which one it is, for whoever looks for it when this proxy is no more.
    pub(super) fn id(&self) -> Option<Id> {
        self.id
    }

    /// How it ended; `None`: it runs.
    #[cfg(test)]
    pub(super) fn has_ended(&self) -> Option<Result<ExitStatus, String>> {
        self.state.borrow().ended.clone()
    }

    /// Whether nothing of it is left that belongs to the proxy.
    pub(super) fn is_gone(&self) -> bool {
        self.state.borrow().group.is_none()
    }

    /// Waits for its end.
    pub(super) async fn end(&self) -> Result<ExitStatus, String> {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| state.ended.is_some()).await;
        ended
            .ok()
            .and_then(|state| state.ended.clone())
            .unwrap_or_else(|| Err("it is not waited for any more".to_owned()))
    }

    /// Asks the whole group to stop; by force if it has not ended within `grace`. Who asked need not wait.
    pub(super) fn ask_to_stop(&self, grace: Duration) {
        let until = Instant::now() + grace;
        self.stop.send_if_modified(|stop| {
            // Many take a second request for impatience, and let go of what they hold.
            if stop.is_none() {
                signal(&self.state, Signal::TERM);
            }
            let earlier = stop.is_none_or(|before| until < before);
            if earlier {
                *stop = Some(until);
            }
            earlier
        });
    }

    /// The same, and waits until nothing of it is left. Dropping the future stops the waiting, not the end.
    pub(super) async fn stop(&self, grace: Duration) {
        self.ask_to_stop(grace);
        // Its end is told a moment after its group is gone: its last words are read in between.
        let is_over = |state: &State| state.group.is_none() && state.ended.is_some();
        let _ = self.state.subscribe().wait_for(is_over).await;
    }

    /// The last lines that it wrote.
    pub(super) fn tail(&self) -> String {
        let mut output = self.output.lock();
        let bytes = output.make_contiguous();
        let text: String = bytes.utf8_chunks().map(|chunk| chunk.valid()).collect();
        text.trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ask_to_stop(GRACE);
    }
}

/// Signals a group, if there is one still that belongs to the proxy.
fn signal(state: &watch::Sender<State>, signal: Signal) {
    // Borrowed meanwhile, so that it is not forgotten in between.
    if let Some(group) = state.borrow().group {
        // It may just have ended.
        let _ = kill_process_group(group, signal);
    }
}

/// Keeps a program to its end and, if it was a server, what it leaves behind.
async fn keep(
    mut child: Child,
    kind: Kind,
    last_words: impl Future<Output = ()>,
    state: Arc<watch::Sender<State>>,
    mut asked: watch::Receiver<Option<Instant>>,
) {
    let status = tokio::select! {
        status = child.wait() => status,
        () = until_late(&mut asked) => {
            signal(&state, Signal::KILL);
            child.wait().await
        }
    };
    let well = status.as_ref().is_ok_and(ExitStatus::success);
    let is_asked = asked.borrow().is_some();
    let ours = is_asked || (kind == Kind::Server && !well);
    // As long as one of the group is left, its number is nobody else's: it is looked at now, and forgotten then.
    let is_left = |ours: bool| {
        state.send_if_modified(|state| {
            let left = state.group.filter(|group| ours && lives(*group));
            std::mem::replace(&mut state.group, left) != left
        });
        state.borrow().group.is_some()
    };
    is_left(ours);
    last_words.await;
    state.send_modify(|state| state.ended = Some(status.map_err(|error| error.to_string())));
    if !is_asked && is_left(ours) {
        signal(&state, Signal::TERM);
    }
    let least = Instant::now() + LEFT_BEHIND;
    while is_left(ours) && Instant::now() < asked.borrow().map_or(least, |until| until.max(least)) {
        tokio::time::sleep(AGAIN).await;
    }
    signal(&state, Signal::KILL);
    let last = Instant::now() + LEFT_BEHIND;
    while is_left(ours) && Instant::now() < last {
        tokio::time::sleep(AGAIN).await;
    }
    is_left(false);
}

/// Resolves when the time has passed by which it had to be gone.
async fn until_late(asked: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let until = *asked.borrow_and_update();
        let late = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(late);
        tokio::select! {
            () = &mut late => return,
            changed = asked.changed() => if changed.is_err() {
                // Nobody is left who could want it sooner.
                return late.await;
            },
        }
    }
}

async fn keep_tail(from: Option<impl AsyncRead + Unpin>, to: Arc<Mutex<VecDeque<u8>>>) {
    let Some(mut from) = from else { return };
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        let mut tail = to.lock();
        tail.extend(&piece[..read]);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_program_is_started_without_a_shell_and_its_last_words_are_kept() {
        let process = Process::start(&words(&["printf", "%s", "$HOME; `id`"]), &[], Kind::Server).unwrap();
        assert!(process.end().await.unwrap().success());
        assert_eq!(process.tail(), "$HOME; `id`");
    }

    #[tokio::test]
    async fn output_without_an_end_is_read_and_only_its_tail_is_kept() {
        let process = Process::start(&words(&["yes", "again"]), &[], Kind::Server).unwrap();
        while process.tail().len() < TAIL - 10 {
            tokio::task::yield_now().await;
        }
        process.stop(GRACE).await;
        assert!(process.tail().len() <= TAIL);
    }

    /// A script, and the number of the process that it says.
    async fn script(text: &str, kind: Kind) -> (Process, Id) {
        let process = Process::start(&words(&["sh", "-c", text]), &[], kind).unwrap();
        loop {
            match process.tail().split('\n').next().unwrap_or_default().parse() {
                Ok(child) => break (process, Id::of(Pid::from_raw(child).unwrap()).unwrap()),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    async fn until(what: impl Fn() -> bool) {
        while !what() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn stopping_ends_what_the_program_has_started_too() {
        let (process, child) = script("sleep 1000 & echo $!; wait", Kind::Server).await;
        assert!(child.is_alive());
        process.stop(GRACE).await;
        assert!(!child.is_alive() && process.is_gone());
    }

    #[tokio::test]
    async fn what_outlives_the_program_and_does_not_listen_is_ended_by_force() {
        let deaf = "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); while :; do sleep 1; done) & wait";
        let (process, child) = script(deaf, Kind::Server).await;
        process.stop(Duration::ZERO).await;
        assert!(!child.is_alive() && process.is_gone());
    }

    #[tokio::test]
    async fn who_stops_waiting_for_a_deaf_one_does_not_keep_it_alive() {
        let (process, id) = script("trap '' TERM; echo $$; while :; do sleep 1; done", Kind::Server).await;
        let given_up = tokio::time::timeout(Duration::ZERO, process.stop(Duration::from_millis(50))).await;
        assert!(given_up.is_err() && !process.is_gone());
        until(|| !id.is_alive()).await;
    }

    #[tokio::test]
    async fn what_a_start_that_ended_well_leaves_behind_belongs_to_nobody_here() {
        let (process, child) = script("sleep 1000 >/dev/null & echo $!; exit 0", Kind::Server).await;
        assert!(process.end().await.unwrap().success());
        assert!(process.is_gone());
        process.stop(Duration::ZERO).await;
        assert!(child.is_alive());
        rustix::process::kill_process(Pid::from_raw(child.pid()).unwrap(), Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn what_a_server_leaves_behind_that_broke_is_asked_to_stop_and_has_time_to() {
        let folder = std::env::temp_dir().join(format!("switchback-left-behind-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (ready, note) = (folder.join("ready"), folder.join("note"));
        let child = format!(
            "(trap 'echo asked > {}; exit' TERM; echo > {}; while :; do sleep 0.1; done) & echo $!; \
             until [ -e {1} ]; do sleep 0.05; done; kill -9 $$",
            note.display(),
            ready.display()
        );
        let (process, child) = script(&child, Kind::Server).await;
        assert!(!process.end().await.unwrap().success());
        until(|| process.is_gone()).await;
        assert!(!child.is_alive());
        assert_eq!(std::fs::read_to_string(&note).unwrap(), "asked\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_told_by_its_name() {
        let error =
            Process::start(&words(&["no-such-program-of-switchback"]), &[], Kind::Server).unwrap_err();
        assert!(error.starts_with("cannot start no-such-program-of-switchback: "), "{error}");
    }

    #[tokio::test]
    async fn keys_of_clients_are_not_in_its_environment() {
        let name = "CARGO_MANIFEST_DIR";
        assert!(std::env::var(name).is_ok());
        let process = Process::start(&words(&["printenv", name]), &[name.to_owned()], Kind::Errand).unwrap();
        assert_eq!(process.end().await.unwrap().code(), Some(1));
    }
}
