//! `[[client]]` as it is written, and when an entry holds.
//!
//! Only reading happens here, as in all of [`super`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{
    Class, CutAnswers, CutCalls, InvalidCalls, KeepAlive, MissingCalls, ReasoningMember, Usage, words,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Client {
    pub(in crate::config) name: String,
    #[serde(default)]
    pub(in crate::config) when: When,
    pub(in crate::config) backends: Option<Vec<String>>,
    #[serde(default)]
    pub(in crate::config) order: Vec<String>,
    pub(in crate::config) max_prompt: Option<u64>,
    pub(in crate::config) min_output: Option<u64>,
    pub(in crate::config) thinking_output: Option<u64>,
    pub(in crate::config) default_output: Option<u64>,
    pub(in crate::config) class: Option<Class>,
    pub(in crate::config) may_swap: Option<bool>,
    pub(in crate::config) max_running: Option<u64>,
    pub(in crate::config) token_budget: Option<TokenBudget>,
    pub(in crate::config) keep_alive: Option<KeepAlive>,
    pub(in crate::config) blanks: Option<bool>,
    pub(in crate::config) usage: Option<Usage>,
    pub(in crate::config) reasoning: Option<ReasoningMember>,
    pub(in crate::config) invalid_calls: Option<InvalidCalls>,
    pub(in crate::config) missing_calls: Option<MissingCalls>,
    pub(in crate::config) cut_calls: Option<CutCalls>,
    pub(in crate::config) cut_answers: Option<CutAnswers>,
    #[serde(default)]
    pub(in crate::config) rules_off: Vec<String>,
    #[serde(default)]
    pub(in crate::config) rules_on: Vec<String>,
    #[serde(default)]
    pub(in crate::config) sampling: BTreeMap<String, toml::Value>,
}

/// So many tokens, prompt and output, within a time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct TokenBudget {
    pub(in crate::config) tokens: u64,
    #[serde(deserialize_with = "words::duration")]
    pub(in crate::config) within: Duration,
}

/// When an entry holds: all of what is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct When {
    /// Id of a built-in profile.
    pub(crate) profile: Option<String>,
    /// The name of the key that the request came with.
    pub(crate) api_key_name: Option<String>,
    /// Occurs in the user agent, whatever the case.
    pub(crate) user_agent: Option<String>,
    /// Headers and their values.
    pub(crate) header: BTreeMap<String, String>,
}

impl When {
    /// Nothing is asked: every request fulfils it.
    pub(in crate::config) fn is_always(&self) -> bool {
        let Self { profile, api_key_name, user_agent, header } = self;
        profile.is_none() && api_key_name.is_none() && user_agent.is_none() && header.is_empty()
    }
}
