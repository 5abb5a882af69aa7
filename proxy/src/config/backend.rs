//! `[[backend]]`: where it is, what it is, and what it survives.

use http::uri::{Authority, Uri};
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::needs::Need;
use switchback_parsers::tool_call::format_names;

use super::check::{nearest, switches};
use super::{Backend, Limits, file, loader, secret};
use crate::edits::Switch;
use crate::preset::{self, Preset};

/// Checks the `nth` entry, counted from 1; `None` if it cannot even be reached.
pub(super) fn check(
    nth: usize,
    written: file::Backend,
    loader: Option<&loader::Written>,
    complaints: &mut Vec<String>,
) -> Option<Backend> {
    let known = written.preset.as_deref().map(|slug| (slug, preset::get(slug)));
    let preset: Option<&'static Preset> = known.and_then(|(_, preset)| preset);
    // `vllm/dual` is called `dual` if nobody names it.
    let variant = preset.and_then(|preset| preset.slug.rsplit('/').next());
    let name = written.name.or(variant.map(str::to_owned)).unwrap_or_default();
    let called = if name.is_empty() { format!("number {nth}") } else { name.clone() };
    let mut complain = |text: String| complaints.push(format!("[[backend]] {called}: {text}"));
    let unknown_preset = matches!(known, Some((_, None)));
    if name.is_empty() {
        // A preset has a name and a url: one complaint about it is enough.
        if !unknown_preset {
            complain("name is missing".to_owned());
        }
    } else if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        complain("name must be one word of visible ascii characters, since it is sent in headers".to_owned());
    }
    if let Some((slug, None)) = known {
        let near =
            preset::nearest(slug).map(|near| format!("\nhint: did you mean {near}?")).unwrap_or_default();
        complain(format!("preset: there is no {slug}{near}"));
    }
    let engine = match written.engine.as_deref().map(str::parse::<Engine>) {
        Some(Ok(engine)) => Some(engine),
        Some(Err(_)) => {
            complain(format!(
                "engine: \"{}\" is unknown\nhint: vllm, llama-cpp, ik-llama, sglang, ollama, lm-studio, tgi or other; absent: \
                 it is asked",
                written.engine.as_deref().unwrap_or_default()
            ));
            None
        }
        None => None,
    };
    let limits = Limits {
        single: written.limit.single,
        accumulated: written.limit.accumulated,
        resident: written.limit.resident,
    };
    for (key, value) in [
        ("window", written.window),
        ("limit.single", limits.single),
        ("limit.accumulated", limits.accumulated),
        ("limit.resident", limits.resident),
        ("slots", written.slots),
    ] {
        if value == Some(0) {
            complain(format!("{key} must be above 0"));
        }
    }
    if let (Some(single), Some(window)) = (limits.single, written.window)
        && single > window
    {
        complain(format!("limit.single {single} is above the window {window}"));
    }
    for place in written.drop.iter().filter(|place| !place.starts_with('/')) {
        complain(format!(
            "drop: {place} is no place of a request\nhint: e.g. \"/store\" or \"/tools/*/function/strict\""
        ));
    }
    for place in written.drop.iter().filter(|place| ["/", "/model", "/messages"].contains(&place.as_str())) {
        complain(format!(
            "drop: without {place} nothing would be left to ask\nhint: name the member that is refused"
        ));
    }
    let needs = |need| written.needs.iter().flatten().any(|own| *own == need);
    if needs(Need::SystemFirst) && needs(Need::LateSystemAsUser) {
        complain("needs: system-first and late-system-as-user are two ways of the same; take one".to_owned());
    }
    let rules_on = switches("rules_on", &written.rules_on, &mut complain);
    let rules_off = switches("rules_off", &written.rules_off, &mut complain);
    if let Some(other) = rules_on.iter().chain(&rules_off).find(|rule| matches!(rule, Switch::Answer(_))) {
        complain(format!(
            "rules_on and rules_off: {other} is about what a client reads\nhint: set it under [[client]]"
        ));
    }
    if let Some(both) = rules_on.iter().find(|rule| rules_off.contains(rule)) {
        complain(format!("rules_on and rules_off: {both} is in both"));
    }
    if written.thinking_tags.iter().flatten().any(|tag| tag.trim().is_empty()) {
        complain("thinking_tags must be two texts, e.g. [\"<think>\", \"</think>\"]".to_owned());
    }
    let format = match written.format.as_deref() {
        None | Some("auto") => None,
        Some(name) => {
            let known = format_names();
            let format = known.iter().copied().find(|known| *known == name);
            if format.is_none() {
                let near = nearest(name, known.iter().copied()).unwrap_or("auto");
                complain(format!(
                    "format: {name} is no format of tool calls\nhint: did you mean {near}? `switchback repair --formats` names them all"
                ));
            }
            format
        }
    };
    let key = match written.api_key_env.as_deref().map(secret::keys_from_env) {
        Some(Ok(mut keys)) if keys.len() == 1 => keys.pop().map(|key| key.secret),
        Some(Ok(_)) => {
            complain("api_key_env holds several keys, a backend takes one".to_owned());
            None
        }
        Some(Err(problem)) => {
            complain(format!("api_key_env: {problem}"));
            None
        }
        None => None,
    };
    let said = loader::Said {
        gpus: written.gpus,
        load: written.load,
        preset,
        model: written.model.as_deref(),
        engine: engine.or(preset.map(|preset| preset.engine)),
    };
    let load = loader::load(loader, said, &mut complain);
    // llama-swap lists the names of all that it could load: only its own leads to this one.
    let model = written.model.or_else(|| load.as_ref().and_then(loader::Load::name_to_ask_for));
    let url = written.url.or(preset.map(|preset| format!("http://127.0.0.1:{}", preset.port)));
    let Some(url) = url else {
        if unknown_preset {
            return None;
        }
        complain("url is missing\nhint: e.g. url = \"http://127.0.0.1:8000\"".to_owned());
        return None;
    };
    match address(&url) {
        Ok((authority, prefix)) => Some(Backend {
            authority,
            prefix,
            preset,
            engine,
            window: written.window,
            limits,
            slots: written.slots,
            same_as: None,
            long_prefill: written.long_prefill,
            tool_parser: written.tool_parser,
            format,
            thinking_open: written.thinking_open,
            thinks: written.thinks,
            thinking_tags: written.thinking_tags,
            output_limit: written.output_limit.map(file::OutputLimit::name),
            needs: written.needs,
            drop: written.drop,
            drop_schema_keywords: written.drop_schema_keywords,
            rules_on,
            rules_off,
            model,
            images: written.images,
            streamed_required: written.streamed_required.map(Into::into).unwrap_or_default(),
            quality: written.quality,
            key,
            load,
            name,
        }),
        Err(problem) => {
            complain(format!("url \"{url}\": {problem}\nhint: e.g. \"http://127.0.0.1:8000\""));
            None
        }
    }
}

/// Host and port, and the path before `/v1`. People paste base URLs with and without `/v1`; both mean the same.
pub(super) fn address(url: &str) -> Result<(Authority, String), &'static str> {
    let uri: Uri = url.trim().parse().map_err(|_| "not a url")?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err("https to backends is not supported: they are reached over http"),
        _ => return Err("must start with http://"),
    }
    let authority = uri.authority().ok_or("has no host")?;
    if authority.as_str().contains('@') {
        return Err("must not hold a user or password: use api_key_env");
    }
    if uri.query().is_some() {
        return Err("must not hold a query");
    }
    let host = authority.host();
    let written = authority.as_str().strip_prefix(host).unwrap_or_default();
    let port = match written.strip_prefix(':') {
        None => 80,
        Some(port) => port.parse().ok().filter(|port: &u16| *port > 0).ok_or("has a port that is none")?,
    };
    if host.is_empty() {
        return Err("has no host");
    }
    let authority: Authority = format!("{host}:{port}").parse().map_err(|_| "has no usable host")?;
    let path = uri.path().trim_end_matches('/');
    let prefix = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/');
    Ok((authority, prefix.to_owned()))
}

/// Entries that are one engine under several names share its places: the same url, and no other model. Where a loader takes turns
/// on one port, each is an engine of its own.
pub(super) fn same(backends: &mut [Backend]) {
    for at in 1..backends.len() {
        let (before, rest) = backends.split_at_mut(at);
        let Some(backend) = rest.first_mut() else { return };
        let one = |other: &&Backend| {
            (&other.authority, &other.prefix) == (&backend.authority, &backend.prefix)
                && (other.model == backend.model || other.model.is_none() || backend.model.is_none())
        };
        let other = before.iter().find(one);
        backend.same_as = other.map(|other| other.same_as.clone().unwrap_or_else(|| other.name.clone()));
    }
}
