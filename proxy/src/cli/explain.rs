//! `switchback explain FILE`: where a request would go, and why, without sending it.
//!
//! The very decision that serving takes, from the same code. Backends that were not asked count as up, and only a
//! vocabulary or bounds count the prompt; with `--live` backends are probed and may be asked to count.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;
use switchback_policies::client::Class;
use tokio::time::Instant;

use super::serve::{find, load};
use super::{Failed, say};
use crate::app::App;
use crate::backend::client::{Connect, Connecting, Tcp};
use crate::call::{Call, Endpoint};
use crate::identify::{Client, identify};
use crate::pipeline::{self, Plan};
use crate::routes::without_v1;

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// A request body, or a recorded request with `path`, `headers` and `body`; `-` reads standard input
    #[arg(value_name = "FILE")]
    request: PathBuf,
    /// As if this configured client, or this built-in profile's user agent, had sent it
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Probe the backends, and let them count
    #[arg(long)]
    live: bool,
}

pub(super) async fn run(file: Option<PathBuf>, args: ExplainArgs) -> Result<(), Failed> {
    let file =
        find(file).context("explain needs a configuration\nhint: --config FILE, or ./switchback.toml")?;
    let config = load(&file)?;
    let connector: Arc<dyn Connect> = if args.live { Arc::new(Tcp) } else { Arc::new(Nobody) };
    let app = App::new(config, connector);
    app.vocabularies.loaded().await;
    if args.live {
        app.probe_all().await;
    }
    let call = read(&args.request)?;
    let mut client = identify(&app.config, &call, None);
    if let Some(name) = &args.client {
        client = client.under_name(&app.config, name).with_context(|| {
            let known: Vec<&str> = app.config.clients.iter().map(|rule| rule.name.as_str()).collect();
            format!("no [[client]] is called {name}; there are: {}", known.join(", "))
        })?;
    }
    tell_client(&client);
    let session = app.sessions.key(&call, client.conversation.as_deref());
    match pipeline::plan(&app, &call, &client, session).await {
        Ok(plan) => tell_plan(&plan),
        Err(error) => {
            say(format_args!("refused    {}", error.message()));
            say(format_args!("           {}", error.hint_text().unwrap_or_default()));
        }
    }
    Ok(())
}

fn tell_client(client: &Client) {
    let class = match client.class {
        Class::Interactive => "somebody waits for it",
        Class::Background => "background: nobody waits for it",
    };
    say(format_args!("client     {}: {}; {class}", client.name, client.because));
}

fn tell_plan(plan: &Plan) {
    let how = plan.measured.how.name();
    say(format_args!("prompt     {} tokens, counted by {how}", plan.measured.size));
    for (nth, choice) in plan.decision.choices.iter().enumerate() {
        let backend = &plan.backend_facts[choice.candidate.backend];
        let sentence = plan.decision.choice_sentence(nth, &plan.facts, &plan.backend_facts);
        let seconds = choice.candidate.finish;
        say(format_args!(
            "{:>2}.        {sentence}; {}, answer expected to end after {seconds:.1} s",
            nth + 1,
            backend.state
        ));
    }
    for (backend, refusal) in &plan.decision.refusals {
        say(format_args!("not        {}: {refusal}", plan.backend_facts[*backend].name));
    }
}

/// A body as it is, or a recorded request around one.
fn read(file: &Path) -> anyhow::Result<Call> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let recorded: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not json", file.display()))?;
    // A file of several recorded requests is explained by its first.
    let recorded = recorded.pointer("/requests/0").unwrap_or(&recorded);
    let mut headers = HeaderMap::new();
    let mut path = "/v1/chat/completions";
    let mut body = Bytes::from(text.clone());
    if let Some(inner) = recorded.get("body").filter(|inner| inner.is_object()) {
        body = Bytes::from(inner.to_string());
        path = recorded.get("path").and_then(Value::as_str).unwrap_or(path);
        for (name, value) in recorded.get("headers").and_then(Value::as_object).into_iter().flatten() {
            let pair = (name.parse::<HeaderName>(), value.as_str().map(HeaderValue::from_str));
            if let (Ok(name), Some(Ok(value))) = pair {
                headers.insert(name, value);
            }
        }
    }
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let endpoint = Endpoint::at(without_v1(path), query);
    Call::read("explain".to_owned(), Instant::now(), Method::POST, endpoint, headers, body)
        .map_err(|error| anyhow::anyhow!("{}", error.message()))
}

/// Connects to nobody: without `--live` nothing leaves this process.
#[derive(Debug)]
struct Nobody;

impl Connect for Nobody {
    fn connect(&self, _: &Authority) -> Connecting {
        Box::pin(std::future::ready(Err(std::io::ErrorKind::NotConnected.into())))
    }
}
