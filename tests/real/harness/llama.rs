//! A real llama.cpp server with SmolLM2-135M-Instruct: a child process that never outlives its test.
//!
//! One thread each, so that two of them and the proxy have room on two cores, and small batches, so that a prompt is read
//! in many steps. What a server really does is read from its own `/slots` and `/metrics`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::BufReader;
use tokio::process::{Child, Command};

use super::python::python;
use super::{SOON, client, first_line, log, wait_until};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/real/llama_server.py");

const STRICT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/real/strict.jinja");

/// Between two looks at a server that shall notice a hang-up. It looks for one when nothing has happened for a second,
/// and answering a question is something that happens.
const LEFT_ALONE: Duration = Duration::from_millis(1300);

/// What a server is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Name of the server and of its model.
    pub(crate) name: &'static str,
    /// Tokens of one request, prompt and output.
    pub(crate) window: u32,
    /// Requests at a time.
    pub(crate) slots: u32,
    /// Whether it serves embeddings, too.
    pub(crate) embeddings: bool,
    /// Whether its chat template refuses turns that are not in order.
    pub(crate) strict: bool,
}

/// A window that a page of text fills.
pub(crate) const SMALL: Spec =
    Spec { name: "small", window: 512, slots: 2, embeddings: false, strict: false };

/// A window four times as large.
pub(crate) const LARGE: Spec =
    Spec { name: "large", window: 2048, slots: 2, embeddings: false, strict: false };

/// A running server.
#[derive(Debug)]
pub(crate) struct Llama {
    pub(crate) spec: Spec,
    pub(crate) address: SocketAddr,
    child: Child,
}

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// It has never had a request.
    Fresh,
    /// It has had one.
    Idle,
    /// It reads a prompt.
    Prefill,
    /// It writes an answer.
    Decode,
}

impl Llama {
    /// Starts a server and waits until it has loaded its model.
    pub(crate) async fn start(spec: Spec) -> Result<Self> {
        let (child, address) = spawn(spec, 0).await?;
        Ok(Self { spec, address, child })
    }

    /// The two sizes.
    pub(crate) async fn small_and_large() -> Result<(Self, Self)> {
        tokio::try_join!(Self::start(SMALL), Self::start(LARGE))
    }

    /// Starts it again at the same port.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        (self.child, self.address) = spawn(self.spec, self.address.port()).await?;
        Ok(())
    }

    /// Ends the process without warning, as an out-of-memory does.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill the server")
    }

    /// Asks it to stop.
    pub(crate) async fn terminate(&self) -> Result<()> {
        let pid = self.child.id().context("the server has ended")?.to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().await?;
        ensure!(status.success(), "kill ended with {status}");
        Ok(())
    }

    /// What each slot is doing.
    pub(crate) async fn slots(&self) -> Result<Vec<Slot>> {
        let slots = client::get(self.address, "/slots").await?.json()?;
        let slots = slots.as_array().context("no list of slots")?;
        Ok(slots.iter().map(slot).collect())
    }

    /// Waits until its slots satisfy.
    pub(crate) async fn until(&self, what: &str, satisfied: impl Fn(&[Slot]) -> bool) -> Result<()> {
        let look = async || Ok(satisfied(&self.slots().await?).then_some(()));
        wait_until(&format!("{what} on {}", self.spec.name), SOON, look).await
    }

    /// Waits until it does nothing, without keeping it awake.
    pub(crate) async fn until_idle(&self) -> Result<()> {
        let idle = |slot: &Slot| matches!(slot, Slot::Idle | Slot::Fresh);
        let look = async || Ok(self.slots().await?.iter().all(idle).then_some(()));
        wait_until(&format!("{} to be idle", self.spec.name), LEFT_ALONE, look).await
    }

    /// One of its own counters, e.g. `tokens_predicted_total`.
    pub(crate) async fn counter(&self, name: &str) -> Result<u64> {
        let metrics = client::get(self.address, "/metrics").await?.body;
        let wanted = format!("llamacpp:{name} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&wanted)?.trim().parse().ok());
        value.with_context(|| format!("no counter {name} in:\n{metrics}"))
    }
}

fn slot(slot: &Value) -> Slot {
    let decoded = slot.pointer("/next_token/0/n_decoded").and_then(Value::as_u64).unwrap_or(0);
    match slot.get("is_processing").and_then(Value::as_bool) {
        Some(true) if decoded > 0 => Slot::Decode,
        Some(true) => Slot::Prefill,
        _ if slot.get("id_task").is_some() => Slot::Idle,
        _ => Slot::Fresh,
    }
}

/// Ends the server when whoever started it is gone: it reads its input to the end.
const KEPT: &str = r#"while kill -0 $PPID 2>/dev/null; do sleep 1; done | exec "$0" "$@""#;

/// The words of a command that starts a server at this port, and is that server.
pub(crate) async fn start_command(spec: Spec, port: u16) -> Result<Vec<String>> {
    let python = tokio::task::spawn_blocking(python).await??;
    let (port, slots) = (port.to_string(), spec.slots.to_string());
    let context = (spec.window * spec.slots).to_string();
    let interpreter = python.interpreter.to_str().context("an odd path")?;
    let model = python.model.to_str().context("an odd path")?;
    let words = ["sh", "-c", KEPT, interpreter, PROGRAM, model, "--alias", spec.name, "--port", &port];
    let sizes = ["--context", &context, "--slots", &slots];
    Ok(words.into_iter().chain(sizes).map(str::to_owned).collect())
}

async fn spawn(spec: Spec, port: u16) -> Result<(Child, SocketAddr)> {
    // The first call may install for minutes.
    let python = tokio::task::spawn_blocking(python).await??;
    let (log, stderr): (PathBuf, Stdio) = log(&format!("{}-{port}", spec.name))?;
    let mut command = Command::new(&python.interpreter);
    command.arg(PROGRAM).arg(&python.model).args(["--alias", spec.name, "--port", &port.to_string()]);
    command.args(["--context", &(spec.window * spec.slots).to_string(), "--slots", &spec.slots.to_string()]);
    if spec.embeddings {
        command.arg("--embeddings");
    }
    if spec.strict {
        command.arg("--template").arg(STRICT);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).kill_on_drop(true);
    let mut child = command.spawn().context("cannot start the server")?;
    let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
    let line = first_line(&mut stdout, &log).await.with_context(|| format!("server {}", spec.name))?;
    let address = line.strip_prefix("http://").and_then(|address| address.parse().ok());
    let address = address.with_context(|| format!("the server said \"{line}\", which is no address"))?;
    Ok((child, address))
}
