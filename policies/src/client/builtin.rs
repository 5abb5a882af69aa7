//! The built-in profiles: one table.
//!
//! Each row names the version that it is true of and how that is known: *captured* against a recording server, *read* in the
//! client's source, or *reported* in its tracker. A row states only what differs from [`PLAIN`]. To add a client, add a row and
//! a recorded request under `tests/corpus/clients`; rows that could be taken for each other are told apart by the test.

use std::time::Duration;

use super::clues::{CapField, Dialect};
use super::mark::{Confidence, Mark, Sign, Value};
use super::profile::{
    FreeTextCalls, KeepAlive, OnOverflow, Profile, ReasoningField, SessionSource, SideTraffic, Usage,
};

use CapField::{MaxCompletionTokens, MaxTokens};
use Mark::{
    BareFetch, BytesUpTo, Cap, Header, Input, Messages, NoCap, NoTools, OnlyTools, ParallelSent,
    ReasoningEffort, Speaks, Store, Streamed, Structured, Temperature, TemperatureSent, Tool, ToolChoice,
    UsageAsked, UserAgent, UserAgentHas, UserStarts,
};
use OnOverflow::{Compacts, Drops, Stops};
use Value::{Any, Is, Starts};

/// The client of which nothing is known: an unknown program, or a bare library.
pub const PLAIN: Profile = Profile {
    id: "plain",
    name: "unknown client",
    signs: &[],
    tools: &[],
    session: CONVENTION,
    keep_alive: KeepAlive::Comment,
    usage: Usage::IfAsked,
    reasoning: ReasoningField::Either,
    no_limit_at: None,
    on_overflow: OnOverflow::Unknown,
    blanks: false,
    free_text: FreeTextCalls::Custom,
    side_traffic: &[],
    first_turn: None,
    needs_window: None,
    silence: None,
};

/// The headers of OpenCode, Kilo and Crush for a conversation, which others follow.
const CONVENTION: &[SessionSource] =
    &[SessionSource::Header("x-session-id"), SessionSource::Header("x-session-affinity")];

/// The title request of OpenCode and its relatives: instruction, demand, the user's words. Without tools, as is a compaction,
/// which has other messages and is long.
const TITLE: &[SideTraffic] =
    &[SideTraffic { what: "title", marks: &[NoTools, Messages(3, 3), BytesUpTo(8 * 1024)] }];

const fn certain(marks: &'static [Mark]) -> Sign {
    Sign { confidence: Confidence::Certain, marks }
}

const fn likely(marks: &'static [Mark]) -> Sign {
    Sign { confidence: Confidence::Likely, marks }
}

const fn guessed(marks: &'static [Mark]) -> Sign {
    Sign { confidence: Confidence::Guessed, marks }
}

const fn library(marks: &'static [Mark]) -> Sign {
    Sign { confidence: Confidence::Library, marks }
}

const fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// All built-in profiles; the last is [`PLAIN`].
#[rustfmt::skip] // A table: one member, or a few that belong together, a line.
pub static BUILTIN: &[Profile] = &[
    // Captured: 1.18.33. Overflow and compaction without bound.
    Profile {
        id: "opencode", name: "OpenCode",
        signs: &[
            certain(&[UserAgent("opencode/")]),
            likely(&[Header("x-session-id", Starts("ses_")), Header("x-session-affinity", Starts("ses_"))]),
        ],
        tools: &["bash", "edit", "glob", "grep", "read", "skill", "task", "todowrite", "webfetch", "write"],
        on_overflow: Compacts, side_traffic: TITLE,
        first_turn: Some(7_700), silence: seconds(300),
        ..PLAIN
    },
    // Captured: 7.7.7; OpenCode's core under another name, with more tools: OpenCode stands before it.
    Profile {
        id: "kilo", name: "Kilo Code",
        signs: &[
            certain(&[UserAgent("Kilo-Code/")]),
            certain(&[Header("x-title", Is("Kilo Code"))]),
            certain(&[Header("http-referer", Starts("https://kilocode.ai"))]),
        ],
        tools: &[
            "background_process", "bash", "board_post", "board_read", "cancel_wakeup", "edit", "glob", "grep",
            "kilo_local_recall", "read", "schedule_wakeup", "skill", "task", "todowrite", "webfetch", "write",
        ],
        on_overflow: Compacts, side_traffic: TITLE,
        first_turn: Some(12_700),
        ..PLAIN
    },
    // Captured: command line 3.0.65; the extension 4.1.13 shares its core. Its user agent is that of the AI SDK.
    Profile {
        id: "cline", name: "Cline",
        tools: &[
            "read_files", "search_codebase", "run_commands", "fetch_web_content", "editor", "ask_question",
            "spawn_agent", "team_spawn_teammate", "team_status", "team_task",
        ],
        on_overflow: Compacts,
        first_turn: Some(5_400), silence: seconds(300),
        ..PLAIN
    },
    // Captured: 0.171.0 (exec); the interactive one calls itself codex_cli_rs (reported). Comments do not reset its
    // timer (also openai/codex#31539), events do. Its x-client-request-id is the session's, not the request's.
    Profile {
        id: "codex", name: "Codex",
        signs: &[
            certain(&[UserAgent("codex_")]),
            certain(&[Header("originator", Starts("codex_"))]),
            certain(&[Header("x-codex-window-id", Any)]),
        ],
        tools: &[
            "exec_command", "write_stdin", "request_user_input", "view_image", "multi_agent_v1", "get_goal",
            "create_goal", "update_goal", "web_search",
        ],
        session: &[SessionSource::Header("session-id"), SessionSource::PromptCacheKey],
        keep_alive: KeepAlive::Ping,
        on_overflow: Stops,
        first_turn: Some(10_000), silence: seconds(300),
        ..PLAIN
    },
    // Captured: 2.1.332. Pings came together with comments when 400 s of silence were survived, so it gets the event
    // that its dialect has for that. First turn: its tools alone, reported; 12,400 captured without a terminal.
    Profile {
        id: "claude-code", name: "Claude Code",
        signs: &[
            certain(&[UserAgent("claude-cli/")]),
            certain(&[Header("x-claude-code-session-id", Any)]),
            certain(&[Header("anthropic-beta", Starts("claude-code-"))]),
        ],
        tools: &[
            "Agent", "Bash", "Edit", "ListAgents", "Read", "ReportFindings", "ScheduleWakeup", "Skill",
            "ToolSearch", "Workflow", "DeferredToolPlaceholder", "Write",
        ],
        session: &[SessionSource::Header("x-claude-code-session-id"), SessionSource::MetadataUserId],
        keep_alive: KeepAlive::Ping,
        on_overflow: Compacts,
        side_traffic: &[SideTraffic { what: "title", marks: &[NoTools, Structured, BytesUpTo(16 * 1024)] }],
        first_turn: Some(16_300), silence: seconds(300),
        ..PLAIN
    },
    // Captured: 0.24.4; sent again at 241 s in spite of a comment every second. The tools of the agent that looks for
    // things worth remembering: read, packages/core/src/memory/extractionAgentPlanner.ts.
    Profile {
        id: "qwen-code", name: "Qwen Code",
        signs: &[certain(&[UserAgent("QwenCode/")])],
        tools: &[
            "agent", "edit", "get_goal", "glob", "grep_search", "list_agents", "notebook_edit", "read_file",
            "run_shell_command", "skill", "tool_call", "tool_search", "update_goal", "write_file",
        ],
        keep_alive: KeepAlive::EmptyDelta,
        on_overflow: Compacts,
        side_traffic: &[SideTraffic {
            what: "memory",
            marks: &[Tool("write_file"), Tool("edit"), OnlyTools(&[
                "read_file", "grep_search", "glob", "list_directory", "run_shell_command", "write_file", "edit",
            ])],
        }],
        first_turn: Some(19_600), silence: seconds(120),
        ..PLAIN
    },
    // Captured: 1.0.102 with a provider of one's own.
    Profile {
        id: "copilot-cli", name: "Copilot CLI",
        signs: &[likely(&[Header("x-initiator", Any), Header("x-stainless-helper-method", Is("stream"))])],
        tools: &[
            "bash", "read_bash", "stop_bash", "list_bash", "view", "create", "edit", "skill", "sql", "grep", "glob",
            "fetch_copilot_cli_documentation", "session_store_sql", "read_agent", "list_agents", "write_agent", "task",
        ],
        on_overflow: Compacts,
        first_turn: Some(12_000),
        ..PLAIN
    },
    // Captured: 1.5.47. The user agent's first word is what the bundler made of the library's class name.
    Profile {
        id: "continue-cli", name: "Continue CLI",
        signs: &[likely(&[UserAgent("ls/JS ")])],
        tools: &[
            "Read", "Write", "List", "Bash", "Fetch", "Checklist", "CheckBackgroundJob", "AskQuestion", "MultiEdit",
            "Exit", "Skills",
        ],
        on_overflow: Stops,
        first_turn: Some(2_300),
        ..PLAIN
    },
    // Read: core/llm/llms/OpenAI.ts sends the key twice; packages/fetch/src/stream.ts of older versions stumbles over
    // some comments.
    Profile {
        id: "continue", name: "Continue",
        signs: &[likely(&[Header("api-key", Any), Header("authorization", Any)])],
        keep_alive: KeepAlive::EmptyDelta,
        ..PLAIN
    },
    // Captured: 0.73.1.
    Profile {
        id: "pi", name: "pi",
        signs: &[guessed(&[
            Store(false), Cap(MaxCompletionTokens, 1, u64::MAX), Streamed(true), UsageAsked(true),
            Header("x-stainless-lang", Is("js")),
        ])],
        tools: &["read", "bash", "edit", "write"],
        on_overflow: Compacts,
        first_turn: Some(1_400),
        ..PLAIN
    },
    // Captured: 2026.9.6, 12,900 tokens; reported: 17,000 with more tools, and versions that compact by usage but do not
    // ask servers that they do not know for it (openclaw/openclaw#68707, #153957).
    Profile {
        id: "openclaw", name: "OpenClaw",
        signs: &[guessed(&[
            Header("traceparent", Starts("00-")), Header("x-stainless-lang", Is("js")),
            Cap(MaxCompletionTokens, 1, u64::MAX), ToolChoice(&["auto"]),
        ])],
        tools: &[
            "apply_patch", "edit", "exec", "ls", "openclaw", "process", "read", "sessions_yield", "tool_call",
            "tool_describe", "tool_search", "write",
        ],
        usage: Usage::Always,
        first_turn: Some(17_000),
        ..PLAIN
    },
    // Captured: 0.86.2, through LiteLLM. No tools, ever; examples of its edit format come before the user's words.
    Profile {
        id: "aider", name: "Aider",
        signs: &[guessed(&[
            Temperature(0.0), NoTools, NoCap, Streamed(true), UsageAsked(false), Messages(4, usize::MAX),
            Header("x-stainless-raw-response", Is("true")),
        ])],
        on_overflow: Stops,
        first_turn: Some(900), silence: seconds(600),
        ..PLAIN
    },
    // Captured: 2.4.6, through LiteLLM. One tool, not streamed.
    Profile {
        id: "mini-swe-agent", name: "mini-swe-agent",
        signs: &[guessed(&[
            OnlyTools(&["bash"]), NoCap, Streamed(false), Header("x-stainless-raw-response", Is("true")),
        ])],
        first_turn: Some(800), silence: seconds(600), blanks: true,
        ..PLAIN
    },
    // Captured: 0.19.0.
    Profile {
        id: "hermes-agent", name: "Hermes Agent",
        signs: &[guessed(&[Header("x-stainless-read-timeout", Is("1800.0"))])],
        tools: &[
            "clarify", "cronjob", "delegate_task", "execute_code", "memory", "patch", "process", "read_file",
            "search_files", "session_search", "skill_manage", "skill_view", "skills_list", "terminal", "todo",
            "vision_analyze", "write_file",
        ],
        on_overflow: Compacts,
        first_turn: Some(13_600), needs_window: Some(64_000), silence: seconds(1800),
        ..PLAIN
    },
    // Captured: 1.16.0, through LiteLLM, not streamed: the whole answer must come within its limit.
    Profile {
        id: "openhands", name: "OpenHands",
        signs: &[guessed(&[
            ReasoningEffort("high"), Streamed(false), Header("x-stainless-read-timeout", Is("300.0")),
        ])],
        tools: &["terminal", "file_editor", "task_tracker", "task", "finish", "think"],
        session: &[SessionSource::PromptCacheKey],
        on_overflow: Compacts,
        first_turn: Some(8_800), silence: seconds(300), blanks: true,
        ..PLAIN
    },
    // Read: source of August 2026, internal/agent/agent.go. It knows the error; what it does then was not seen.
    Profile {
        id: "crush", name: "Crush",
        signs: &[certain(&[UserAgent("Charm-Crush/")])],
        ..PLAIN
    },
    // Read: src/api/client.ts, requestBuilder.ts, chat/tokenBudget.ts of 1.6.0. Plain fetch, and whatever tools VS Code
    // has. Its limit is min(4096, what it thinks is left), and 64 when it thinks that nothing is. First turn: reported.
    Profile {
        id: "llm-gateway", name: "Copilot LLM Gateway",
        signs: &[
            guessed(&[
                Cap(MaxTokens, 64, 4096), TemperatureSent, ParallelSent, ToolChoice(&["auto", "required"]),
                Streamed(true), UsageAsked(true), BareFetch,
            ]),
            guessed(&[
                Cap(MaxTokens, 64, 4096), Temperature(0.7), NoTools, Streamed(true), UsageAsked(true), BareFetch,
            ]),
        ],
        no_limit_at: Some(64),
        on_overflow: Drops,
        first_turn: Some(19_900), silence: seconds(60),
        ..PLAIN
    },
    // Read: source of March 2026, platform/networking/node/nodeFetcher.ts.
    Profile {
        id: "copilot-chat-byok", name: "Copilot Chat",
        signs: &[
            certain(&[UserAgent("GitHubCopilotChat/")]),
            certain(&[Header("x-interaction-id", Any), Header("x-github-api-version", Any)]),
        ],
        reasoning: ReasoningField::ReasoningText,
        ..PLAIN
    },
    // Read: 3.52.1, src/api/providers/constants.ts, core/context/context-management/context-error-handling.ts.
    Profile {
        id: "roo-code", name: "Roo Code",
        signs: &[certain(&[UserAgent("RooCode/")]), certain(&[Header("x-title", Is("Roo Code"))])],
        reasoning: ReasoningField::ReasoningContent,
        on_overflow: Drops,
        ..PLAIN
    },
    // Read: crates/open_ai and crates/zed/src/main.rs.
    Profile {
        id: "zed", name: "Zed",
        signs: &[certain(&[UserAgent("Zed/")])],
        session: &[SessionSource::PromptCacheKey],
        reasoning: ReasoningField::ReasoningContent,
        ..PLAIN
    },
    // Read: 0.12.4, utils/headers.py, routers/tasks.py, config.py. Its headers are opt-in; without them only the
    // library's user agent is left. Its tasks are not streamed and have one message, in the words of its default prompts.
    Profile {
        id: "open-webui", name: "Open WebUI",
        signs: &[
            certain(&[Header("x-openwebui-chat-id", Any)]),
            certain(&[Header("x-openwebui-user-id", Any)]),
            guessed(&[UserAgentHas("aiohttp/"), Speaks(Dialect::Chat)]),
        ],
        session: &[SessionSource::Header("x-openwebui-chat-id")],
        side_traffic: &[
            SideTraffic {
                what: "title or tags",
                marks: &[NoTools, Streamed(false), Messages(1, 1), UserStarts("### Task:\nGenerate ")],
            },
            SideTraffic {
                what: "follow-ups",
                marks: &[NoTools, Streamed(false), Messages(1, 1), UserStarts("### Task:\nSuggest ")],
            },
        ],
        ..PLAIN
    },
    // Reported: BerriAI/litellm#34029, archestra-ai/archestra#7375, icebear0828/codex-proxy#707. Called from its maker's
    // servers. Its `user` names a person, not a conversation.
    Profile {
        id: "cursor", name: "Cursor",
        signs: &[
            likely(&[Input, Speaks(Dialect::Chat)]),
            guessed(&[Tool("ApplyPatch"), Speaks(Dialect::Chat)]),
        ],
        // It looks for `function.name` in every call (icebear0828/codex-proxy#708).
        free_text: FreeTextCalls::Function,
        ..PLAIN
    },
    // Read: vibe/core/llm/backend/generic.py; a lone colon ends its stream (mistralai/mistral-vibe#762).
    Profile {
        id: "mistral-vibe", name: "Mistral Vibe",
        signs: &[certain(&[UserAgent("Mistral-Vibe/")])],
        keep_alive: KeepAlive::EmptyDelta,
        ..PLAIN
    },
    // Libraries, captured: @ai-sdk/openai-compatible 3.0.92, openai 7.59.0 and 3.57.0, anthropic 2.14.0.
    Profile {
        id: "sdk:ai-sdk", name: "AI SDK",
        signs: &[library(&[UserAgent("ai-sdk/")])],
        ..PLAIN
    },
    Profile {
        id: "sdk:openai-js", name: "OpenAI SDK for JavaScript",
        signs: &[library(&[UserAgent("OpenAI/JS ")]), library(&[Header("x-stainless-lang", Is("js"))])],
        silence: seconds(600),
        ..PLAIN
    },
    Profile {
        id: "sdk:anthropic-python", name: "Anthropic SDK for Python",
        signs: &[
            library(&[UserAgent("Anthropic/Python ")]),
            library(&[Header("x-stainless-lang", Is("python")), Speaks(Dialect::Messages)]),
        ],
        silence: seconds(600),
        ..PLAIN
    },
    Profile {
        id: "sdk:openai-python", name: "OpenAI SDK for Python",
        signs: &[library(&[UserAgent("OpenAI/Python ")]), library(&[Header("x-stainless-lang", Is("python"))])],
        silence: seconds(600),
        ..PLAIN
    },
    PLAIN,
];
