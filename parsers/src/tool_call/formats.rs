//! The formats of tool calls, as data: a marker, the grammar behind it, what closes it.
//!
//! Adding a format is one entry here and its corpus file. Families share markers (five use `<tool_call>`), so a marker does not
//! name a family: the grammar decides on the bytes behind it.

use super::grammar::{self, Context, Step, may_become, starts_with_any};
pub(crate) use super::leaks::{INVENTED, LEAKS, SHELLS, SURPLUS, THOUGHTS};
use super::{braces, channels, json_block, markers, named, tags, weak, wrapper, xml_block};

/// How a format's text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// Anything that can stand in a wrapper: JSON, function blocks, keys and values, Python. The next bytes decide.
    Wrapper,
    /// The same in tags that no family writes by rule: weak evidence.
    Loose,
    /// A wrapper around objects that have the tool's name as their key.
    Keyed,
    /// A JSON list that begins with the marker's last byte.
    Json,
    /// Function blocks whose wrapper was lost.
    Function,
    /// Only opens a section: one of the other markers must follow.
    Section,
    /// A header with the name, then JSON.
    Named,
    /// `[TOOL_CALLS]`.
    Mistral,
    /// `call:NAME{…}` with this quote.
    Braces(&'static str),
    /// MiniMax M3.
    MiniMax3,
    /// Kimi K3.
    Kimi3,
    /// Inkling's blocks.
    Inkling,
    /// PLaMo 3's requests.
    Plamo,
    /// gpt-oss's messages.
    Harmony,
}

/// One entry of the table.
#[derive(Debug)]
pub(crate) struct Format {
    /// The family's name.
    pub(crate) name: &'static str,
    pub(crate) openers: &'static [&'static str],
    pub(crate) closers: &'static [&'static str],
    pub(crate) grammar: Grammar,
    /// The opener is a special token that nobody writes in passing: it counts anywhere in a thought, not only on its own line.
    pub(crate) token: bool,
    /// Other entries that an answer of the family may be written in.
    with: &'static [&'static str],
}

const fn format(
    name: &'static str,
    openers: &'static [&'static str],
    grammar: Grammar,
    closers: &'static [&'static str],
    token: bool,
) -> Format {
    Format { name, openers, closers, grammar, token, with: &[] }
}

/// Every marker that is strong evidence.
pub(crate) const FORMATS: &[Format] = &[
    format("hermes", &["<tool_call>", "<tool_call "], Grammar::Wrapper, &["</tool_call>"], false)
        .with(&["tools"]),
    format("qwen_xml", &["<function", "<<function"], Grammar::Function, &["</tool_call>"], false)
        .with(&["hermes"]),
    format("seed_oss", &["<seed:tool_call>"], Grammar::Wrapper, &["</seed:tool_call>"], false)
        .with(&["qwen_xml"]),
    format("jamba", &["<tool_calls>"], Grammar::Wrapper, &["</tool_calls>"], false).with(&["hermes"]),
    format("nemotron", &["<TOOLCALL>"], Grammar::Wrapper, &["</TOOLCALL>"], false),
    format("granite", &["<|tool_call|>"], Grammar::Wrapper, &["<|/tool_call|>"], true).with(&["hermes"]),
    format("granite20b", &["<function_call>"], Grammar::Wrapper, &["</function_call>"], false),
    format("invoke_xml", &["<function_calls>"], Grammar::Wrapper, &["</function_calls>"], false)
        .with(&["invoke"]),
    format("longcat", &["<longcat_tool_call>"], Grammar::Wrapper, &["</longcat_tool_call>"], false),
    format("command_a", &["<|START_ACTION|>"], Grammar::Wrapper, &["<|END_ACTION|>"], true),
    format("command_r", &["Action: ```json"], Grammar::Wrapper, &["```"], false),
    format("apertus", &["<|tools_prefix|>"], Grammar::Keyed, &["<|tools_suffix|>"], true),
    format("lfm2", &["<|tool_call_start|>"], Grammar::Wrapper, &["<|tool_call_end|>"], true),
    format("llama4", &["<|python_start|>"], Grammar::Wrapper, &["<|python_end|>"], true),
    format("llama3_json", &["<|python_tag|>"], Grammar::Wrapper, &[], true).with(&["qwen_xml"]),
    format(
        "internlm",
        &["<|action_start|> <|plugin|>", "<|action_start|><|plugin|>"],
        Grammar::Wrapper,
        &["<|action_end|>"],
        true,
    ),
    format(
        "gigachat",
        &[
            "function call<|role_sep|>",
            "<|message_sep|>function call<|role_sep|>",
            "<|message_sep|>\n\nfunction call<|role_sep|>",
            "<|function_call|>",
        ],
        Grammar::Wrapper,
        &[],
        true,
    ),
    format("tools", &["<tools>", "<toolcall>"], Grammar::Loose, &["</tools>", "</toolcall>"], false),
    format("tool_code", &["<tool_code>"], Grammar::Loose, &["</tool_code>"], false),
    format("phi4", &["functools["], Grammar::Json, &[], false),
    format("minimax_m2", &["<minimax:tool_call>"], Grammar::Wrapper, &["</minimax:tool_call>"], false)
        .with(&["invoke"]),
    format("dots", &["<dots_function_call>"], Grammar::Wrapper, &["</dots_function_call>"], false)
        .with(&["invoke"]),
    format("horizon", &["<ifm|tool_calls>"], Grammar::Section, &["</ifm|tool_calls>"], false),
    format("horizon", &["<ifm|tool_call>"], Grammar::Wrapper, &["</ifm|tool_call>"], false),
    format(
        "deepseek_dsml",
        &[
            "<｜DSML｜function_calls>",
            "<｜DSML｜tool_calls>",
            "<｜DSML｜toolcalls>",
            "<｜DSML｜tool>",
            "<｜DSML｜ calls>",
            "<|DSML|function_calls>",
            "<|DSML|tool_calls>",
            "<|DSML| calls>",
        ],
        Grammar::Wrapper,
        &[
            "</｜DSML｜function_calls>",
            "</｜DSML｜tool_calls>",
            "</｜DSML｜toolcalls>",
            "</｜DSML｜tool>",
            "</｜DSML｜ calls>",
            "</|DSML|function_calls>",
            "</|DSML|tool_calls>",
            "</|DSML| calls>",
        ],
        true,
    )
    .with(&["invoke"]),
    format(
        "invoke",
        &[
            "<invoke",
            "<｜DSML｜invoke",
            "<｜DSML｜ invoke",
            "<|DSML|invoke",
            "<|DSML| invoke",
            "<steptml:invoke",
            "<atem:invoke",
            "<antml:invoke",
        ],
        Grammar::Function,
        &[],
        false,
    ),
    format("atem", &["<atem:function_calls>"], Grammar::Wrapper, &["</atem:function_calls>"], false)
        .with(&["invoke", "harmony"]),
    format("antml", &["<antml:function_calls>"], Grammar::Wrapper, &["</antml:function_calls>"], false),
    format(
        "kimi_k2",
        &["<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"],
        Grammar::Section,
        &["<|tool_calls_section_end|>", "<|tool_call_section_end|>"],
        true,
    )
    .with(&["named"]),
    format(
        "deepseek",
        &["<｜tool▁calls▁begin｜>", "<|tool▁calls▁begin|>", "<|tool_calls_begin|>", "<｜tool_calls_begin｜>"],
        Grammar::Section,
        &["<｜tool▁calls▁end｜>", "<|tool▁calls▁end|>", "<|tool_calls_end|>", "<｜tool_calls_end｜>"],
        true,
    )
    .with(&["named", "invoke"]),
    format(
        "named",
        &["<|tool_call_begin|>", "<｜tool▁call▁begin｜>", "<|tool▁call▁begin|>", "<｜tool_call_begin｜>"],
        Grammar::Named,
        &["<|tool_call_end|>", "<｜tool▁call▁end｜>", "<|tool▁call▁end|>", "<｜tool_call_end｜>"],
        true,
    ),
    format("mistral", &["[TOOL_CALLS]"], Grammar::Mistral, &[], true),
    format("gemma4", &["<|tool_call>"], Grammar::Braces("<|\"|>"), &["<tool_call|>"], true),
    format(
        "functiongemma",
        &["<start_function_call>"],
        Grammar::Braces("<escape>"),
        &["<end_function_call>"],
        false,
    ),
    format(
        "minimax_m3",
        &["]<]minimax[>[<tool_call>"],
        Grammar::MiniMax3,
        &["]<]minimax[>[</tool_call>"],
        true,
    ),
    format("kimi_k3", &["<|open|>tools<|sep|>"], Grammar::Section, &["<|close|>tools<|sep|>"], true),
    format("kimi_k3", &["<|open|>call "], Grammar::Kimi3, &["<|close|>call<|sep|>"], true),
    format("plamo", &[named::PLAMO_CALLS], Grammar::Section, &["<|plamo:end_tool_requests:plamo|>"], true),
    format("plamo", &[named::PLAMO_CALL], Grammar::Plamo, &["<|plamo:end_tool_request:plamo|>"], true),
    format("inkling", &["<|message_model|>"], Grammar::Inkling, &["<|end_message|>"], true),
    format("harmony", &["<|channel|>", "<|start|>assistant"], Grammar::Harmony, channels::CLOSERS, true),
    // Families in another's markers, or in none.
    format("glm", &[], Grammar::Wrapper, &[], false).with(&["hermes"]),
    format("functionary", &[], Grammar::Named, &[], false),
    format("bare_json", &[], Grammar::Json, &[], false),
    format("pythonic", &[], Grammar::Wrapper, &[], false).with(&["llama4", "tool_code"]),
];

/// Families that write calls without any marker, too.
const WEAK: &[&str] = &["bare_json", "functionary", "llama3_json", "llama4", "pythonic"];

/// What counts without a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weak {
    /// All that proves itself.
    Any,
    /// Only what has lost its opener, and has the rest of its tags.
    Tagged,
    None,
}

/// What counts where a model probably writes in this family. Special tokens may be lost on the way, plain tags are not; and all
/// of a family may be written without.
pub(super) fn weak_beside(family: &str) -> Weak {
    let tagged = |format: &Format| format.name == family && !format.token;
    match FORMATS.iter().any(tagged) && !WEAK.contains(&family) {
        true => Weak::Tagged,
        false => Weak::Any,
    }
}

/// What an answer is looked through for, where its family is known.
#[derive(Debug)]
pub(super) struct Narrow {
    entries: Vec<&'static str>,
    pub(super) weak: Weak,
}

impl Narrow {
    /// To one family; none if the name is not known.
    pub(super) fn to(name: &str) -> Option<Self> {
        let mut named = FORMATS.iter().filter(|format| format.name == name).peekable();
        let first = *named.peek()?;
        let mut entries = vec![first.name];
        entries.extend(named.flat_map(|format| format.with));
        let weak = if WEAK.contains(&name) { Weak::Any } else { Weak::Tagged };
        Some(Self { entries, weak })
    }

    pub(super) fn holds(&self, name: &str) -> bool {
        self.entries.contains(&name)
    }
}

impl Format {
    const fn with(self, with: &'static [&'static str]) -> Self {
        Self { with, ..self }
    }

    /// Its tags are weak evidence.
    pub(crate) fn is_loose(&self) -> bool {
        self.grammar == Grammar::Loose
    }

    /// Reads the text from this format's opener on.
    pub(crate) fn read(&'static self, text: &str, opener: &str, ctx: Context<'_>) -> Step {
        let at = opener.len();
        let step = match self.grammar {
            Grammar::Wrapper => wrapper::read(text, at, self, ctx),
            Grammar::Loose => weak::wrapped(text, at, self, ctx),
            Grammar::Keyed => wrapper::read(text, at, self, Context { keyed: true, ..ctx }),
            Grammar::Json => match text[at..].trim_start().chars().next() {
                None => Step::More,
                Some('{') => json_block::list(text, at - 1, self.closers, ctx),
                Some(_) => Step::Not(at),
            },
            Grammar::Function => {
                let wrapper =
                    xml_block::Wrapper { opened: false, openers: &["<tool_call>"], closers: self.closers };
                xml_block::functions(text, 0, wrapper, ctx)
            }
            Grammar::Section => wrapper::section(text, at, self, ctx),
            Grammar::Named => named::section(text, at, self.closers, ctx),
            Grammar::Mistral => named::mistral(text, at, ctx),
            Grammar::Braces(quote) => {
                let marks = braces::Marks { quote, openers: self.openers, closers: self.closers };
                braces::call(text, at, marks, ctx)
            }
            Grammar::MiniMax3 => tags::minimax3(text, at)(ctx),
            Grammar::Kimi3 => tags::kimi3(text, ctx),
            Grammar::Plamo => named::plamo(text, at, self.closers, ctx),
            Grammar::Inkling => named::inkling(text, at, self.closers, ctx),
            Grammar::Harmony => channels::message(text, ctx),
        };
        self.settle(step, text, ctx)
    }

    /// Finds the end of a call that cannot be read.
    pub(crate) fn settle(&self, step: Step, text: &str, ctx: Context<'_>) -> Step {
        if !matches!(step, Step::Broken(..)) {
            return step;
        }
        // Families share closers: whatever opens what such a closer ends is counted.
        let shares = |format: &&Format| {
            format.grammar != Grammar::Function
                && format.closers.iter().any(|closer| self.closers.contains(closer))
        };
        let openers: Vec<&str> = match self.grammar {
            Grammar::Harmony => vec![channels::MESSAGE],
            _ => FORMATS.iter().filter(shares).flat_map(|format| format.openers).copied().collect(),
        };
        grammar::settle(step, text, &openers, self.closers, ctx)
    }
}

/// The format whose opener the text starts with; `Err(true)` while it may still become one.
pub(crate) fn at(text: &str) -> Result<(&'static Format, &'static str), bool> {
    if text.len() < 2 {
        let starts = |format: &Format| format.openers.iter().any(|opener| opener.starts_with(text));
        return Err(FORMATS.iter().any(starts));
    }
    let (mut found, mut partial) = (None, false);
    for (format, opener) in markers::openers(text.as_bytes()) {
        if text.starts_with(opener) {
            let longer = found.is_none_or(|(_, known): (_, &str)| opener.len() > known.len());
            found = if longer { Some((*format, *opener)) } else { found };
        } else {
            partial |= may_become(text, opener);
        }
    }
    // The text may be the beginning of a longer opener too: `<function` of `<function_call>`.
    if partial { Err(true) } else { found.ok_or(false) }
}

/// Bytes of a closer at the start of the text, which is no opener; `Err(true)` while it may become one.
pub(crate) fn closer_at(text: &str) -> Result<usize, bool> {
    if text.len() < 3 {
        let starts = |format: &Format| format.closers.iter().any(|closer| closer.starts_with(text));
        return Err(FORMATS.iter().any(starts));
    }
    let closers = markers::closers(text.as_bytes());
    match starts_with_any(text, closers) {
        Ok(closer) if at(text).is_err() => Ok(closer.len()),
        Ok(_) => Err(false),
        Err(true) => Err(true),
        Err(false) => spaced_closer(text, closers),
    }
}

/// Bytes of a closing tag with a blank before its bracket: `</tool_call >`.
fn spaced_closer(text: &str, closers: &[&str]) -> Result<usize, bool> {
    let tags = closers
        .iter()
        .filter(|closer| closer.starts_with("</"))
        .filter_map(|closer| closer.strip_suffix('>'));
    let behind = tags.filter_map(|tag| text.strip_prefix(tag)).find_map(|behind| behind.strip_prefix(' '));
    match behind {
        Some(behind) if behind.starts_with('>') => Ok(text.len() - behind.len() + 1),
        Some(behind) => Err(behind.is_empty()),
        None => Err(false),
    }
}
