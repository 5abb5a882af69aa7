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
use switchback_policies::client::{BUILTIN, Class, Mark, Profile, Value as Says};
use tokio::time::Instant;

use super::serve::{find, load, look_around};
use super::{Failed, say};
use crate::app::App;
use crate::backend::client::{Connect, Connecting, Tcp};
use crate::call::{Call, Endpoint};
use crate::config::Config;
use crate::identify::{Client, identify};
use crate::plan::{Plan, Refused, plan};
use crate::routes::without_v1;

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// A request body of any dialect, or a recorded request with `path`, `headers` and `body`; `-` reads standard input
    #[arg(value_name = "FILE")]
    request: PathBuf,
    /// As if this configured client had sent it, or the built-in profile of this name with its headers
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Probe the backends, and let them count
    #[arg(long)]
    live: bool,
}

pub(super) async fn run(file: Option<PathBuf>, args: ExplainArgs) -> Result<(), Failed> {
    let config = match find(file) {
        Some(file) => load(&file)?,
        None if args.live => look_around(None).await,
        None => {
            let hint =
                "hint: --config FILE, or ./switchback.toml, or --live for who listens on the usual ports";
            return Err(anyhow::anyhow!("explain needs a configuration\n{hint}").into());
        }
    };
    let connector: Arc<dyn Connect> = if args.live { Arc::new(Tcp) } else { Arc::new(Nobody) };
    let app = App::new(config, connector);
    let app = if args.live { app } else { app.with_all_loaded() };
    app.vocabularies.loaded().await;
    if args.live {
        app.probe_all().await;
    }
    if let Some(trouble) = app.loader.as_ref().and_then(|loader| loader.last_trouble()) {
        say(format_args!("caution    {}: {}", trouble.said, trouble.detail));
    }
    let mut call = read(&args.request)?;
    let client = match &args.client {
        Some(name) => sent_by(&app.config, &mut call, name)?,
        None => identify(&app.config, &call, None),
    };
    tell_client(&client);
    let session = app.sessions.key(&call, &client);
    let arrival = app.sessions.arrive(session, app.now());
    match plan(&app, &call, &client, session, arrival).await {
        Ok(plan) => tell_plan(&plan),
        Err(Refused { error, .. }) => {
            say(format_args!("refused    {}", error.message()));
            say(format_args!("           {}", error.hint_text().unwrap_or_default()));
        }
    }
    Ok(())
}

/// The client of this name: the operator's own, or a built-in one, as which the request is then recognised.
fn sent_by(config: &Config, call: &mut Call, name: &str) -> anyhow::Result<Client> {
    if let Some(client) = identify(config, call, None).under_name(config, name) {
        return Ok(client);
    }
    let named = BUILTIN.iter().find_map(|profile| own_headers(profile).filter(|_| profile.id == name));
    call.headers = named.with_context(|| {
        let configured: Vec<&str> = config.clients.iter().map(|rule| rule.name.as_str()).collect();
        let builtin = BUILTIN.iter().filter(|profile| own_headers(profile).is_some());
        let builtin: Vec<&str> = builtin.map(|profile| profile.id).collect();
        format!(
            "no [[client]] and no built-in profile with headers of its own is called {name}\nhint: [[client]]: {}\n      \
             built-in: {}",
            if configured.is_empty() { "none".to_owned() } else { configured.join(", ") },
            builtin.join(", ")
        )
    })?;
    Ok(identify(config, call, None))
}

/// The headers that give a profile away, and no other client's; none if it is known by other things.
fn own_headers(profile: &Profile) -> Option<HeaderMap> {
    let header = |mark: &Mark| {
        let (name, value) = match *mark {
            Mark::UserAgent(agent) | Mark::UserAgentHas(agent) => ("user-agent", agent),
            Mark::Header(name, Says::Is(value) | Says::Starts(value)) => (name, value),
            Mark::Header(name, Says::Any) => (name, "switchback-explain"),
            _ => return None,
        };
        // What ends with a space goes on: a header's own end is trimmed.
        let value = if value.ends_with(' ') { format!("{value}1.0") } else { value.to_owned() };
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(&value).ok()?))
    };
    profile.signs.iter().find_map(|sign| sign.marks.iter().map(header).collect())
}

fn tell_client(client: &Client) {
    let class = match client.class {
        Class::Interactive => "somebody waits for it",
        Class::Agent => "an agent waits for it",
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
    let text = text.trim_start_matches('\u{feff}').to_owned();
    let recorded: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not json", file.display()))?;
    // A file of several recorded requests is explained by the first that asks for something.
    let several = recorded.get("requests").and_then(Value::as_array);
    let asks = |request: &&Value| request.get("body").is_some_and(|body| usual_path(body).is_some());
    let recorded = several.and_then(|all| all.iter().find(asks)).unwrap_or(&recorded);
    let mut headers = HeaderMap::new();
    let mut path = usual_path(recorded).unwrap_or("/v1/chat/completions");
    let mut body = Bytes::from(text.clone());
    let is_body = usual_path(recorded).is_some();
    if let Some(inner) = recorded.get("body").filter(|inner| inner.is_object() && !is_body) {
        path = usual_path(inner).unwrap_or(path);
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

/// Where a body of this shape is sent; `None`: it has no shape that is known.
fn usual_path(body: &Value) -> Option<&'static str> {
    let has = |member: &str| body.get(member).is_some();
    match () {
        () if has("messages") => Some("/v1/chat/completions"),
        () if has("prompt") => Some("/v1/completions"),
        () if has("input") && !has("encoding_format") => Some("/v1/responses"),
        () if has("input") => Some("/v1/embeddings"),
        () => None,
    }
}

/// Connects to nobody: without `--live` nothing leaves this process.
#[derive(Debug)]
struct Nobody;

impl Connect for Nobody {
    fn connect(&self, _: &Authority) -> Connecting {
        Box::pin(std::future::ready(Err(std::io::ErrorKind::NotConnected.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        let body = Bytes::from_static(br#"{"model":"auto","messages":[{"role":"user","content":"hi"}]}"#);
        let endpoint = Endpoint::at("/chat/completions", None);
        Call::read("test".to_owned(), Instant::now(), Method::POST, endpoint, HeaderMap::new(), body).unwrap()
    }

    #[test]
    fn a_built_in_profile_with_headers_of_its_own_is_recognised_by_them() {
        let text = "[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n[[client]]\nname = \"mine\"\nwhen = { profile = \"codex\" }\nclass = \"background\"\n";
        let config = Config::parse(text, Path::new(".")).unwrap();
        let known: Vec<&Profile> = BUILTIN.iter().filter(|profile| own_headers(profile).is_some()).collect();
        assert!(known.len() > 10);
        for profile in known {
            let client = sent_by(&config, &mut call(), profile.id).unwrap();
            let expected = if profile.id == "codex" { "mine" } else { profile.id };
            assert_eq!(client.name, expected, "{}", client.because);
        }
        assert_eq!(sent_by(&config, &mut call(), "mine").unwrap().name, "mine");
        let error = sent_by(&config, &mut call(), "nobody").unwrap_err().to_string();
        assert!(error.contains("mine") && error.contains("opencode"), "{error}");
    }
}
