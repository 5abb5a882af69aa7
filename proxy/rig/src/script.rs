//! The script: what a simulated backend does with its next inference requests, one step each.
//!
//! The verbs are those of the community's own stub endpoint (`ok`, `empty`, `http:CODE`, `dead`) and some more. A
//! step is one line of text, so that a script is a plain list in TOML, JSON or on a command line. A script says
//! *what* happens; it must never say how an engine puts it on the wire.

use std::{collections::VecDeque, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Flaw, Format, SpecError};

/// What happens to one inference request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Step {
    /// `ok`: an answer derived from seed and prompt.
    #[default]
    Ok,
    /// `say TEXT`: this text.
    Say(String),
    /// `think TEXT`: prose behind this thought in `<think>` tags, as text: the way of a server without a reasoning
    /// parser.
    Think(String),
    /// `call`: a call of one of the request's tools, with arguments that fit it; prose if there is none.
    Fit,
    /// `call NAME ARGUMENTS`: a tool call; the arguments go out as written, be they JSON or not. Without a tool
    /// parser the call comes out as text.
    Call {
        /// The tool's name.
        name: String,
        /// The arguments, as text.
        arguments: String,
    },
    /// `write FORMAT[:FLAW] [NAME [ARGUMENTS]]`: a tool call as text, with a tool parser or without: `write hermes`,
    /// `write qwen-xml:unclosed get_weather {"city": "Bern"}`. What is not said is taken from the request's tools.
    Write {
        /// The format.
        format: Format,
        /// What is wrong with it.
        flaw: Option<Flaw>,
        /// The tool's name; none: one of the request's tools, or `lookup`.
        name: Option<String>,
        /// The arguments as JSON; none: such as fit the tool.
        arguments: Option<String>,
    },
    /// `empty`: status 200, usage, no content at all.
    Empty,
    /// `http:CODE`: this status (400 to 599) at once, with an error body of the engine's shape.
    Http(u16),
    /// `dead`: the engine dies in this request's prefill.
    Dead,
    /// `stall` or `stall:N`: silence after N tokens (default 0), with the socket open and the engine idle.
    Stall(usize),
    /// `cut:N`: the connection breaks after N tokens, without an error and without an end.
    Cut(usize),
}

impl FromStr for Step {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || SpecError::Step { text: text.to_owned() };
        let number = |digits: &str| digits.trim().parse().map_err(|_| wrong());
        let trimmed = text.trim();
        match trimmed {
            "ok" => return Ok(Self::Ok),
            "empty" => return Ok(Self::Empty),
            "dead" => return Ok(Self::Dead),
            "stall" => return Ok(Self::Stall(0)),
            "call" => return Ok(Self::Fit),
            _ => {}
        }
        if let Some(said) = trimmed.strip_prefix("say ") {
            Ok(Self::Say(said.to_owned()))
        } else if let Some(thought) = trimmed.strip_prefix("think ") {
            Ok(Self::Think(thought.to_owned()))
        } else if let Some(call) = trimmed.strip_prefix("write ") {
            written(call.trim()).ok_or_else(wrong)
        } else if let Some(call) = trimmed.strip_prefix("call ") {
            let (name, arguments) = call.trim().split_once(' ').unwrap_or((call.trim(), "{}"));
            Ok(Self::Call { name: name.to_owned(), arguments: arguments.trim().to_owned() })
        } else if let Some(code) = trimmed.strip_prefix("http:") {
            code.trim()
                .parse()
                .ok()
                .filter(|code| (400..600).contains(code))
                .map(Self::Http)
                .ok_or_else(wrong)
        } else if let Some(tokens) = trimmed.strip_prefix("stall:") {
            number(tokens).map(Self::Stall)
        } else if let Some(tokens) = trimmed.strip_prefix("cut:") {
            number(tokens).map(Self::Cut)
        } else {
            Err(wrong())
        }
    }
}

/// `FORMAT[:FLAW] [NAME [ARGUMENTS]]`.
fn written(text: &str) -> Option<Step> {
    let (how, call) = text.split_once(' ').unwrap_or((text, ""));
    let (format, flaw) = how.split_once(':').map_or((how, None), |(format, flaw)| (format, Some(flaw)));
    let format = Format::named(format)?;
    let flaw = match flaw {
        Some(flaw) => Some(Flaw::named(flaw).filter(|flaw| format.flaws().any(|known| known == *flaw))?),
        None => None,
    };
    let (name, arguments) = call.trim().split_once(' ').unwrap_or((call.trim(), ""));
    let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    Some(Step::Write { format, flaw, name: given(name), arguments: given(arguments) })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => write!(f, "ok"),
            Self::Say(text) => write!(f, "say {text}"),
            Self::Think(thought) => write!(f, "think {thought}"),
            Self::Fit => write!(f, "call"),
            Self::Call { name, arguments } => write!(f, "call {name} {arguments}"),
            Self::Write { format, flaw, name, arguments } => {
                write!(f, "write {format}")?;
                flaw.iter().try_for_each(|flaw| write!(f, ":{flaw}"))?;
                name.iter().chain(arguments).try_for_each(|part| write!(f, " {part}"))
            }
            Self::Empty => write!(f, "empty"),
            Self::Http(code) => write!(f, "http:{code}"),
            Self::Dead => write!(f, "dead"),
            Self::Stall(0) => write!(f, "stall"),
            Self::Stall(tokens) => write!(f, "stall:{tokens}"),
            Self::Cut(tokens) => write!(f, "cut:{tokens}"),
        }
    }
}

impl TryFrom<String> for Step {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<Step> for String {
    fn from(step: Step) -> Self {
        step.to_string()
    }
}

/// Steps that are used up one per inference request, in the order of arrival, and what comes after them. Agents ask for titles
/// and the like beside their turns, without tools: `aside` keeps those from taking the turns' steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// The steps still to come.
    pub steps: VecDeque<Step>,
    /// What each request gets when no step is left.
    pub then: Step,
    /// What requests without tools get; none: they take steps like all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aside: Option<Step>,
}

impl Script {
    /// These steps, then `ok` for ever.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// The step of the next request.
    pub(crate) fn take(&mut self, has_tools: bool) -> Step {
        if let Some(aside) = self.aside.as_ref().filter(|_| !has_tools) {
            return aside.clone();
        }
        self.steps.pop_front().unwrap_or_else(|| self.then.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_reads_back_as_it_was_written() {
        let lines = [
            "ok",
            "say two  words",
            "think a little",
            "call",
            "call f {\"a\": 1}",
            "write hermes",
            "write qwen-xml:unclosed f {\"a\": 1}",
            "write pythonic:two f",
            "empty",
            "http:503",
            "dead",
            "stall",
            "stall:3",
            "cut:12",
        ];
        for line in lines {
            assert_eq!(line.parse::<Step>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn a_step_that_is_none_is_named_in_the_error() {
        for line in [
            "",
            "http:",
            "http:200",
            "cut:",
            "cut:x",
            "stall:-1",
            "narrow",
            "write",
            "write yaml",
            "write glm:trailing-comma",
        ] {
            assert!(line.parse::<Step>().unwrap_err().to_string().contains(&format!("{line:?}")), "{line}");
        }
    }

    #[test]
    fn steps_are_used_once_each_then_the_default_remains() {
        let mut script: Script =
            serde_json::from_str(r#"{"steps": ["empty", "http:500"], "then": "say x"}"#).unwrap();
        let taken: Vec<_> = (0..4).map(|_| script.take(false).to_string()).collect();
        assert_eq!(taken, ["empty", "http:500", "say x", "say x"]);
    }
    #[test]
    fn a_request_without_tools_takes_no_step_where_it_has_one_of_its_own() {
        let mut script: Script =
            serde_json::from_str(r#"{"steps": ["dead"], "aside": "say title"}"#).unwrap();
        let taken: Vec<_> = [false, true, true].map(|tools| script.take(tools).to_string()).into();
        assert_eq!(taken, ["say title", "dead", "ok"]);
    }
}
