//! `[[client]]`: the operator's own word on a client, over the built-in profile.

use switchback_policies::admission::Allowance;
use switchback_policies::client::{BUILTIN, Class, KeepAlive, PLAIN, ReasoningField, Usage};
use switchback_policies::demand::{CutAnswers, Wishes};

use super::check::{nearest, switches};
use super::{Backend, file};
use crate::edits::Switch;

/// One entry, checked.
#[derive(Clone, Debug)]
pub(crate) struct ClientRule {
    pub(crate) name: String,
    pub(crate) when: file::When,
    /// Only these: positions in the list of backends.
    pub(crate) backends: Option<Vec<usize>>,
    /// Its requests may make a server load another model in place of the one it has.
    pub(crate) may_swap: bool,
    /// These first, in this order.
    pub(crate) order: Vec<usize>,
    pub(crate) max_prompt: Option<u64>,
    pub(crate) min_output: Option<u64>,
    pub(crate) thinking_output: Option<u64>,
    pub(crate) default_output: Option<u64>,
    pub(crate) class: Option<Class>,
    pub(crate) allowance: Allowance,
    pub(crate) keep_alive: Option<KeepAlive>,
    /// Plain answers may begin with blanks.
    pub(crate) blanks: Option<bool>,
    pub(crate) usage: Option<Usage>,
    pub(crate) reasoning: Option<ReasoningField>,
    /// What becomes of calls that are wrong, missing or cut.
    pub(crate) wishes: Wishes,
    /// What becomes of answers whose backend failed in their midst.
    pub(crate) cut_answers: CutAnswers,
    /// Rules that do not hold for it, and needs of backends that are not met: it knows what it sends.
    pub(crate) rules_off: Vec<Switch>,
    /// Rules for answers that hold for it beside the usual ones.
    pub(crate) rules_on: Vec<Switch>,
    /// Members of the request, and what becomes of them.
    pub(crate) sampling: Vec<(String, Sampling)>,
}

/// What becomes of a number that the client may send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sampling {
    /// This, whatever it sends.
    Set(f64),
    /// What it sends, but not below and not above these.
    Within(f64, f64),
}

impl std::fmt::Display for Sampling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Set(number) => write!(f, "{number}"),
            Self::Within(least, f64::MAX) => write!(f, "at least {least}"),
            Self::Within(f64::MIN, most) => write!(f, "at most {most}"),
            Self::Within(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

impl Sampling {
    /// The number, as JSON, that takes the place of what was sent; `None`: that stays.
    pub(crate) fn instead_of(self, sent: Option<f64>) -> Option<String> {
        match self {
            Self::Set(number) => (sent != Some(number)).then(|| number.to_string()),
            Self::Within(least, most) => {
                let sent = sent?;
                let within = sent.clamp(least, most);
                (within.total_cmp(&sent).is_ne()).then(|| within.to_string())
            }
        }
    }

    /// `0.6`, or `{ at_least = 0.6, at_most = 1.0 }` with at least one of them.
    fn read(value: &toml::Value) -> Option<Self> {
        let number = |value: &toml::Value| {
            #[expect(clippy::cast_precision_loss, reason = "nobody samples with 2^53")]
            let number = value.as_float().or(value.as_integer().map(|whole| whole as f64));
            number.filter(|number| number.is_finite())
        };
        let Some(bounds) = value.as_table() else { return number(value).map(Self::Set) };
        if bounds.is_empty() || bounds.keys().any(|key| !["at_least", "at_most"].contains(&key.as_str())) {
            return None;
        }
        let bound = |key: &str, none: f64| bounds.get(key).map_or(Some(none), number);
        let (least, most) = (bound("at_least", f64::MIN)?, bound("at_most", f64::MAX)?);
        (least <= most).then_some(Self::Within(least, most))
    }
}

/// What may be set for a client, and what engines call it. Numbers only.
const SAMPLING: [&str; 8] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
];

pub(super) fn check(written: file::Client, backends: &[Backend], complaints: &mut Vec<String>) -> ClientRule {
    let name = written.name;
    let mut complain = |text: String| complaints.push(format!("[[client]] {name}: {text}"));
    let when = written.when;
    if name.is_empty() {
        complain("name is missing".to_owned());
    }
    if when.is_always() && BUILTIN.iter().any(|profile| profile.id == name) {
        complain(format!(
            "when is missing: the entry holds for every request, not only for those of {name}\nhint: when = {{ profile = \"{name}\" }}"
        ));
    }
    for header in when.header.keys().filter(|header| header.parse::<http::HeaderName>().is_err()) {
        complain(format!("when.header: \"{header}\" is no name of a header"));
    }
    let rules_on = switches("rules_on", &written.rules_on, &mut complain);
    if let Some(other) = rules_on.iter().find(|rule| !matches!(rule, Switch::Answer(_))) {
        complain(format!("rules_on: {other} is about what a backend needs\nhint: set it under [[backend]]"));
    }
    let rules_off = switches("rules_off", &written.rules_off, &mut complain);
    for (key, value) in
        [("thinking_output", written.thinking_output), ("default_output", written.default_output)]
    {
        if value == Some(0) {
            complain(format!("{key} must be above 0"));
        }
    }
    if written.max_prompt == Some(0) {
        complain("max_prompt must be above 0".to_owned());
    }
    if let Some(profile) = &when.profile {
        let known = || BUILTIN.iter().map(|profile| profile.id).chain([PLAIN.id]);
        if !known().any(|id| id == profile) {
            let near = nearest(profile, known()).map(|near| format!("\nhint: did you mean {near}?"));
            complain(format!("when.profile: there is no {profile}{}", near.unwrap_or_default()));
        }
    }
    let mut positions = |key: &str, wanted: &[String]| -> Vec<usize> {
        let mut found = Vec::new();
        for wanted in wanted {
            match backends.iter().position(|backend| backend.name == *wanted) {
                Some(position) => found.push(position),
                None => {
                    let near = nearest(wanted, backends.iter().map(|backend| backend.name.as_str()));
                    let hint = near.map(|near| format!("\nhint: did you mean {near}?")).unwrap_or_default();
                    complain(format!("{key}: there is no {wanted}{hint}"));
                }
            }
        }
        found
    };
    let only = written.backends.as_deref().map(|wanted| positions("backends", wanted));
    let order = positions("order", &written.order);
    let mut sampling = Vec::new();
    for (member, value) in &written.sampling {
        match Sampling::read(value).filter(|_| SAMPLING.contains(&member.as_str())) {
            Some(read) => sampling.push((member.clone(), read)),
            None => complain(format!(
                "sampling.{member} = {value} is neither a number nor {{ at_least = …, at_most = … }} under one of the names {}",
                SAMPLING.join(", ")
            )),
        }
    }
    let tokens = written.token_budget.map(|budget| (budget.tokens, budget.within));
    if written.max_running == Some(0) {
        complain("max_running must be above 0".to_owned());
    }
    if tokens.is_some_and(|(tokens, within)| tokens == 0 || within.is_zero()) {
        complain("token_budget must have tokens and within above 0".to_owned());
    }
    let allowance = Allowance { running: written.max_running, tokens };
    ClientRule {
        backends: only,
        may_swap: written.may_swap.unwrap_or(true),
        order,
        max_prompt: written.max_prompt,
        min_output: written.min_output,
        thinking_output: written.thinking_output,
        default_output: written.default_output,
        class: written.class.map(Into::into),
        allowance,
        keep_alive: written.keep_alive.map(Into::into),
        blanks: written.blanks,
        usage: written.usage.map(Into::into),
        reasoning: written.reasoning.map(Into::into),
        wishes: Wishes {
            invalid: written.invalid_calls.map(Into::into).unwrap_or_default(),
            missing: written.missing_calls.map(Into::into).unwrap_or_default(),
            cut: written.cut_calls.map(Into::into).unwrap_or_default(),
        },
        cut_answers: written.cut_answers.map(Into::into).unwrap_or_default(),
        rules_off,
        rules_on,
        sampling,
        when,
        name,
    }
}
