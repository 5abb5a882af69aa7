//! The configuration as it is written: one struct per table of the TOML file, every key optional, unknown keys refused.
//!
//! Only reading happens here. Whether the values make sense together is for [`super::check`]; nothing else in the
//! program sees these types.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use switchback_parsers::needs::Need;
use switchback_policies::admission::Rules;
use switchback_policies::{client, demand, facts};

use super::{loader, words};

mod entry;

pub(super) use entry::Client;
pub(crate) use entry::When;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) server: Server,
    pub(super) backend: Vec<Backend>,
    pub(super) model: Vec<Model>,
    pub(super) client: Vec<Client>,
    pub(super) routing: Routing,
    pub(super) repair: Repair,
    pub(super) admission: Admission,
    pub(super) failover: Failover,
    pub(super) cliffs: Cliffs,
    pub(super) answer: Answer,
    pub(super) probe: Probe,
    pub(super) loader: Option<loader::Written>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Server {
    pub(super) listen: String,
    pub(super) api_keys_env: Option<String>,
    pub(super) api_keys_file: Option<PathBuf>,
    pub(super) open: bool,
    pub(super) allowed_origins: Vec<String>,
    #[serde(deserialize_with = "words::size")]
    pub(super) max_body: usize,
    pub(super) max_connections: usize,
    #[serde(deserialize_with = "words::duration")]
    pub(super) read_timeout: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) idle_timeout: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) drain: Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:4000".to_owned(),
            api_keys_env: None,
            api_keys_file: None,
            open: false,
            allowed_origins: Vec::new(),
            max_body: 64 << 20,
            max_connections: 1024,
            read_timeout: Duration::from_secs(30),
            // Agents pool their sockets for up to 90 s; a server that closes earlier breaks their next request.
            idle_timeout: Duration::from_secs(130),
            drain: Duration::from_secs(120),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Backend {
    pub(super) name: Option<String>,
    pub(super) url: Option<String>,
    pub(super) preset: Option<String>,
    pub(super) engine: Option<String>,
    pub(super) window: Option<u64>,
    #[serde(default)]
    pub(super) limit: Limit,
    pub(super) slots: Option<u64>,
    pub(super) long_prefill: Option<u64>,
    pub(super) tool_parser: Option<bool>,
    pub(super) format: Option<String>,
    #[serde(default)]
    pub(super) thinking_open: bool,
    pub(super) thinks: Option<bool>,
    pub(super) thinking_tags: Option<[String; 2]>,
    pub(super) output_limit: Option<OutputLimit>,
    pub(super) needs: Option<Vec<Need>>,
    #[serde(default)]
    pub(super) drop: Vec<String>,
    #[serde(default)]
    pub(super) drop_schema_keywords: Vec<String>,
    #[serde(default)]
    pub(super) rules_on: Vec<String>,
    #[serde(default)]
    pub(super) rules_off: Vec<String>,
    pub(super) model: Option<String>,
    pub(super) images: Option<bool>,
    pub(super) streamed_required: Option<StreamedRequired>,
    #[serde(default)]
    pub(super) quality: super::Quality,
    pub(super) api_key_env: Option<String>,
    pub(super) gpus: Option<Vec<u32>>,
    pub(super) load: Option<loader::WrittenLoad>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limit {
    pub(super) single: Option<u64>,
    pub(super) accumulated: Option<u64>,
    pub(super) resident: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub(super) name: String,
    #[serde(default)]
    pub(super) aliases: Vec<String>,
    #[serde(default)]
    pub(super) backends: Vec<String>,
    pub(super) tokenizer: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Routing {
    pub(super) sticky: bool,
    pub(super) strip_volatile: bool,
    pub(super) prewarm: bool,
}

impl Default for Routing {
    fn default() -> Self {
        Self { sticky: true, strip_volatile: true, prewarm: false }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Repair {
    pub(super) tool_calls: ToolCalls,
    pub(super) history: bool,
    pub(super) calls_in_thoughts: bool,
    pub(super) one_call: bool,
}

impl Default for Repair {
    fn default() -> Self {
        Self { tool_calls: ToolCalls::Auto, history: true, calls_in_thoughts: true, one_call: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ToolCalls {
    /// The format is recognised.
    Auto,
    /// Answers leave as they come.
    Off,
}

/// The name under which a backend reads the output limit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputLimit {
    MaxTokens,
    MaxCompletionTokens,
}

impl OutputLimit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// Whose name for the model an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModelName {
    /// The backend's: the answer leaves as it came.
    Backend,
    /// The client's: some look for the very name that they asked for.
    Client,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admission {
    pub(super) enabled: bool,
    #[serde(deserialize_with = "words::duration")]
    pub(super) max_victim_stall: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) large_prefill_wait: Duration,
    pub(super) queue: usize,
    #[serde(deserialize_with = "words::duration")]
    pub(super) queue_timeout: Duration,
}

impl Default for Admission {
    fn default() -> Self {
        let Rules { enabled, max_victim_stall, large_prefill_wait, queue, queue_timeout } = Rules::default();
        Self { enabled, max_victim_stall, large_prefill_wait, queue, queue_timeout }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Failover {
    pub(super) attempts: usize,
    #[serde(deserialize_with = "words::duration")]
    pub(super) connect: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) first_token: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) stall: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) whole: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) hold_head: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) keep_alive: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) loading: Duration,
    pub(super) death_is_overflow_above: u64,
    pub(super) silent_truncation: bool,
    pub(super) prefill_again: PrefillAgain,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PrefillAgain {
    pub(super) request: u64,
    pub(super) backend: u64,
    pub(super) minute: u64,
}

impl Default for PrefillAgain {
    fn default() -> Self {
        // One card reads some 60,000 tokens a minute; ten agents of 30,000 that lost theirs are let in at once.
        Self { request: 400_000, backend: 300_000, minute: 900_000 }
    }
}

impl Default for Failover {
    fn default() -> Self {
        Self {
            attempts: 3,
            connect: Duration::from_secs(2),
            first_token: Duration::from_secs(300),
            stall: Duration::from_secs(120),
            whole: Duration::from_secs(3600),
            hold_head: Duration::from_secs(5),
            keep_alive: Duration::from_secs(10),
            loading: Duration::from_secs(180),
            // Below that no published cliff of a 24 GB card kills a single prompt.
            death_is_overflow_above: 20_000,
            silent_truncation: true,
            prefill_again: PrefillAgain::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cliffs {
    pub(super) learn: bool,
    pub(super) explore: bool,
    pub(super) file: Option<PathBuf>,
}

impl Default for Cliffs {
    fn default() -> Self {
        Self { learn: true, explore: false, file: None }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Answer {
    pub(super) usage: Option<Usage>,
    pub(super) reasoning: Option<ReasoningMember>,
    pub(super) model_name: ModelName,
    pub(super) ask_usage: bool,
    pub(super) compaction_headroom: Option<u64>,
    pub(super) window_margin: u64,
    pub(super) overflow_loop: OverflowLoop,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            usage: None,
            reasoning: None,
            model_name: ModelName::Backend,
            ask_usage: false,
            compaction_headroom: None,
            window_margin: 64,
            overflow_loop: OverflowLoop { count: 8, within: Duration::from_secs(120) },
        }
    }
}

/// One word of the file for one value of the policies.
macro_rules! words {
    ($case:literal $name:ident => $means:ty { $($word:ident),+ }) => {
        #[derive(Clone, Copy, Debug, Deserialize)]
        #[serde(rename_all = $case)]
        pub(super) enum $name { $($word),+ }

        impl From<$name> for $means {
            fn from(word: $name) -> Self {
                match word { $($name::$word => Self::$word),+ }
            }
        }
    };
}

words!("kebab-case" Usage => client::Usage { IfAsked, Always });
words!("kebab-case" KeepAlive => client::KeepAlive { Comment, EmptyDelta, Ping, None });
words!("kebab-case" Class => client::Class { Interactive, Agent, Background });
words!("kebab-case" InvalidCalls => demand::InvalidCalls { Pass, Note, AskAgain });
words!("kebab-case" MissingCalls => demand::MissingCalls { Pass, Retry, Constrain });
words!("kebab-case" CutCalls => demand::CutCalls { Pass, Rescue });
words!("kebab-case" CutAnswers => demand::CutAnswers { Continue, Error });
words!("kebab-case" StreamedRequired => facts::StreamedRequired { Pass, AsAuto, Whole });
// As the members are written.
words!("snake_case" ReasoningMember => client::ReasoningField { Either, ReasoningContent, Reasoning, ReasoningText });

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverflowLoop {
    pub(super) count: usize,
    #[serde(deserialize_with = "words::duration")]
    pub(super) within: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Probe {
    #[serde(deserialize_with = "words::duration")]
    pub(super) interval: Duration,
    #[serde(deserialize_with = "words::duration")]
    pub(super) timeout: Duration,
}

impl Default for Probe {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), timeout: Duration::from_secs(2) }
    }
}
