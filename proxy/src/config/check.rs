//! From the file as written to a configuration that makes sense, with all complaints at once.
//!
//! A complaint names the key, what stands there, and what would be right. Nothing is opened here but the files with keys.

use std::net::SocketAddr;
use std::path::Path;

use http::Uri;
use http::uri::Authority;
use switchback_policies::admission::Rules;
use switchback_policies::debt;
use switchback_policies::session::LoopLimit;

use super::{
    Answer, Backend, ClientRule, Config, Failover, Key, Model, Probe, Repair, Server, backend, client, file,
    loader, secret,
};
use crate::cliffs;
use crate::edits::Switch;

/// TOML's own message, with the nearest known key where a key is unknown.
pub(super) fn syntax(error: &toml::de::Error) -> String {
    let mut text = error.to_string().trim_end().to_owned();
    let message = error.message();
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let mut names = rest.split('`');
        let unknown = names.next().unwrap_or_default();
        // What follows is `, expected one of `, a name, `, `, a name …: every second piece is a name.
        let known: Vec<&str> = names.skip(1).step_by(2).collect();
        if let Some(near) = nearest(unknown, known.iter().copied()) {
            text.push_str(&format!("\nhint: did you mean `{near}`?"));
        }
    }
    text
}

/// More than a process has file descriptors for.
const MOST_CONNECTIONS: usize = 1_000_000;

/// Longer names are no typing mistakes, and the comparison takes time with their length.
const LONGEST_NAME: usize = 128;

/// The name that is nearest to what was written, if it is near at all.
pub(crate) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > LONGEST_NAME {
        return None;
    }
    known
        .filter(|name| name.len() <= LONGEST_NAME)
        .map(|name| (strsim::normalized_damerau_levenshtein(written, name), name))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

/// Rules by their names, with a complaint about each name that is none.
pub(super) fn switches(key: &str, written: &[String], complain: &mut impl FnMut(String)) -> Vec<Switch> {
    let switch = |name: &String| {
        let switch = Switch::named(name);
        if switch.is_none() {
            let near = nearest(name, Switch::names()).map(|near| format!("did you mean {near}? "));
            complain(format!(
                "{key}: there is no rule {name}\nhint: {}`switchback rules` names them all",
                near.unwrap_or_default()
            ));
        }
        switch
    };
    written.iter().filter_map(switch).collect()
}

/// A port of this machine.
pub(super) fn loopback(port: u16) -> Authority {
    // The address is a constant, and a number cannot spoil it.
    Authority::from_maybe_shared(format!("127.0.0.1:{port}"))
        .unwrap_or_else(|_| Authority::from_static("127.0.0.1:80"))
}

/// What a file without any key means.
pub(super) fn defaults() -> Config {
    let file = file::File::default();
    let mut none = Vec::new();
    Config {
        server: meant(file.server, Vec::new(), SocketAddr::from(([127, 0, 0, 1], 4000))),
        backends: Vec::new(),
        models: Vec::new(),
        clients: Vec::new(),
        sticky: file.routing.sticky,
        strip_volatile: file.routing.strip_volatile,
        prewarm: file.routing.prewarm,
        repair: repair(&file.repair),
        admission: admission(&file.admission, &mut none),
        failover: failover(&file.failover, &mut none),
        cliffs: cliffs(file.cliffs, Path::new(""), file.failover.death_is_overflow_above),
        answer: answer(&file.answer, &mut none),
        probe: Probe { interval: file.probe.interval, timeout: file.probe.timeout },
        loader: None,
    }
}

fn repair(written: &file::Repair) -> Repair {
    Repair {
        tool_calls: written.tool_calls == file::ToolCalls::Auto,
        history: written.history,
        calls_in_thoughts: written.calls_in_thoughts,
        one_call: written.one_call,
    }
}

fn cliffs(written: file::Cliffs, base: &Path, floor: u64) -> cliffs::Settings {
    let file = written.file.map(|file| base.join(file));
    cliffs::Settings { file, learn: written.learn, explore: written.explore, floor }
}

/// Checks the whole file.
pub(super) fn check(file: file::File, base: &Path) -> Result<Config, Vec<String>> {
    let mut complaints = Vec::new();
    let server = server(file.server, base, &mut complaints);
    let has_loads = file.backend.iter().any(|backend| backend.load.is_some() || backend.gpus.is_some());
    let mut backends: Vec<Backend> = (1..)
        .zip(file.backend)
        .filter_map(|(nth, written)| backend::check(nth, written, file.loader.as_ref(), &mut complaints))
        .collect();
    repeated(backends.iter().map(|backend| backend.name.as_str()), "[[backend]] name", &mut complaints);
    if file.loader.is_none() {
        backend::same(&mut backends);
    }
    let models: Vec<Model> =
        file.model.into_iter().map(|written| model(written, &backends, base, &mut complaints)).collect();
    let names = models.iter().flat_map(|model| std::iter::once(&model.name).chain(&model.aliases));
    repeated(names.map(String::as_str), "[[model]] name or alias", &mut complaints);
    let clients: Vec<ClientRule> =
        file.client.into_iter().map(|written| client::check(written, &backends, &mut complaints)).collect();
    repeated(clients.iter().map(|client| client.name.as_str()), "[[client]] name", &mut complaints);
    if let Some(at) = clients.iter().position(|client| client.when.is_always()) {
        for unreached in &clients[at + 1..] {
            complaints.push(format!(
                "[[client]] {}: is never reached, since {} before it has no `when` and takes every request\nhint: put {} last",
                unreached.name, clients[at].name, clients[at].name
            ));
        }
    }
    if backends.is_empty() && complaints.is_empty() {
        complaints.push(
            "no [[backend]] is configured\nhint: add one, e.g. `[[backend]]`, `name = \"local\"`, \
             `url = \"http://127.0.0.1:8000\"`"
                .to_owned(),
        );
    }
    let cliffs = cliffs(file.cliffs, base, file.failover.death_is_overflow_above);
    let admission = admission(&file.admission, &mut complaints);
    let failover = failover(&file.failover, &mut complaints);
    let answer = answer(&file.answer, &mut complaints);
    if file.probe.interval.is_zero() || file.probe.timeout.is_zero() {
        complaints.push("[probe] interval and timeout must be above 0".to_owned());
    }
    let loader =
        file.loader.and_then(|written| loader::check(&written, file.admission.queue, &mut complaints));
    if let Some(loader) = &loader {
        loader::together(loader, &backends, has_loads, &mut complaints);
    }
    let probe = Probe { interval: file.probe.interval, timeout: file.probe.timeout };
    match server {
        Some(server) if complaints.is_empty() => Ok(Config {
            server,
            backends,
            models,
            clients,
            sticky: file.routing.sticky,
            strip_volatile: file.routing.strip_volatile,
            prewarm: file.routing.prewarm,
            repair: repair(&file.repair),
            admission,
            failover,
            cliffs,
            answer,
            probe,
            loader,
        }),
        _ => Err(complaints),
    }
}

fn server(written: file::Server, base: &Path, complaints: &mut Vec<String>) -> Option<Server> {
    let mut keys = Vec::new();
    let from_env = written.api_keys_env.as_deref().map(secret::keys_from_env);
    let from_file = written.api_keys_file.as_deref().map(|path| secret::keys_from_file(&base.join(path)));
    for (key, found) in [("api_keys_env", from_env), ("api_keys_file", from_file)] {
        match found {
            Some(Ok(found)) => keys.extend(found),
            Some(Err(problem)) => complaints.push(format!("[server] {key}: {problem}")),
            None => {}
        }
    }
    if written.max_connections == 0 || written.max_connections > MOST_CONNECTIONS {
        complaints.push(format!("[server] max_connections must be above 0 and at most {MOST_CONNECTIONS}"));
    }
    if written.max_body < 1024 {
        complaints.push("[server] max_body must be at least 1KiB".to_owned());
    }
    for origin in &written.allowed_origins {
        let is_origin = origin == "*"
            || origin.parse::<Uri>().is_ok_and(|uri| {
                uri.scheme().is_some()
                    && uri.authority().is_some()
                    && uri.path() == "/"
                    && !origin.ends_with('/')
            });
        if !is_origin {
            complaints.push(format!(
                "[server] allowed_origins: \"{origin}\" is not an origin\nhint: scheme, host and port without a path, e.g. \
                 \"http://192.168.1.5:3000\""
            ));
        }
    }
    let listen = match written.listen.parse::<SocketAddr>() {
        Ok(listen) => listen,
        Err(_) => {
            complaints.push(format!(
                "[server] listen: \"{}\" is not an address and port\nhint: \"127.0.0.1:4000\", or \"0.0.0.0:4000\" for all \
                 interfaces",
                written.listen
            ));
            return None;
        }
    };
    let says_keys = written.api_keys_env.is_some() || written.api_keys_file.is_some();
    let keys_file = written.api_keys_file.as_deref().map(|path| base.join(path));
    let server = Server { keys_file, ..meant(written, keys, listen) };
    let keys_failed = server.keys.is_empty() && says_keys;
    complaints.extend(exposure(&server).filter(|_| !keys_failed));
    Some(server)
}

fn meant(written: file::Server, keys: Vec<Key>, listen: SocketAddr) -> Server {
    Server {
        listen,
        keys,
        keys_env: written.api_keys_env,
        keys_file: None,
        open: written.open,
        allowed_origins: written.allowed_origins,
        max_body: written.max_body,
        max_connections: written.max_connections,
        read_timeout: written.read_timeout,
        idle_timeout: written.idle_timeout,
        drain: written.drain,
    }
}

/// Listening beyond loopback must be meant.
pub(super) fn exposure(server: &Server) -> Option<String> {
    (!server.listen.ip().is_loopback() && server.keys.is_empty() && !server.open).then(|| {
        format!(
            "[server] listen: {} can be reached from other machines, and no keys are set\nhint: set api_keys_env or \
             api_keys_file, or open = true if everybody who reaches this port may use it",
            server.listen
        )
    })
}

fn model(written: file::Model, backends: &[Backend], base: &Path, complaints: &mut Vec<String>) -> Model {
    let mut positions = Vec::new();
    for name in &written.backends {
        match backends.iter().position(|backend| backend.name == *name) {
            Some(position) if positions.contains(&position) => {
                complaints.push(format!("[[model]] {}: backends: {name} is listed twice", written.name));
            }
            Some(position) => positions.push(position),
            None => {
                let near = nearest(name, backends.iter().map(|backend| backend.name.as_str()));
                let hint = near.map(|near| format!("\nhint: did you mean {near}?")).unwrap_or_default();
                complaints.push(format!("[[model]] {}: backends: there is no {name}{hint}", written.name));
            }
        }
    }
    if written.backends.is_empty() {
        positions = (0..backends.len()).collect();
    }
    Model {
        name: written.name,
        aliases: written.aliases,
        backends: positions,
        tokenizer: written.tokenizer.map(|path| base.join(path)),
    }
}

fn repeated<'a>(names: impl Iterator<Item = &'a str>, what: &str, complaints: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            complaints.push(format!("{what} {name} is used twice"));
        }
    }
}

fn admission(written: &file::Admission, complaints: &mut Vec<String>) -> Rules {
    if written.queue_timeout.is_zero() {
        complaints.push(
            "[admission] queue_timeout must be above 0\nhint: queue = 0 refuses at once what would have to wait"
                .to_owned(),
        );
    }
    if written.large_prefill_wait > written.queue_timeout {
        complaints.push(format!(
            "[admission] large_prefill_wait ({:?}) is longer than queue_timeout ({:?}), after which a request is refused",
            written.large_prefill_wait, written.queue_timeout
        ));
    }
    Rules {
        enabled: written.enabled,
        max_victim_stall: written.max_victim_stall,
        large_prefill_wait: written.large_prefill_wait,
        queue: written.queue,
        queue_timeout: written.queue_timeout,
    }
}

fn failover(written: &file::Failover, complaints: &mut Vec<String>) -> Failover {
    if written.attempts == 0 {
        complaints.push("[failover] attempts must be above 0".to_owned());
    }
    for (key, value) in [
        ("connect", written.connect),
        ("first_token", written.first_token),
        ("stall", written.stall),
        ("whole", written.whole),
        ("keep_alive", written.keep_alive),
    ] {
        if value.is_zero() {
            complaints.push(format!("[failover] {key} must be above 0"));
        }
    }
    let again = written.prefill_again;
    Failover {
        attempts: written.attempts,
        connect: written.connect,
        first_token: written.first_token,
        stall: written.stall,
        whole: written.whole,
        hold_head: written.hold_head,
        keep_alive: written.keep_alive,
        loading: written.loading,
        death_is_overflow_above: written.death_is_overflow_above,
        silent_truncation: written.silent_truncation,
        prefill_again: debt::Bounds { request: again.request, backend: again.backend, minute: again.minute },
    }
}

fn answer(written: &file::Answer, complaints: &mut Vec<String>) -> Answer {
    if written.overflow_loop.count == 0 {
        complaints.push("[answer] overflow_loop.count must be above 0".to_owned());
    }
    Answer {
        usage: written.usage.map(Into::into),
        reasoning: written.reasoning.map(Into::into),
        model_name: written.model_name,
        ask_usage: written.ask_usage,
        headroom: written.compaction_headroom,
        margin: written.window_margin,
        overflow_loop: LoopLimit { count: written.overflow_loop.count, within: written.overflow_loop.within },
    }
}
