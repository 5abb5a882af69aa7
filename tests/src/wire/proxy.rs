//! What stands between the client and the backends: the real binary, one fresh process for each case.
//!
//! [`Subject`] is the seam: the harness's own tests put a relay there. The binary gets an empty folder as its home and
//! working directory, so that nothing learned or configured elsewhere reaches a case.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::adapter::Configuration;

/// How long a start may take.
const START: Duration = Duration::from_secs(20);

/// How many of a process's last lines are kept.
const LAST_LINES: usize = 8;

/// What can be put between client and backends.
pub trait Subject: Send + Sync + 'static {
    /// It, running.
    type Up: Up;

    /// Starts it for one case whose backends listen at `backends`.
    fn start(
        &self,
        configuration: &Configuration,
        backends: &[SocketAddr],
    ) -> impl Future<Output = Result<Self::Up>> + Send;
}

/// A running subject.
pub trait Up: Send {
    /// Where clients connect.
    fn address(&self) -> SocketAddr;

    /// Stops it. Says what is wrong if it had ended by itself.
    fn stop(self) -> impl Future<Output = Option<String>> + Send;
}

/// The real binary.
#[derive(Debug)]
pub struct Binary {
    /// The program.
    pub path: PathBuf,
}

impl Binary {
    /// The one beside the program or test that runs, in its profile, built first so that it is never stale.
    ///
    /// # Errors
    /// It does not build.
    pub fn built_beside_this() -> Result<Self> {
        let this = std::env::current_exe()?;
        // A test stands in target/PROFILE/deps, a program in target/PROFILE.
        let folder = this.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
        let folder = folder.context("this program is in no folder")?;
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let built = std::process::Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--bin",
                "switchback",
                "--profile",
                profile,
                "--manifest-path",
                manifest,
            ])
            .status()
            .context("cannot run cargo")?;
        ensure!(built.success(), "the binary does not build");
        Ok(Self { path: folder.join(format!("switchback{}", std::env::consts::EXE_SUFFIX)) })
    }
}

/// A running process of it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    address: SocketAddr,
    stderr: LastLines,
    home: Home,
}

/// The last lines that a process wrote.
type LastLines = Arc<Mutex<VecDeque<String>>>;

/// A folder that is removed with its owner.
#[derive(Debug)]
struct Home(PathBuf);

impl Home {
    fn new() -> Result<Self> {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("wire-cases-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Subject for Binary {
    type Up = Process;

    async fn start(&self, configuration: &Configuration, _: &[SocketAddr]) -> Result<Process> {
        let home = Home::new()?;
        let file = home.0.join("switchback.toml");
        std::fs::write(&file, &configuration.toml)?;
        let mut child = command(&self.path, &home.0)
            .arg("serve")
            .arg("--config")
            .arg(&file)
            .envs(configuration.env.iter().map(|(name, value)| (name, value)))
            .spawn()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        let stderr = LastLines::default();
        if let Some(pipe) = child.stderr.take() {
            tokio::spawn(keep_last_lines(pipe, Arc::clone(&stderr)));
        }
        let Some(stdout) = child.stdout.take() else { bail!("the process has no stdout") };
        let mut stdout = BufReader::new(stdout).lines();
        let address = match timeout(START, stdout.next_line()).await {
            Ok(Ok(Some(line))) => line
                .strip_prefix("listening on http://")
                .and_then(|address| address.trim().parse().ok())
                .ok_or_else(|| {
                    anyhow!("the first line on stdout is \"{line}\", not `listening on http://HOST:PORT`")
                }),
            Ok(_) => Err(anyhow!("it ended without an address on stdout")),
            Err(_) => Err(anyhow!("no address on stdout within {} s", START.as_secs())),
        };
        match address {
            Ok(address) => {
                // Nobody reads further, and a full pipe would stop the process.
                tokio::spawn(async move { while let Ok(Some(_)) = stdout.next_line().await {} });
                Ok(Process { child, address, stderr, home })
            }
            Err(problem) => {
                // Its last words may still be in the pipe; they end with the process.
                child.start_kill()?;
                child.wait().await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
                bail!("the proxy did not start: {problem}{}", told(&stderr))
            }
        }
    }
}

impl Up for Process {
    fn address(&self) -> SocketAddr {
        self.address
    }

    async fn stop(mut self) -> Option<String> {
        let ended = self.child.try_wait().ok().flatten();
        // A process that is gone already cannot be killed; both are fine.
        let _ = self.child.start_kill();
        let _ = self.child.wait().await;
        drop(self.home);
        ended.map(|status| format!("the proxy ended during the case with {status}{}", told(&self.stderr)))
    }
}

fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"] {
        command.env(name, home);
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SWITCHBACK"))
    {
        command.env_remove(name);
    }
    command
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn keep_last_lines(pipe: impl AsyncRead + Unpin, into: LastLines) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while pipe.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let text = line.trim_ascii_end().escape_ascii().to_string();
        line.clear();
        let mut lines = into.lock();
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(text);
    }
}

fn told(stderr: &LastLines) -> String {
    stderr.lock().iter().map(|line| format!("\n      {line}")).collect()
}
