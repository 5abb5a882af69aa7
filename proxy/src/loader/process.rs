//! A program of the operator's in a process group of its own, so that whatever it has started ends with it.
//!
//! No shell, nothing of a request in its arguments, no input. Its output is read as long as it runs, and the last lines of
//! it are kept for the log. Dropping it asks the whole group to stop.

use std::collections::VecDeque;
use std::io::{BufRead as _, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Instant;

/// Bytes of output that are kept.
const TAIL: usize = 4 << 10;

/// Between the request to stop and the end by force, for a server.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// The same for what outlives the program itself. Short, since what nobody waits for may be there without being alive.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// How long the output of a program that has ended is read.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Why a program could not be started, as far as that shows before it is: it is not where it is looked for, may not be
/// executed, or is a script whose interpreter is not there.
pub(crate) fn cannot_start(program: &str) -> Option<String> {
    let found: Vec<PathBuf> = if program.contains('/') {
        vec![PathBuf::from(program)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    let Some(file) = found.iter().find(|file| file.is_file()) else {
        return Some(format!("there is no program {program}"));
    };
    let executable = |file: &&PathBuf| {
        std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let Some(file) = found.iter().find(executable) else {
        return Some(format!("{} is not executable: chmod +x", file.display()));
    };
    let interpreter = interpreter(file).filter(|interpreter| !interpreter.is_file())?;
    let (file, interpreter) = (file.display(), interpreter.display());
    Some(format!("{file} is a script for {interpreter}, which is not there"))
}

/// What runs a script; `None`: it is no script, or cannot be read.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let file = std::fs::File::open(file).ok()?;
    std::io::BufReader::new(file).take(256).read_until(b'\n', &mut line).ok()?;
    let line = std::str::from_utf8(line.strip_prefix(b"#!")?).ok()?;
    line.split_whitespace().next().map(PathBuf::from)
}

/// A running program.
#[derive(Debug)]
pub(super) struct Process {
    group: Option<Pid>,
    ended: watch::Receiver<Option<Result<ExitStatus, String>>>,
    output: Arc<Mutex<VecDeque<u8>>>,
}

impl Process {
    /// Starts a program: the first word, with the others as its arguments. `without`: variables of the environment that are
    /// no business of its.
    pub(super) fn start(words: &[String], without: &[String]) -> Result<Self, String> {
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
        let (sender, ended) = watch::channel(None);
        tokio::spawn(async move {
            let status = child.wait().await.map_err(|error| error.to_string());
            // Its last words are in the pipe still. Whoever it has left behind may hold that open for ever.
            let _ = tokio::time::timeout(LAST_WORDS, async { (one.await, other.await) }).await;
            sender.send_replace(Some(status));
        });
        Ok(Self { group, ended, output })
    }

    /// How it ended; `None`: it runs.
    pub(super) fn has_ended(&self) -> Option<Result<ExitStatus, String>> {
        self.ended.borrow().clone()
    }

    /// Waits for its end.
    pub(super) async fn end(&self) -> Result<ExitStatus, String> {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await;
        // Whoever waits for it goes only with the runtime.
        status
            .ok()
            .and_then(|status| status.clone())
            .unwrap_or_else(|| Err("it is not waited for any more".to_owned()))
    }

    /// Asks the whole group to stop.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// The same, and ends it by force if it has not ended within `grace`, also what the program has left behind.
    pub(super) async fn stop(&self, grace: Duration) {
        self.terminate();
        if tokio::time::timeout(grace, self.end()).await.is_err() {
            self.signal(Signal::KILL);
            let _ = self.end().await;
        }
        let Some(group) = self.group else { return };
        // As long as one of the group is left, its number is nobody else's.
        let left = || test_kill_process_group(group).is_ok();
        let until = Instant::now() + LEFT_BEHIND;
        while left() && Instant::now() < until {
            tokio::time::sleep(LEFT_BEHIND / 40).await;
        }
        if left() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// The last lines that it wrote.
    pub(super) fn tail(&self) -> String {
        let mut output = self.output.lock();
        let bytes = output.make_contiguous();
        let text: String = bytes.utf8_chunks().map(|chunk| chunk.valid()).collect();
        text.trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        // Once it has been waited for, its number may be another's.
        if let (Some(group), None) = (self.group, self.has_ended()) {
            // It may just have ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.terminate();
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_program_is_started_without_a_shell_and_its_last_words_are_kept() {
        let process = Process::start(&words(&["printf", "%s", "$HOME; `id`"]), &[]).unwrap();
        assert!(process.end().await.unwrap().success());
        assert_eq!(process.tail(), "$HOME; `id`");
    }

    #[tokio::test]
    async fn output_without_an_end_is_read_and_only_its_tail_is_kept() {
        let process = Process::start(&words(&["yes", "again"]), &[]).unwrap();
        while process.tail().len() < TAIL - 10 {
            tokio::task::yield_now().await;
        }
        process.stop(GRACE).await;
        assert!(process.tail().len() <= TAIL);
    }

    #[tokio::test]
    async fn stopping_ends_what_the_program_has_started_too() {
        let process = Process::start(&words(&["sh", "-c", "sleep 1000 & echo $!; wait"]), &[]).unwrap();
        let child = loop {
            match process.tail().parse::<i32>() {
                Ok(child) => break Pid::from_raw(child).unwrap(),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert!(rustix::process::test_kill_process(child).is_ok());
        process.stop(GRACE).await;
        // It is its parent's parent that has to take note of its end.
        while rustix::process::test_kill_process(child).is_ok() && !is_zombie(child) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_outlives_the_program_and_does_not_listen_is_ended_by_force() {
        let deaf = "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); while :; do sleep 1; done) & wait";
        let process = Process::start(&words(&["sh", "-c", deaf]), &[]).unwrap();
        let child = loop {
            match process.tail().parse::<i32>() {
                Ok(child) => break Pid::from_raw(child).unwrap(),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        process.stop(GRACE).await;
        while rustix::process::test_kill_process(child).is_ok() && !is_zombie(child) {
            tokio::task::yield_now().await;
        }
    }

    fn is_zombie(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_told_by_its_name() {
        let error = Process::start(&words(&["no-such-program-of-switchback"]), &[]).unwrap_err();
        assert!(error.starts_with("cannot start no-such-program-of-switchback: "), "{error}");
    }

    #[tokio::test]
    async fn keys_of_clients_are_not_in_its_environment() {
        let name = "CARGO_MANIFEST_DIR";
        assert!(std::env::var(name).is_ok());
        let process = Process::start(&words(&["printenv", name]), &[name.to_owned()]).unwrap();
        assert_eq!(process.end().await.unwrap().code(), Some(1));
    }

    #[test]
    fn what_could_not_be_started_is_told_before_anybody_is_stopped_for_it() {
        let folder = std::env::temp_dir().join(format!("switchback-programs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let said = |program: &str| cannot_start(program).unwrap_or_default();
        assert_eq!(
            said("no-such-program-of-switchback"),
            "there is no program no-such-program-of-switchback"
        );
        assert!(said("/").starts_with("there is no program /"));
        assert!(said(&write("plain", "#!/bin/sh\n", 0o644)).ends_with("plain is not executable: chmod +x"));
        assert!(
            said(&write("odd", "#! /no/such/shell -e\n", 0o755))
                .ends_with("a script for /no/such/shell, which is not there")
        );
        assert_eq!(said(&write("good", "#!/bin/sh\nexit 0\n", 0o755)), "");
        assert_eq!(said("sh"), "");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
