//! From a decision's rules to edits of the request: what changes for every candidate, and what for one.
//!
//! All else leaves byte for byte. A rule that the request gives no place for changes nothing.

mod constrain;
mod drop;
mod engine;
mod rules;
mod volatile;
mod without;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value as Json;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::edit::Edits;
use switchback_parsers::history;
use switchback_parsers::json::Value;
use switchback_parsers::needs::{self, Need};
use switchback_parsers::request::ChatRequest;
use switchback_parsers::tool_call::{Options, ToolChoice};
use switchback_policies::client::KeepAlive;
use switchback_policies::decision::{Choice, Rule};

pub(crate) use self::constrain::constrained;
pub(crate) use self::rules::{RequestRule, Switch};
pub(crate) use self::volatile::BILLING;
pub(crate) use self::without::without;
use crate::backend::Backend;
use crate::call::Call;
use crate::config::Config;
use crate::identify::Client;

/// What stands in place of a picture that the backend cannot read.
const NO_PICTURE: &str = r#"{"type":"text","text":"[a picture stood here]"}"#;

/// Changes of a request, and the names of those that a client may want to know of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    edits: Edits,
    named: Vec<String>,
}

impl Changes {
    /// Makes a change; it is named if it changes anything.
    fn make(&mut self, name: impl Into<String>, change: impl FnOnce(&mut Edits)) {
        let before = self.edits.len();
        change(&mut self.edits);
        if self.edits.len() > before {
            self.named.push(name.into());
        }
    }
}

/// A body as one candidate gets it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) body: Bytes,
    /// What differs from the client's own, for the header and the log.
    pub(crate) adjusted: Vec<String>,
}

/// Whether a rule acts for this client at this backend: it is usual for the engine or switched on, and nobody switched it off.
pub(crate) fn is_on(rule: RequestRule, client: &Client, backend: &Backend) -> bool {
    let switch = Switch::Rule(rule);
    let config = &backend.config;
    let usual = || rule.is_usual(backend.engine()) || config.rules_on.contains(&switch);
    client.follows(rule) && !config.rules_off.contains(&switch) && usual()
}

/// Whether a rule of a decision holds.
pub(crate) fn allows(rule: Rule, client: &Client, backend: &Backend) -> bool {
    let rule = match rule {
        Rule::LimitOutput(_) => RequestRule::FitOutput,
        Rule::RaiseOutput(_) => RequestRule::RaiseOutput,
        Rule::ReplaceImages => RequestRule::Pictures,
        // The operator's own words.
        Rule::SetOutput(_) | Rule::WeakenToolChoice | Rule::AskWhole => return true,
    };
    is_on(rule, client, backend)
}

/// Changes of what the client sent, whatever the backend: its history, no volatile line at the prompt's head, the operator's
/// sampling for this client.
fn base(call: &Call, client: &Client, config: &Config, is_on: impl Fn(RequestRule) -> bool) -> Changes {
    let mut changes = Changes::default();
    let Some(request) = &call.request else { return changes };
    if call.only_allowed {
        changes.named.push("tools that tool_choice does not allow left out".to_owned());
    }
    if config.repair.history && call.endpoint.dialect == Some(Dialect::Chat) && is_on(RequestRule::History) {
        let mended = history::mend(request);
        for note in mended.notes {
            tracing::info!(id = call.id, note, "history mended");
        }
        changes.make("history mended", |edits| *edits = mended.edits);
    }
    if config.strip_volatile && is_on(RequestRule::VolatileLines) {
        changes.make("volatile lines left out", |edits| volatile::strip(request, edits));
    }
    for (member, sampling) in &client.sampling {
        let sent = request.root().get(member).filter(|sent| !sent.is_null());
        if let Some(number) = sampling.instead_of(sent.and_then(Value::as_f64)) {
            changes
                .make(format!("{member} set to {number}"), |edits| edits.set(request.root(), member, number));
        }
    }
    changes
}

/// Asks for the usage of a stream, for the books. It does not show, but for llama.cpp: that moves its `timings` to the
/// usage chunk, and they tell as much where they were; so it is asked only if the client or the operator wants usage.
fn ask_usage(call: &Call, request: &ChatRequest, engine: Engine, always: bool, edits: &mut Edits) {
    let streams = matches!(call.endpoint.dialect, Some(Dialect::Chat | Dialect::Completions)) && call.stream;
    if !streams || request.wants_usage() || (engine == Engine::LlamaCpp && !always) {
        return;
    }
    match request.root().get("stream_options").filter(|options| !options.is_null()) {
        Some(options) => edits.set(options, "include_usage", "true"),
        None => edits.set(request.root(), "stream_options", r#"{"include_usage":true}"#),
    }
}

/// Whether a backend is asked how far it has read the prompt: llama.cpp tells, for a client that may hear it in comments.
pub(crate) fn asks_progress(call: &Call, client: &Client, backend: &Backend) -> bool {
    let own = call.request.as_ref().is_some_and(|request| request.root().get("return_progress").is_some());
    let hears = client.keep_alive == KeepAlive::Comment && call.stream && !own;
    hears && call.endpoint.dialect == Some(Dialect::Chat) && is_on(RequestRule::Progress, client, backend)
}

/// The body for one candidate.
pub(crate) fn write(
    call: &Call,
    client: &Client,
    backend: &Backend,
    choice: &Choice,
    config: &Config,
    always_ask_usage: bool,
) -> Written {
    let Some(request) = &call.request else {
        return Written { body: call.body.clone(), adjusted: Vec::new() };
    };
    let is_on = |rule| is_on(rule, client, backend);
    let base = base(call, client, config, is_on);
    let root = request.root();
    let mut changes = Changes::default();
    // Bookkeeping, of which nobody needs to hear.
    if !backend.config.drop.iter().any(|place| place.starts_with("/stream_options")) {
        ask_usage(call, request, backend.engine(), always_ask_usage, &mut changes.edits);
    }
    if asks_progress(call, client, backend) {
        changes.edits.set(root, "return_progress", "true");
    }
    if let Some(name) = backend.name_for(call.model.as_deref()) {
        changes.edits.set(root, "model", Json::from(name).to_string());
    }
    let limit = limit_name(call.endpoint.dialect, backend);
    for rule in &choice.rules {
        changes.make(rule.to_string(), |edits| carry_out(*rule, request, limit, edits));
    }
    let weakened = choice.rules.contains(&Rule::WeakenToolChoice);
    let is_chat = call.endpoint.dialect == Some(Dialect::Chat);
    if let Some(dialect) = call.endpoint.dialect.filter(|dialect| *dialect != Dialect::Completions)
        && config.repair.tool_calls
        && backend.parses_no_tools()
        && is_on(RequestRule::NoParser)
    {
        let keywords = &backend.config.drop_schema_keywords;
        without_parser(request, dialect, weakened, keywords, &mut changes);
    }
    let mut needs = backend.needs();
    needs.retain(|need| !client.rules_off.contains(&Switch::Need(*need)));
    if is_chat {
        if is_on(RequestRule::EmptyMembers) {
            engine::without_the_meaningless(request, call.stream, &mut changes);
        }
        if is_on(RequestRule::OtherTools) {
            engine::without_other_tools(request, &mut changes);
        }
        if is_on(RequestRule::NamedChoice) {
            engine::require_the_named(request, &mut changes);
        }
        if is_on(RequestRule::OutputName) || backend.config.output_limit.is_some() {
            engine::name_limit(request, limit, choice.output().or(request.output_limit()), &mut changes);
        } else if is_on(RequestRule::OneLimit) && choice.output().is_none() {
            engine::one_limit(request, &mut changes);
        }
        for need in &needs {
            changes.make(need.done(), |edits| needs::meet(request, *need, edits));
        }
    }
    for place in &backend.config.drop {
        changes.make(format!("{place} left out"), |edits| drop::place(request, place, edits));
    }
    for keyword in &backend.config.drop_schema_keywords {
        changes.make(format!("schema keyword {keyword} left out"), |edits| {
            drop::keyword(request, keyword, edits);
        });
    }
    let adjusted = [base.named.as_slice(), &changes.named].concat();
    arranged(call, &needs, Written { body: request.write(&base.edits, &changes.edits), adjusted })
}

/// The name under which a limit is sent that the client did not name.
fn limit_name(dialect: Option<Dialect>, backend: &Backend) -> &'static str {
    match dialect {
        Some(Dialect::Responses) => "max_output_tokens",
        Some(Dialect::Chat) => backend.config.output_limit.unwrap_or("max_tokens"),
        _ => "max_tokens",
    }
}

/// The request as the backend's template reads it, to be counted; the very same if that takes it as it came.
pub(crate) fn readable(call: &Call, request: &Arc<ChatRequest>, needs: &[Need]) -> Arc<ChatRequest> {
    let mut edits = Edits::new();
    if call.endpoint.dialect == Some(Dialect::Chat) {
        needs.iter().for_each(|need| needs::meet(request, *need, &mut edits));
    }
    let body = request.write(&Edits::new(), &edits);
    let written = arranged(call, needs, Written { body, adjusted: Vec::new() });
    if edits.is_empty() && written.adjusted.is_empty() {
        return request.clone();
    }
    ChatRequest::parse(written.body).map_or_else(|_| request.clone(), Arc::new)
}

/// Turns as the template wants them. Last, and on the body as it was to be sent: what is joined holds all other changes.
fn arranged(call: &Call, needs: &[Need], mut written: Written) -> Written {
    let apart = match call.endpoint.dialect {
        Some(Dialect::Chat) => false,
        Some(Dialect::Messages) => true,
        Some(Dialect::Completions | Dialect::Responses) | None => return written,
    };
    if !needs.iter().any(|need| need.is_of_turns()) {
        return written;
    }
    let Ok(request) = ChatRequest::parse(written.body.clone()) else { return written };
    let arranged = needs::arrange(&request, needs, apart);
    let mut edits = Edits::new();
    for (member, json) in [("messages", arranged.messages), ("system", arranged.system)] {
        if let Some(json) = json {
            edits.set(request.root(), member, json);
        }
    }
    written.adjusted.extend(arranged.acted.iter().map(|need| need.done().to_owned()));
    Written { body: request.write(&Edits::new(), &edits), ..written }
}

fn carry_out(rule: Rule, request: &ChatRequest, limit: &str, edits: &mut Edits) {
    match rule {
        Rule::LimitOutput(tokens) | Rule::RaiseOutput(tokens) => set_output(request, tokens, edits),
        Rule::SetOutput(tokens) => edits.set(request.root(), limit, tokens.to_string()),
        Rule::ReplaceImages => {
            for image in request.messages().flat_map(|message| message.images()) {
                edits.replace(image, NO_PICTURE);
            }
        }
        Rule::WeakenToolChoice => edits.set(request.root(), "tool_choice", "\"auto\""),
        Rule::AskWhole => {
            edits.set(request.root(), "stream", "false");
            edits.remove(request.root(), "stream_options");
        }
    }
}

/// For a vLLM without a parser: it refuses `auto` and renders the tools all the same with `none`; the calls are found in its text.
fn without_parser(
    request: &ChatRequest,
    dialect: Dialect,
    weakened: bool,
    keywords: &[String],
    changes: &mut Changes,
) {
    if weakened || is_auto(request, dialect) {
        // Its Responses take `auto` as it is (0.32).
        if dialect != Dialect::Responses {
            changes.make("calls read here, so tool_choice sent as none", |edits| {
                edits.set(request.root(), "tool_choice", constrain::none(dialect));
            });
        }
    } else if let Some(named) = demanded(request, dialect) {
        // It refuses these, too, or passes over them; an answer that can be nothing but such a call is what they ask for.
        changes.make("calls read here, so the demanded call is asked for as JSON", |edits| {
            constrained(request, dialect, named.as_deref(), keywords, edits);
        });
    }
}

/// Tools are declared, and the choice is the model's.
fn is_auto(request: &ChatRequest, dialect: Dialect) -> bool {
    let choice = request.root().get("tool_choice").filter(|choice| !choice.is_null());
    let word = choice.and_then(|choice| match dialect {
        Dialect::Messages => choice.get("type").and_then(Value::as_str),
        _ => choice.as_str(),
    });
    let left_open = choice.is_none() || word.as_deref() == Some("auto");
    left_open && request.tools().next().is_some()
}

/// Whether the client demands a call, and of which tool if it names one.
fn demanded(request: &ChatRequest, dialect: Dialect) -> Option<Option<String>> {
    request.tools().next()?;
    match Options::in_dialect(request, dialect).tool_choice {
        ToolChoice::Required => Some(None),
        ToolChoice::Named(name) => Some(Some(name)),
        ToolChoice::Auto | ToolChoice::None => None,
    }
}

/// Under all names under which the client has set a limit: engines differ in which of them they read.
pub(crate) fn set_output(request: &ChatRequest, tokens: u64, edits: &mut Edits) {
    for member in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        if request.root().get(member).is_some_and(|limit| limit.as_u64().is_some_and(|own| own != tokens)) {
            edits.set(request.root(), member, tokens.to_string());
        }
    }
}
