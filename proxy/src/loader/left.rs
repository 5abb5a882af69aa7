//! What a proxy has started, on disk: one that is ended by force leaves its servers on their cards, and the next one ends them.
//!
//! A file of its own for each proxy that has servers (`started-PID.json` beside the cliff maps), since several may share a
//! folder. A server is known by its number and the time at which it started, in one boot of the machine: numbers are used
//! again, and whoever has another time is another, and never signalled. Without `/proc` nothing is remembered.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process_group, test_kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::process::GRACE;
use crate::cliffs::{load, replace};

/// The version of the format.
const FORMAT: u32 = 1;

/// The longest file that is read.
const LONGEST: u64 = 1 << 20;

/// Between two looks whether a server has ended.
const AGAIN: Duration = Duration::from_millis(50);

/// A process that is told from all others of this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Id {
    pid: i32,
    /// When it started, in the kernel's ticks since the boot.
    since: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The format's version.
    switchback_started: u32,
    boot: String,
    proxy: Id,
    /// By the names of their backends.
    servers: BTreeMap<String, Id>,
}

/// What the kernel says of a process.
struct Stat {
    is_zombie: bool,
    group: i32,
    since: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let line = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything.
    let mut words = line.rsplit_once(") ")?.1.split(' ');
    let is_zombie = matches!(words.next()?, "Z" | "X");
    let group = words.nth(1)?.parse().ok()?;
    Some(Stat { is_zombie, group, since: words.nth(16)?.parse().ok()? })
}

impl Id {
    /// Who has this number now.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let pid = pid.as_raw_nonzero().get();
        Some(Self { pid, since: stat(pid)?.since })
    }

    /// Whether that one still runs, and not another with its number.
    pub(super) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.since == self.since && !stat.is_zombie)
    }

    #[cfg(test)]
    pub(super) fn pid(self) -> i32 {
        self.pid
    }
}

/// Whether anybody of a group runs. Who has ended and is not waited for by its parent holds nothing any more.
pub(super) fn lives(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    let Ok(all) = std::fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().get();
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(stat).any(|stat| stat.group == group && !stat.is_zombie)
}

fn boot() -> String {
    read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Where this proxy writes in a folder.
fn own_file(folder: &Path) -> PathBuf {
    folder.join(format!("started-{}.json", getpid().as_raw_nonzero()))
}

/// Writes down which servers this proxy has now. Blocks.
pub(super) fn remember(folder: &Path, servers: BTreeMap<String, Id>) {
    let path = own_file(folder);
    let Some(proxy) = Id::of(getpid()).filter(|_| !servers.is_empty()) else {
        // Nothing to be remembered is what no file says.
        let _ = std::fs::remove_file(path);
        return;
    };
    let file = File { switchback_started: FORMAT, boot: boot(), proxy, servers };
    // Numbers and strings: there is nothing that could fail.
    let text = serde_json::to_string_pretty(&file).unwrap_or_default();
    if let Err(error) = replace(&path, &(text + "\n")) {
        tracing::warn!(%error, "servers of this proxy are not remembered: if it is ended by force, they stay");
    }
}

/// Ends what proxies have left that are no more: asked first, by force after a grace. Forgets them then.
pub(super) async fn end_left(folder: &Path) {
    for path in files(folder) {
        let file = match load::<File>(&path, LONGEST, ("switchback_started", FORMAT)) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%error, "what a former proxy has started is not known: the file is left as it is");
                continue;
            }
        };
        let same_boot = file.boot == boot();
        if same_boot && file.proxy.is_alive() {
            continue;
        }
        let mut ending = JoinSet::new();
        for (backend, id) in file.servers.into_iter().filter(|(_, id)| same_boot && id.is_alive()) {
            let pid = id.pid;
            tracing::warn!(
                backend,
                pid,
                "ending a server that a former proxy has left, which was ended by force"
            );
            ending.spawn(end(id));
        }
        while ending.join_next().await.is_some() {}
        // If it stays, nobody in it is alive at the next look.
        let _ = std::fs::remove_file(&path);
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("started-") && name.ends_with(".json")
    };
    let all = std::fs::read_dir(folder).into_iter().flatten();
    all.filter_map(|entry| Some(entry.ok()?.path())).filter(is_one).collect()
}

/// Ends a server with its group, whose first it was.
async fn end(id: Id) {
    let Some(group) = Pid::from_raw(id.pid).filter(|_| stat(id.pid).is_some_and(|stat| stat.group == id.pid))
    else {
        return;
    };
    for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE / 4)] {
        let _ = kill_process_group(group, signal);
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if !lives(group) {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::{Kind, Process};
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("switchback-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn server() -> Process {
        let words = ["sh", "-c", "sleep 1000 & wait"].map(str::to_owned);
        Process::start(&words, &[], Kind::Server).unwrap()
    }

    /// As a proxy of that identity leaves it.
    fn write(folder: &Path, proxy: Id, boot: String, server: Id) -> PathBuf {
        let servers = BTreeMap::from([("small".to_owned(), server)]);
        let file = File { switchback_started: FORMAT, boot, proxy, servers };
        let path = folder.join("started-1.json");
        std::fs::write(&path, serde_json::to_string(&file).unwrap()).unwrap();
        path
    }

    #[tokio::test]
    async fn what_a_proxy_leaves_that_was_ended_by_force_is_ended_by_the_next() {
        let folder = folder("left");
        let server = server();
        let id = server.id().unwrap();
        let own = Id::of(getpid()).unwrap();
        let dead = Id { since: own.since + 1, ..own };
        let path = write(&folder, dead, boot(), id);
        end_left(&folder).await;
        assert!(!id.is_alive() && !path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn nobody_is_ended_who_is_another_or_belongs_to_a_proxy_that_runs() {
        let folder = folder("not-left");
        let server = server();
        let id = server.id().unwrap();
        let own = Id::of(getpid()).unwrap();
        let dead = Id { since: own.since + 1, ..own };
        // The same number, used again.
        write(&folder, dead, boot(), Id { since: id.since + 1, ..id });
        end_left(&folder).await;
        // Another boot of the machine.
        write(&folder, dead, "another".to_owned(), id);
        end_left(&folder).await;
        let path = write(&folder, own, boot(), id);
        end_left(&folder).await;
        assert!(id.is_alive() && path.exists());
        std::fs::write(&path, "{").unwrap();
        end_left(&folder).await;
        assert!(id.is_alive() && path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn a_proxy_writes_down_whom_it_has_and_nothing_once_it_has_nobody() {
        let folder = folder("remembered");
        let server = server();
        remember(&folder, BTreeMap::from([("small".to_owned(), server.id().unwrap())]));
        let file: File = load(&own_file(&folder), LONGEST, ("switchback_started", FORMAT)).unwrap().unwrap();
        assert_eq!((file.proxy, file.servers["small"]), (Id::of(getpid()).unwrap(), server.id().unwrap()));
        remember(&folder, BTreeMap::new());
        assert!(files(&folder).is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
