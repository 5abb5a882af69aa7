//! What the tests put around the proxy: real servers, the real binary, a client that sees bytes.
//!
//! Waiting is always for something, with an end ([`PATIENCE`]); nothing here knows how long an engine takes.

pub(crate) mod client;
pub(crate) mod llama;
pub(crate) mod proxy;
pub(crate) mod python;
pub(crate) mod request;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep, timeout};

/// How long anything may take. Only a test that fails waits for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks at something that costs nothing to look at.
pub(crate) const SOON: Duration = Duration::from_millis(20);

/// Looks again and again until there is something to see.
pub(crate) async fn wait_until<T>(
    what: &str,
    pause: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await.with_context(|| format!("while waiting for {what}"))? {
            return Ok(seen);
        }
        if Instant::now() > deadline {
            bail!("{what}: not within {} s", PATIENCE.as_secs());
        }
        sleep(pause).await;
    }
}

/// Where the suite keeps what it installs and writes.
fn folder() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// A file of the running test.
fn file_of_test(name: &str) -> Result<PathBuf> {
    let thread = std::thread::current();
    // The test runner names its threads after the tests.
    let test = thread.name().unwrap_or("test").rsplit("::").next().unwrap_or_default();
    let folder = folder()?.join("runs").join(test);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.join(name))
}

/// A log file for a process of the running test.
fn log(name: &str) -> Result<(PathBuf, Stdio)> {
    let path = file_of_test(&format!("{name}.log"))?;
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((path, file.into()))
}

/// The first line that a process prints. Nobody reads further, so it must not print much more.
async fn first_line(stdout: &mut BufReader<ChildStdout>, log: &Path) -> Result<String> {
    let mut line = String::new();
    let read = timeout(PATIENCE, stdout.read_line(&mut line)).await;
    match read.with_context(|| format!("no line within {} s, see {}", PATIENCE.as_secs(), log.display()))? {
        Ok(0) => bail!("it ended without a line, see {}", log.display()),
        other => other.map(|_| line.trim_end().to_owned()).context("cannot read its output"),
    }
}
