//! Who is calling, and what follows from it for this request: the built-in profile, then the operator's own `[[client]]`.
//!
//! Clues are gathered from headers and body and handed to `switchback_policies::client`; nothing is decided here but which
//! configured entry matches (the first whose conditions all hold).

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use http::HeaderMap;
use serde_json::Value as Json;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;
use switchback_policies::admission::Allowance;
use switchback_policies::client::{
    self, BodyClues, CapField, Class, Clues, Confidence, Dialect as Speaks, FreeTextCalls, KeepAlive,
    OnOverflow, OutputCap, Profile, ReasoningField, Recognised, Usage,
};
use switchback_policies::demand::{CutAnswers, Wishes};

use crate::answer::tidy::AnswerRule;
use crate::call::Call;
use crate::config::{ClientRule, Config, Sampling};
use crate::edits::{RequestRule, Switch};

/// When blanks begin for a client of which nobody knows how long it waits.
const BLANKS_AFTER: Duration = Duration::from_secs(60);

/// The client of one request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The configured entry's name, else the profile's id.
    pub(crate) name: String,
    /// One sentence: what gave it away.
    pub(crate) because: String,
    /// Whom the request comes from: the name of its key, else its address.
    pub(crate) whose: Option<String>,
    origin: Origin,
    /// Who of those behind it, if it says so.
    pub(crate) user: Option<String>,
    pub(crate) class: Class,
    /// What it may have at once.
    pub(crate) allowance: Allowance,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) usage: Usage,
    pub(crate) reasoning: ReasoningField,
    /// What it does when told that a prompt is too long.
    pub(crate) on_overflow: OnOverflow,
    /// In which envelope it takes calls of tools with free text.
    pub(crate) free_text: FreeTextCalls,
    /// When a plain answer that has not come is announced by blanks; `None`: never, it may not read that.
    pub(crate) blanks: Option<Duration>,
    /// The client's own name for the conversation.
    pub(crate) conversation: Option<String>,
    /// Positions of the backends that it may use, in its order; `None`: the model's.
    pub(crate) backends: Option<Vec<usize>>,
    /// Its requests may make a server load another model in place of the one it has.
    pub(crate) may_swap: bool,
    /// Positions of the backends that are tried before the others.
    pub(crate) order: Vec<usize>,
    /// Longer prompts are refused, tokens.
    pub(crate) max_prompt: Option<u64>,
    /// With tools, an output limit of exactly so many tokens is no wish.
    pub(crate) no_limit_at: Option<u64>,
    /// With tools, smaller output limits are raised to this.
    pub(crate) min_output: Option<u64>,
    /// What becomes of calls that are wrong, missing or cut.
    pub(crate) wishes: Wishes,
    /// What becomes of answers whose backend failed in their midst.
    pub(crate) cut_answers: CutAnswers,
    /// A client that the table knows, not just a library.
    pub(crate) is_known: bool,
    /// With a model that thinks, smaller output limits are raised to this, tokens.
    pub(crate) thinking_output: Option<u64>,
    /// The output limit where it asks for none, tokens.
    pub(crate) default_output: Option<u64>,
    /// Rules that do not hold for it, and needs of backends that are not met.
    pub(crate) rules_off: Vec<Switch>,
    /// Rules for answers that hold for it beside the usual ones.
    pub(crate) rules_on: Vec<Switch>,
    /// Members that replace the client's own, or bound them.
    pub(crate) sampling: Vec<(String, Sampling)>,
}

/// What a request came with, and from where.
#[derive(Clone, Debug, Default)]
struct Origin {
    key: Option<String>,
    peer: Option<IpAddr>,
}

/// Finds out who calls. `key`: the operator's name of the key that the request came with.
pub(crate) fn identify(config: &Config, call: &Call, key: Option<&str>) -> Client {
    let texts = Texts::of(call);
    let tools: Vec<&str> = texts.tools.iter().map(AsRef::as_ref).collect();
    let headers = |name: &str| header(&call.headers, name);
    let body = texts.body(call.request.as_deref());
    let clues = Clues {
        headers: &headers,
        key_name: key,
        dialect: speaks(call.endpoint.dialect),
        tools: &tools,
        body: BodyClues { input: call.from_input || body.input, ..body },
    };
    let Recognised { profile, because, confidence } = client::recognise(&clues);
    let because: Vec<String> = because.iter().map(ToString::to_string).collect();
    let client = Client {
        name: profile.id.to_owned(),
        because: because.join(", "),
        whose: key.map(str::to_owned),
        origin: Origin { key: key.map(str::to_owned), peer: None },
        user: clues.header("x-openwebui-user-id").or(texts.user.as_deref()).map(str::to_owned),
        class: client::class(&clues, profile),
        allowance: Allowance::default(),
        keep_alive: profile.keep_alive,
        usage: config.answer.usage.unwrap_or(profile.usage),
        reasoning: config.answer.reasoning.unwrap_or(profile.reasoning),
        on_overflow: profile.on_overflow,
        free_text: profile.free_text,
        blanks: profile.blanks.then(|| blanks_after(profile)),
        conversation: profile.conversation(&clues).map(str::to_owned),
        backends: None,
        may_swap: true,
        order: Vec::new(),
        max_prompt: None,
        no_limit_at: profile.no_limit_at,
        min_output: None,
        wishes: Wishes::default(),
        cut_answers: CutAnswers::default(),
        is_known: confidence > Confidence::Library,
        thinking_output: None,
        default_output: None,
        rules_off: Vec::new(),
        rules_on: Vec::new(),
        sampling: Vec::new(),
    };
    match config.clients.iter().find(|rule| matches(rule, &clues, profile, key)) {
        Some(rule) => client.under(rule),
        None => client,
    }
}

impl Client {
    /// With the operator's own word on it.
    fn under(self, rule: &ClientRule) -> Self {
        Self {
            because: format!("{} ({})", self.because, self.name),
            name: rule.name.clone(),
            whose: self.whose,
            origin: self.origin,
            user: self.user,
            class: rule.class.unwrap_or(self.class),
            allowance: rule.allowance,
            keep_alive: rule.keep_alive.unwrap_or(self.keep_alive),
            usage: rule.usage.unwrap_or(self.usage),
            reasoning: rule.reasoning.unwrap_or(self.reasoning),
            on_overflow: self.on_overflow,
            free_text: self.free_text,
            blanks: match rule.blanks {
                Some(true) => Some(self.blanks.unwrap_or(BLANKS_AFTER)),
                Some(false) => None,
                None => self.blanks,
            },
            conversation: self.conversation,
            backends: rule.backends.clone(),
            may_swap: rule.may_swap,
            order: rule.order.clone(),
            max_prompt: rule.max_prompt,
            no_limit_at: self.no_limit_at,
            min_output: rule.min_output,
            wishes: rule.wishes,
            cut_answers: rule.cut_answers,
            is_known: self.is_known,
            thinking_output: rule.thinking_output,
            default_output: rule.default_output,
            rules_off: rule.rules_off.clone(),
            rules_on: rule.rules_on.clone(),
            sampling: rule.sampling.clone(),
        }
    }

    /// Whether a rule is not switched off for it.
    pub(crate) fn follows(&self, rule: RequestRule) -> bool {
        !self.rules_off.contains(&Switch::Rule(rule))
    }

    /// Whether a rule for answers holds for it.
    pub(crate) fn has_tidied(&self, rule: AnswerRule) -> bool {
        let switch = Switch::Answer(rule);
        !self.rules_off.contains(&switch) && (rule.is_usual() || self.rules_on.contains(&switch))
    }

    /// Coming from this address; a key says more.
    pub(crate) fn at(self, peer: Option<IpAddr>) -> Self {
        let origin = Origin { peer, ..self.origin };
        Self { whose: self.whose.or(peer.map(|peer| peer.to_string())), origin, ..self }
    }

    /// The client of the same request under another configuration.
    pub(crate) fn under_new(&self, config: &Config, call: &Call) -> Self {
        identify(config, call, self.origin.key.as_deref()).at(self.origin.peer)
    }

    /// As if the configured entry of this name had matched.
    pub(crate) fn under_name(self, config: &Config, name: &str) -> Option<Self> {
        config.clients.iter().find(|rule| rule.name == name).map(|rule| self.under(rule))
    }
}

/// The third part of what the client bears: as long as nothing was sent, a failure keeps its true status.
fn blanks_after(profile: &Profile) -> Duration {
    profile.silence.map_or(BLANKS_AFTER, |silence| silence / 3)
}

fn matches(rule: &ClientRule, clues: &Clues<'_>, profile: &Profile, key: Option<&str>) -> bool {
    let when = &rule.when;
    when.profile.as_deref().is_none_or(|wanted| wanted == profile.id)
        && when.api_key_name.as_deref().is_none_or(|wanted| Some(wanted) == key)
        && when.user_agent.as_deref().is_none_or(|wanted| {
            clues
                .header("user-agent")
                .is_some_and(|agent| agent.to_lowercase().contains(&wanted.to_lowercase()))
        })
        && when
            .header
            .iter()
            .all(|(name, wanted)| clues.header(&name.to_lowercase()) == Some(wanted.as_str()))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn speaks(dialect: Option<Dialect>) -> Speaks {
    match dialect {
        Some(Dialect::Chat) => Speaks::Chat,
        Some(Dialect::Completions) => Speaks::Completions,
        Some(Dialect::Messages) => Speaks::Messages,
        Some(Dialect::Responses) => Speaks::Responses,
        None => Speaks::Other,
    }
}

/// Texts of the body that clues borrow: most borrow from the body themselves, escaped ones are decoded once.
#[derive(Default)]
struct Texts<'a> {
    tools: Vec<Cow<'a, str>>,
    tool_choice: Option<Cow<'a, str>>,
    reasoning_effort: Option<Cow<'a, str>>,
    prompt_cache_key: Option<Cow<'a, str>>,
    metadata_session: Option<String>,
    first_user: Option<Cow<'a, str>>,
    user: Option<Cow<'a, str>>,
}

impl<'a> Texts<'a> {
    fn of(call: &'a Call) -> Self {
        let Some(request) = call.request.as_deref() else { return Self::default() };
        let text = |member: &str| request.root().get(member).and_then(Value::as_str);
        let user = request.messages().find(|message| message.role().as_deref() == Some("user"));
        Self {
            tools: request.tools().filter_map(tool_name).collect(),
            tool_choice: text("tool_choice"),
            reasoning_effort: text("reasoning_effort"),
            prompt_cache_key: text("prompt_cache_key"),
            user: text("user").filter(|user| !user.is_empty()),
            metadata_session: request
                .root()
                .at("/metadata/user_id")
                .and_then(Value::as_str)
                .and_then(session_of),
            first_user: user.and_then(|message| message.content()).and_then(first_text),
        }
    }

    fn body(&self, request: Option<&ChatRequest>) -> BodyClues<'_> {
        let Some(request) = request else { return BodyClues::default() };
        let root = request.root();
        let caps = [
            ("max_tokens", CapField::MaxTokens),
            ("max_completion_tokens", CapField::MaxCompletionTokens),
            ("max_output_tokens", CapField::MaxOutputTokens),
        ];
        let cap = caps.into_iter().find_map(|(member, field)| {
            root.get(member).and_then(Value::as_u64).map(|tokens| OutputCap { field, tokens })
        });
        let schema = ["/output_config/format/type", "/response_format/type", "/text/format/type"];
        let input = root.get("input").filter(|_| root.get("messages").is_none());
        BodyClues {
            bytes: request.body().len() as u64,
            cap,
            temperature: root.get("temperature").and_then(Value::as_f64),
            parallel_tool_calls: root.get("parallel_tool_calls").and_then(Value::as_bool),
            tool_choice: self.tool_choice.as_deref(),
            stream: request.stream(),
            include_usage: request.wants_usage(),
            input: input.is_some(),
            store: root.get("store").and_then(Value::as_bool),
            reasoning_effort: self.reasoning_effort.as_deref(),
            prompt_cache_key: self.prompt_cache_key.as_deref(),
            metadata_session: self.metadata_session.as_deref(),
            structured: schema
                .iter()
                .any(|at| root.at(at).and_then(Value::as_str).as_deref() == Some("json_schema")),
            messages: input.map_or_else(|| request.messages().count(), |input| input.elements().count()),
            first_user: self.first_user.as_deref(),
        }
    }
}

/// `{type, function: {name}}`, `{name}`, or a built-in tool that has only a type.
fn tool_name(tool: Value<'_>) -> Option<Cow<'_, str>> {
    let name = tool.at("/function/name").or_else(|| tool.get("name")).or_else(|| tool.get("type"));
    name.and_then(Value::as_str)
}

fn first_text(content: Value<'_>) -> Option<Cow<'_, str>> {
    content.as_str().or_else(|| content.elements().find_map(|part| part.get("text").and_then(Value::as_str)))
}

/// Claude Code sends its session in a JSON text.
fn session_of(user_id: Cow<'_, str>) -> Option<String> {
    let read: Json = serde_json::from_str(&user_id).ok()?;
    read.get("session_id").and_then(Json::as_str).map(str::to_owned)
}
