//! `switchback clients`: who is recognised, by what, and what follows from it.

use switchback_policies::client::{BUILTIN, Class, KeepAlive, Profile, Usage};
use switchback_policies::demand::CutAnswers;

use super::serve::{find, load};
use super::{Failed, say};
use crate::config::{ClientRule, Config};

pub(super) fn run(file: Option<std::path::PathBuf>) -> Result<(), Failed> {
    say(format_args!("{:20} {:26} {:12} {:9} known tools", "profile", "client", "keep-alive", "usage"));
    for profile in BUILTIN {
        say(row(profile));
    }
    let Some(file) = find(file) else { return Ok(()) };
    let config = load(&file)?;
    for rule in &config.clients {
        let when = &rule.when;
        let mut conditions = Vec::new();
        conditions.extend(when.profile.as_ref().map(|profile| format!("profile {profile}")));
        conditions.extend(when.api_key_name.as_ref().map(|name| format!("key {name}")));
        conditions.extend(when.user_agent.as_ref().map(|agent| format!("user agent has {agent}")));
        conditions.extend(when.header.iter().map(|(name, value)| format!("{name}: {value}")));
        let when = if conditions.is_empty() { "always".to_owned() } else { conditions.join(", ") };
        say(format_args!("\n{} ({}), when: {when}", rule.name, file.display()));
        for effect in effects(rule, &config) {
            say(format_args!("    {effect}"));
        }
    }
    Ok(())
}

/// What an entry changes.
fn effects(rule: &ClientRule, config: &Config) -> Vec<String> {
    let names = |positions: &[usize]| {
        let names = positions.iter().filter_map(|at| config.backends.get(*at)).map(|backend| &*backend.name);
        names.collect::<Vec<_>>().join(", ")
    };
    let mut effects = Vec::new();
    effects.extend(rule.backends.as_deref().map(|only| format!("only {}", names(only))));
    effects.extend((!rule.order.is_empty()).then(|| format!("first {}", names(&rule.order))));
    effects.extend((!rule.may_swap).then(|| "never has another model loaded".to_owned()));
    effects.extend(rule.max_prompt.map(|limit| format!("prompts of at most {limit} tokens")));
    effects
        .extend(rule.min_output.map(|least| format!("with tools, output limits of at least {least} tokens")));
    let class = rule.class.map(|class| match class {
        Class::Interactive => "class interactive",
        Class::Agent => "class agent",
        Class::Background => "class background",
    });
    effects.extend(class.map(str::to_owned));
    effects.extend(rule.allowance.running.map(|most| format!("{most} requests at a time")));
    let budget = rule.allowance.tokens;
    effects.extend(budget.map(|(tokens, within)| format!("{tokens} tokens within {within:?}")));
    effects.extend(rule.keep_alive.map(|kind| format!("keep-alive {}", word(kind))));
    let thoughts = rule.reasoning.map(|field| field.name().unwrap_or("the backend's own member"));
    effects.extend(thoughts.map(|member| format!("thoughts in {member}")));
    effects.extend(rule.sampling.iter().map(|(member, value)| format!("{member} {value}")));
    effects.extend(
        rule.blanks
            .map(|blanks| format!("{} before plain answers", if blanks { "blanks" } else { "nothing" })),
    );
    effects.extend(
        (rule.cut_answers == CutAnswers::Error).then(|| "answers that are cut are not continued".to_owned()),
    );
    let tokens = |tokens: u64| format!("output limits of at least {tokens} tokens where the model thinks");
    effects.extend(rule.thinking_output.map(tokens));
    effects.extend(
        rule.default_output.map(|tokens| format!("an output limit of {tokens} tokens if it sends none")),
    );
    effects.extend((!rule.rules_on.is_empty()).then(|| {
        let names: Vec<_> = rule.rules_on.iter().map(ToString::to_string).collect();
        format!("answers put right by {}", names.join(", "))
    }));
    effects.extend((!rule.rules_off.is_empty()).then(|| {
        let names: Vec<_> = rule.rules_off.iter().map(ToString::to_string).collect();
        format!("rules that do not hold: {}", names.join(", "))
    }));
    effects
}

fn word(kind: KeepAlive) -> &'static str {
    match kind {
        KeepAlive::Comment => "comment",
        KeepAlive::EmptyDelta => "empty-delta",
        KeepAlive::Ping => "ping",
        KeepAlive::None => "none",
    }
}

fn row(profile: &Profile) -> String {
    let keep_alive = word(profile.keep_alive);
    let usage = match profile.usage {
        Usage::IfAsked => "if-asked",
        Usage::Always => "always",
    };
    format!("{:20} {:26} {keep_alive:12} {usage:9} {}", profile.id, profile.name, profile.tools.len())
}
