//! `switchback clients`: who is recognised, by what, and what follows from it.

use switchback_policies::client::{BUILTIN, KeepAlive, PLAIN, Profile, Usage};

use super::serve::{find, load};
use super::{Failed, say};

pub(super) fn run(file: Option<std::path::PathBuf>) -> Result<(), Failed> {
    say(format_args!("{:20} {:26} {:12} {:9} known tools", "profile", "client", "keep-alive", "usage"));
    for profile in BUILTIN.iter().chain([&PLAIN]) {
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
    }
    Ok(())
}

fn row(profile: &Profile) -> String {
    let keep_alive = match profile.keep_alive {
        KeepAlive::Comment => "comment",
        KeepAlive::EmptyDelta => "empty-delta",
        KeepAlive::Ping => "ping",
        KeepAlive::None => "none",
    };
    let usage = match profile.usage {
        Usage::IfAsked => "if-asked",
        Usage::Always => "always",
    };
    format!("{:20} {:26} {keep_alive:12} {usage:9} {}", profile.id, profile.name, profile.tools.len())
}
