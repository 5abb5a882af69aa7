//! The rules by which requests are changed, by name: so that each can be switched, for a backend or a client. Those for answers
//! ([`AnswerRule`]) are switched alike.
//!
//! A rule acts only where the request gives it a reason, and where it is on; what it did is named in
//! `x-switchback-adjusted`. Must never hold a rule that cannot be switched off.

use std::fmt;

use serde::Deserialize;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::needs::Need;

use crate::answer::tidy::AnswerRule;

/// A rule of the proxy's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RequestRule {
    /// Broken calls of earlier turns are mended.
    History,
    /// Lines that differ with every request are taken off the prompt's head.
    VolatileLines,
    /// A word stands in place of old pictures.
    Pictures,
    /// An output limit that does not fit is cut to what is left.
    FitOutput,
    /// One that cannot be meant is raised.
    RaiseOutput,
    /// One that leaves a thinking model no room to answer is raised.
    RoomToThink,
    /// The limit goes under the one name that the engine reads.
    OutputName,
    /// Two limits that differ are sent as the one that counts.
    OneLimit,
    /// Members without a meaning are left out: no tools at all, options of a stream that is none.
    EmptyMembers,
    /// Tools that are no functions are left out.
    OtherTools,
    /// A named tool is required by leaving the others out.
    NamedChoice,
    /// `tool_choice: auto` goes as `none` where nobody parses calls.
    NoParser,
    /// A backend is asked how far it has read the prompt.
    Progress,
    /// What a backend refused is left out, and it is asked once more.
    Refused,
    /// Keywords that only narrow a schema are left out when no grammar could be made of it, and it is asked once more.
    LooseSchemas,
}

impl RequestRule {
    /// All of them.
    pub(crate) const ALL: [Self; 15] = [
        Self::History,
        Self::VolatileLines,
        Self::Pictures,
        Self::FitOutput,
        Self::RaiseOutput,
        Self::RoomToThink,
        Self::OutputName,
        Self::OneLimit,
        Self::EmptyMembers,
        Self::OtherTools,
        Self::NamedChoice,
        Self::NoParser,
        Self::Progress,
        Self::Refused,
        Self::LooseSchemas,
    ];

    /// Its name in configurations.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::VolatileLines => "volatile-lines",
            Self::Pictures => "pictures",
            Self::FitOutput => "fit-output",
            Self::RaiseOutput => "raise-output",
            Self::RoomToThink => "room-to-think",
            Self::OutputName => "output-name",
            Self::OneLimit => "one-limit",
            Self::EmptyMembers => "empty-members",
            Self::OtherTools => "other-tools",
            Self::NamedChoice => "named-choice",
            Self::NoParser => "no-parser",
            Self::Progress => "progress",
            Self::Refused => "refused",
            Self::LooseSchemas => "loose-schemas",
        }
    }

    /// What it does, and where it is on.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::History => "broken calls of earlier turns are mended ([repair] history)",
            Self::VolatileLines => {
                "lines that differ with every request leave the prompt's head ([routing] strip_volatile)"
            }
            Self::Pictures => {
                "a word stands in place of old pictures, at backends that read none; switched on, of new ones, too"
            }
            Self::FitOutput => "an output limit that does not fit is cut to what is left",
            Self::RaiseOutput => {
                "a limit that cannot be meant is raised: Copilot's 64, or below a client's min_output"
            }
            Self::RoomToThink => {
                "a limit that leaves no room to answer is raised, where the model thinks: agents, or thinking_output"
            }
            Self::OutputName => "the limit goes under the one name that is read: Ollama, or output_limit",
            Self::OneLimit => {
                "max_tokens is sent as max_completion_tokens says, if both are there and differ"
            }
            Self::EmptyMembers => "tools = [] and options of a stream that is none are left out: vLLM",
            Self::OtherTools => "tools that are no functions are left out: vLLM, llama.cpp",
            Self::NamedChoice => "a named tool is required by leaving out the others: llama.cpp",
            Self::NoParser => "tool_choice auto goes as none, and calls are read here: vLLM without a parser",
            Self::Progress => "how far the prompt is read is asked for, for comments to who waits: llama.cpp",
            Self::Refused => "members that the backend refused are left out, and it is asked once more",
            Self::LooseSchemas => {
                "keywords that only narrow a schema are left out if it refused them, and it is asked once more"
            }
        }
    }

    /// Whether it is on for an engine of which the operator said nothing. Where that depends on the engine: vLLM's and
    /// llama.cpp's servers refuse tools that are no functions (their sources), and the latter takes a named tool for `auto`.
    pub(crate) const fn is_usual(self, engine: Engine) -> bool {
        match self {
            Self::OutputName => matches!(engine, Engine::Ollama),
            Self::EmptyMembers => matches!(engine, Engine::Vllm),
            Self::OtherTools => matches!(engine, Engine::Vllm | Engine::LlamaCpp),
            Self::NamedChoice | Self::Progress => matches!(engine, Engine::LlamaCpp),
            _ => true,
        }
    }
}

/// What may be switched: a rule, or a need of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(untagged)]
pub(crate) enum Switch {
    Rule(RequestRule),
    Need(Need),
    Answer(AnswerRule),
}

impl Switch {
    /// The need, if it is one.
    pub(crate) fn need(self) -> Option<Need> {
        match self {
            Self::Need(need) => Some(need),
            Self::Rule(_) | Self::Answer(_) => None,
        }
    }

    /// The names of all.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        let requests = RequestRule::ALL.iter().map(|rule| rule.name());
        let needs = Need::ALL.iter().map(|need| need.name());
        requests.chain(needs).chain(AnswerRule::ALL.iter().map(|rule| rule.name()))
    }

    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let rule = || RequestRule::ALL.into_iter().find(|rule| rule.name() == name).map(Self::Rule);
        let need = || Need::ALL.into_iter().find(|need| need.name() == name).map(Self::Need);
        let answer = || AnswerRule::ALL.into_iter().find(|rule| rule.name() == name).map(Self::Answer);
        rule().or_else(need).or_else(answer)
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule(rule) => rule.name(),
            Self::Need(need) => need.name(),
            Self::Answer(rule) => rule.name(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_reads_back_under_its_name_and_no_name_is_used_twice() {
        let mut names: Vec<_> = Switch::names().collect();
        for name in &names {
            assert_eq!(Switch::named(name).map(|switch| switch.to_string()).as_deref(), Some(*name));
            let read: Switch = serde_json::from_value((*name).into()).expect("a switch");
            assert_eq!(read.to_string(), *name);
        }
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
