//! The proxy: the real binary as a process, built before the first test, one for each test.
//!
//! Its configuration is written out in full, so that a test shows what it is about; only the address and the habits that
//! make headers final (`hold_head`) are added here.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tokio::io::BufReader;
use tokio::process::{ChildStdin, Command};

use super::client::{Answer, Reply, Sent, get, send};
use super::llama::{Llama, Spec};
use super::{SOON, file_of_test, first_line, log, wait_until};

/// Runs the program until standard input ends, which it does when the test lets go of it, and when the test dies.
const LEASH: &str = r#""$0" serve --config "$1" & exec >&-; cat >/dev/null; kill -9 $!"#;

/// A running proxy. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    _leash: ChildStdin,
}

/// A configuration: backends in order of preference, all serving the model `smollm2`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    backends: String,
    names: Vec<&'static str>,
    /// Those that are not there yet.
    unloaded: Vec<&'static str>,
    model: String,
    failover: String,
    loader: String,
}

impl Setup {
    /// Adds a backend; `more` are further lines of its table.
    pub(crate) fn backend(mut self, llama: &Llama, more: &str) -> Self {
        let (name, address) = (llama.spec.name, llama.address);
        // Writing to a string cannot fail.
        let _ =
            writeln!(self.backends, "[[backend]]\nname = \"{name}\"\nurl = \"http://{address}\"\n{more}\n");
        self.names.push(name);
        self
    }

    /// Adds a backend that is not there yet, and that the loader brings there.
    pub(crate) fn unloaded(mut self, spec: Spec, address: SocketAddr, more: &str) -> Self {
        let name = spec.name;
        let _ =
            writeln!(self.backends, "[[backend]]\nname = \"{name}\"\nurl = \"http://{address}\"\n{more}\n");
        self.unloaded.push(name);
        self
    }

    /// Lines of the table `[loader]`.
    pub(crate) fn loader(mut self, lines: &str) -> Self {
        self.loader = format!("[loader]\n{lines}\n\n");
        self
    }

    /// Further lines of the model's table.
    pub(crate) fn model(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.model);
        self
    }

    /// Lines of the table `[failover]` in place of the usual ones.
    pub(crate) fn failover(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.failover);
        self
    }

    fn toml(&self) -> String {
        let Self { backends, names, unloaded, model, failover, loader } = self;
        let names: Vec<&str> = names.iter().chain(unloaded).copied().collect();
        // A head that is held until the answer begins names the backend.
        let usual = "hold_head = \"120s\"\nkeep_alive = \"120s\"";
        let failover = if failover.is_empty() { usual } else { failover };
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n\n{loader}{backends}[[model]]\nname = \"smollm2\"\naliases = [\"auto\"]\n\
             backends = {names:?}\n{model}\n\n[failover]\n{failover}\n\n[probe]\ninterval = \"200ms\"\n"
        )
    }

    /// Runs a command of the program with it to its end, and gives what it says.
    pub(crate) async fn run(self, arguments: &[&str]) -> Result<String> {
        let binary = tokio::task::spawn_blocking(binary).await??;
        let config = file_of_test("switchback.toml")?;
        std::fs::write(&config, self.toml()).context("cannot write the configuration")?;
        let (log, stderr): (PathBuf, Stdio) = log("command")?;
        let mut command = Command::new(binary);
        command.arg("--config").arg(&config).args(arguments).stderr(stderr);
        let output = command.output().await?;
        let status = output.status;
        ensure!(status.success(), "{arguments:?} ended with {status}, see {}", log.display());
        String::from_utf8(output.stdout).context("it speaks no UTF-8")
    }

    /// Starts a proxy with it, and waits until it has found all its backends.
    pub(crate) async fn start(self) -> Result<Proxy> {
        let binary = tokio::task::spawn_blocking(binary).await??;
        let config = file_of_test("switchback.toml")?;
        std::fs::write(&config, self.toml()).context("cannot write the configuration")?;
        let (log, stderr): (PathBuf, Stdio) = log("proxy")?;
        let mut command = Command::new("sh");
        command.args(["-c", LEASH]).arg(binary).arg(&config).env("NO_COLOR", "1");
        // What backends died of in a run before is no limit for this one's.
        let state = file_of_test("state")?;
        if state.exists() {
            std::fs::remove_dir_all(&state).context("cannot empty the state folder")?;
        }
        command.env("XDG_STATE_HOME", state);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().context("cannot start the proxy")?;
        let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let line = first_line(&mut stdout, &log).await.context("the proxy")?;
        let address = line.strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("the proxy said \"{line}\", which is no address"))?;
        let proxy = Proxy { address, _leash: child.stdin.take().context("no stdin")? };
        for name in self.names {
            proxy.until_backend_is(name, "up").await?;
        }
        Ok(proxy)
    }
}

impl Proxy {
    /// Waits until it sees a backend in a state.
    pub(crate) async fn until_backend_is(&self, name: &str, state: &str) -> Result<()> {
        wait_until(&format!("backend {name} to be {state}"), SOON, async || {
            let health = get(self.address, "/health").await?.json()?;
            Ok((health["backends"][name] == state).then_some(()))
        })
        .await
    }

    /// Sends a request and waits for nothing.
    pub(crate) async fn send(&self, path: &str, body: &Value) -> Result<Sent> {
        send(self.address, path, body).await
    }

    /// Sends a chat request and waits for the head of the answer.
    pub(crate) async fn open(&self, body: &Value) -> Result<Answer> {
        self.send("/v1/chat/completions", body).await?.answer().await
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Reply> {
        self.send(path, body).await?.answer().await?.rest().await
    }

    /// The same for a chat request.
    pub(crate) async fn chat(&self, body: &Value) -> Result<Reply> {
        self.post("/v1/chat/completions", body).await
    }
}

/// The program that is tested: what the environment names, else the one beside this test, built first so that it is
/// never stale.
fn binary() -> Result<&'static PathBuf> {
    static BINARY: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        let binary = std::env::var_os("SWITCHBACK_BINARY").map_or_else(build, |named| Ok(named.into()));
        let found = binary.and_then(|path| path.canonicalize().with_context(|| path.display().to_string()));
        found.map_err(|error| format!("no program to test: {error:#}"))
    });
    BINARY.as_ref().map_err(|error| anyhow!("{error}"))
}

fn build() -> Result<PathBuf> {
    // target/PROFILE/deps/real-…
    let test = std::env::current_exe().context("this test is nowhere")?;
    let folder = test.ancestors().nth(2).context("this test is in no target folder")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let status = std::process::Command::new(cargo)
        .args(["build", "--quiet", "--bin", "switchback", "--profile", profile, "--manifest-path", manifest])
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the binary does not build");
    Ok(folder.join("switchback"))
}
