//! `switchback check`: what a configuration means. Every complaint at once; else what listens where, what the backends say
//! of themselves, and which prompt lengths go where.

mod counts;
mod loads;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use switchback_parsers::diagnosis::Engine;
use switchback_policies::decision::{Settings, decide};
use switchback_policies::facts::{BackendFacts, BackendState, PromptSize, RequestFacts};

use super::serve::{find, load, look_around};
use super::{Failed, say};
use crate::app::App;
use crate::backend::client::Tcp;
use crate::backend::{Backend, headers};
use crate::models;

/// How long one more question to a backend may take.
const ASK: Duration = Duration::from_secs(2);

pub(super) async fn run(file: Option<PathBuf>) -> Result<(), Failed> {
    let (config, whence) = match find(file) {
        Some(file) => (load(&file)?, format!("{}: good", file.display())),
        None => (
            look_around(None).await,
            "no configuration, so this is who listens on the usual ports".to_owned(),
        ),
    };
    let app = App::new(config, Arc::new(Tcp));
    app.probe_all().await;
    app.vocabularies.loaded().await;
    let server = &app.config.server;
    let keys = match server.keys.len() {
        0 if server.open => "open to everybody".to_owned(),
        0 => "no keys: loopback names only".to_owned(),
        count => format!("{count} keys"),
    };
    say(format_args!("{whence}\nlistens on {}, {keys}\n", server.listen));
    loads::tell(&app);
    for backend in app.fleet.all() {
        tell_backend(backend);
        loads::tell_backend(backend);
        if let Some(caution) = no_engine(backend).await {
            say(format_args!("    caution: {caution}"));
        }
        say("");
    }
    if app.fleet.all().is_empty() {
        say("nobody is there; `switchback demo` shows the point without any backend");
        return Ok(());
    }
    tell_names(&app);
    let everything: Vec<usize> = (0..app.fleet.all().len()).collect();
    for (at, model) in app.config.models.iter().enumerate() {
        counts::tell(&app, at, model).await;
    }
    if app.loader.is_some() {
        say(
            "as if all were loaded; who is there comes before who has to be loaded, for all that it surely carries:",
        );
    }
    if app.config.models.is_empty() {
        tell_routes(&app, "any model", &everything);
    }
    for model in &app.config.models {
        tell_routes(&app, &format!("model {}", model.name), &model.backends);
    }
    for client in &app.config.clients {
        if client.backends.is_none() && client.order.is_empty() {
            continue;
        }
        match models::resolve(&app, None).and_then(|all| all.only(client.backends.as_deref(), &client.order))
        {
            Ok(target) => tell_routes(&app, &format!("client {}", client.name), &target.backends),
            Err(_) => say(format_args!("client {}: none of its backends serves `auto`\n", client.name)),
        }
    }
    Ok(())
}

/// What clients may ask for, and who cannot be asked for at all.
fn tell_names(app: &App) {
    let mut unnamed: Vec<usize> = (0..app.fleet.all().len()).collect();
    say("clients may ask for:");
    for name in models::names(app) {
        let Ok(target) = models::resolve(app, Some(&name)) else { continue };
        unnamed.retain(|backend| !target.backends.contains(backend));
        let backends: Vec<String> =
            app.fleet.at(&target.backends).iter().map(|backend| backend.name().to_owned()).collect();
        say(format_args!("    {name}: {}", backends.join(", ")));
    }
    for backend in app.fleet.at(&unnamed) {
        say(format_args!("    caution: no name leads to {}", backend.name()));
    }
    say("");
}

/// What is odd about somebody who answers and serves no model.
async fn no_engine(backend: &Arc<Backend>) -> Option<String> {
    if backend.state() != BackendState::Up || backend.found().engine.is_some() {
        return None;
    }
    let sent = headers::to_backend(&HeaderMap::new(), &backend.config);
    let asked = backend.send(Method::GET, "/v1/models", sent, Bytes::new());
    let status = match tokio::time::timeout(ASK, asked).await {
        Ok(Ok(reply)) => reply.head.status.as_u16(),
        Ok(Err(_)) | Err(_) => return Some("its list of models does not come".to_owned()),
    };
    Some(match status {
        401 | 403 => format!("it answers {status}: give its key by api_key_env"),
        200 => "its list of models is empty or none: is this an inference server, with a model loaded?"
            .to_owned(),
        status => {
            format!("its list of models answers {status}: is this an inference server, and is the url right?")
        }
    })
}

fn tell_backend(backend: &Arc<Backend>) {
    let found = backend.found();
    let facts = backend.facts();
    let engine = match (backend.engine(), found.version) {
        (Engine::Other, None) => String::new(),
        (engine, None) => format!(", {engine}"),
        (engine, Some(version)) => format!(", {engine} {version}"),
    };
    say(format_args!("{} at {}: {}{engine}", facts.name, backend.config.authority, facts.state));
    let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value}"));
    let soft = facts
        .accumulated
        .map(|limit| format!("conversation {}{}", limit.tokens, if limit.soft { " (soft)" } else { "" }));
    let limits: Vec<String> = [
        number("window", facts.window),
        number("single prompt", facts.single),
        soft,
        number("all together", facts.resident),
        number("slots", facts.slots),
    ]
    .into_iter()
    .flatten()
    .collect();
    let told: Vec<String> = [
        found
            .tool_parser
            .map(|parses| if parses { "parses tool calls" } else { "parses no tool calls" }.to_owned()),
        backend.family().map(|family| format!("its model writes calls as {family}")),
        found.reasoning.map(|member| format!("thoughts in `{member}`")),
        found.images.map(|images| if images { "reads images" } else { "reads no images" }.to_owned()),
        found.counting.map(|counting| format!("counts by {counting}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let names = backend.names();
    say(format_args!(
        "    serves {}",
        if names.is_empty() { "nothing that it told".to_owned() } else { names.join(", ") }
    ));
    say(format_args!(
        "    {}",
        if limits.is_empty() { "no limit is known".to_owned() } else { limits.join(", ") }
    ));
    if !told.is_empty() {
        say(format_args!("    {}", told.join(", ")));
    }
    let needs: Vec<_> = backend.needs().iter().map(|need| need.name()).collect();
    if !needs.is_empty() {
        let whence = if backend.config.needs.is_some() {
            "as configured"
        } else {
            "as it rendered some conversations"
        };
        say(format_args!("    template needs {} ({whence})", needs.join(", ")));
    }
    for (what, rules) in
        [("beside the usual", &backend.config.rules_on), ("switched off", &backend.config.rules_off)]
    {
        if !rules.is_empty() {
            let names: Vec<String> = rules.iter().map(ToString::to_string).collect();
            say(format_args!("    rules {what}: {}", names.join(", ")));
        }
    }
    if let Some(speed) = facts.speed {
        say(format_args!(
            "    first token after {:.1} s of 10000, {:.0} s of 90000 tokens; {} tokens a second",
            speed.seconds(10_000, 0),
            speed.seconds(90_000, 0),
            speed.decode
        ));
    }
    if let Some(other) = &backend.config.same_as {
        say(format_args!("    the same engine as {other}, by its url: they share its slots and memory"));
    }
    if let Some(load) = backend.told_load() {
        say(format_args!("    now {} requests running, {} waiting", load.running, load.waiting));
    }
    if let (Some(said), Some(found)) = (backend.config.engine, found.engine)
        && said != found
    {
        say(format_args!("    caution: configured as {said}, but it answers like {found}"));
    }
    if let (Some(said), Some(found)) = (backend.config.window, found.window)
        && said > found
    {
        say(format_args!("    caution: configured with a window of {said}, but it says {found}"));
    }
    for caution in backend.config.preset.iter().flat_map(|preset| &preset.cautions) {
        say(format_args!("    caution: {caution}"));
    }
}

/// The lengths at which the answer changes, found by asking the decision itself around every limit.
fn tell_routes(app: &App, whose: &str, positions: &[usize]) {
    let backends: Vec<BackendFacts> = app
        .fleet
        .at(positions)
        .iter()
        // What goes where when all are there: who is down now is told above.
        // Facts of their own do not say that one has to be loaded.
        .map(|backend| BackendFacts { state: BackendState::Up, ..backend.facts() })
        .collect();
    // Without the room that some clients need for their compaction call: whose it is does not show here.
    let settings =
        Settings { headroom: app.config.answer.headroom.unwrap_or(0), margin: app.config.answer.margin };
    for (what, agent) in [("chat", false), ("agent with tools", true)] {
        say(format_args!("{whose}, {what}: prompt tokens → backends in turn"));
        let order = |tokens: u64| {
            let request = RequestFacts { agent, ..RequestFacts::plain(PromptSize::Exact(tokens)) };
            let decision = decide(&request, &backends, settings);
            let names = decision.choices.iter().map(|choice| backends[choice.candidate.backend].name.clone());
            names.collect::<Vec<_>>().join(", ")
        };
        for (from, to) in stretches(&backends, &order) {
            let names = order(from);
            let names = if names.is_empty() { "refused: context_length_exceeded".to_owned() } else { names };
            match to {
                Some(to) => say(format_args!("    {from:>9} – {to:<9} {names}")),
                None => say(format_args!("    {from:>9} and more  {names}")),
            }
        }
    }
    say("");
}

/// Stretches of lengths with one order each. The order is looked at on a grid and at every limit, and each change is then
/// narrowed down by halving.
fn stretches(backends: &[BackendFacts], order: &dyn Fn(u64) -> String) -> Vec<(u64, Option<u64>)> {
    let limits = backends.iter().flat_map(|backend| {
        let soft = backend.accumulated.map(|limit| limit.tokens);
        [backend.window, backend.single, backend.resident, soft]
    });
    let mut points: Vec<u64> = (0..=300).map(|step| step * 1000).collect();
    points.extend(limits.flatten().flat_map(|limit| [limit, limit.saturating_add(1)]));
    points.sort_unstable();
    points.dedup();
    let mut stretches = Vec::new();
    let mut from = 0;
    for pair in points.windows(2) {
        let (mut low, mut high) = (pair[0], pair[1]);
        if order(low) == order(high) {
            continue;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if order(middle) == order(low) { low = middle } else { high = middle }
        }
        stretches.push((from, Some(low)));
        from = high;
    }
    stretches.push((from, None));
    stretches
}
