//! From the plain words of a case's policy to the configuration of this proxy: one table, word by word.
//!
//! A word that is not here, or has a value that the configuration cannot say, is reported with the case as unmapped and never
//! silently dropped. Nothing here knows a case.

mod backends;
mod models;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use switchback_policies::facts::Speed;

use super::case::Case;

/// A configuration for one case.
#[derive(Debug, Default)]
pub struct Configuration {
    /// The file's text.
    pub toml: String,
    /// Environment variables that it refers to.
    pub env: Vec<(String, String)>,
    /// Words that it could not say, each with what is missing.
    pub unmapped: Vec<String>,
}

/// What a word becomes.
enum Becomes {
    /// A setting.
    Set(fn(&Value, &mut Draft) -> Option<()>),
    /// Nothing, since the proxy always behaves so; with the value for which that is true (absent: any).
    Always(Option<bool>),
    /// Nothing for the proxy: it concerns this harness, or is read together with another word.
    Elsewhere,
}
use Becomes::{Always, Elsewhere, Set};

/// Every word of the README's last section.
const WORDS: &[(&str, Becomes)] = &[
    // who serves, and what goes where
    ("backends", Elsewhere),      // [[backend]], see `backends`
    ("model_aliases", Elsewhere), // [[model]] aliases, see `models`
    ("route_by_prompt_tokens", Always(None)),
    (
        "echo_client_model",
        Set(|value, draft| {
            draft.answer("model_name", if value.as_bool()? { "\"client\"" } else { "\"backend\"" })
        }),
    ),
    ("sticky_conversations", Set(|value, draft| draft.routing("sticky", value.as_bool()?))),
    ("strip_volatile_prompt_lines", Set(|value, draft| draft.routing("strip_volatile", value.as_bool()?))),
    ("gate_large_prefill", Set(gate)),
    // failover
    ("failover", Elsewhere),       // its members below
    ("failover.order", Elsewhere), // [[model]] backends, see `models`
    ("failover.on", Always(None)),
    ("failover.overflow_only_to_larger_window", Always(Some(true))),
    ("failover.first_token_ms", Set(|value, draft| draft.failover("first_token", ms(value)?))),
    ("first_token_ms", Set(|value, draft| draft.failover("first_token", ms(value)?))),
    ("avoid_dead_backend", Always(Some(true))),
    (
        "continue_after_cut",
        Set(|value, draft| {
            draft.everybody("cut_answers", if value.as_bool()? { "\"continue\"" } else { "\"error\"" })
        }),
    ),
    ("health_answers", Elsewhere), // the scripted backends
    ("wait_for_loading", Set(|value, draft| draft.failover("loading", ms(value.get("up_to_ms")?)?))),
    ("report_death_as_overflow", Set(death_as_overflow)),
    // keep-alives
    ("keepalive", Set(keep_alive)),
    ("keepalive.after_ms", Elsewhere), // with keepalive
    ("keepalive.every_ms", Elsewhere),
    ("keepalive.style", Set(keep_alive_style)),
    // windows and output limits
    ("compaction_headroom_tokens", Set(|value, draft| draft.answer("compaction_headroom", value.as_u64()?))),
    ("overflow_breaker", Set(overflow_loop)),
    ("clamp_output_to_window", Set(|value, draft| draft.rule("fit-output", value.as_bool()?))),
    ("window_margin_tokens", Set(|value, draft| draft.answer("window_margin", value.as_u64()?))),
    ("min_output_tokens_with_tools", Set(|value, draft| draft.everybody("min_output", value.as_u64()?))),
    ("min_output_tokens_for_thinking_model", Set(room_to_think)),
    ("output_limit_field_upstream", Set(|value, draft| draft.backend("output_limit", text(value)?))),
    // usage
    (
        "ask_usage_upstream",
        Set(|value, draft| draft.answer("ask_usage", value.as_bool().or(Some(value == "always"))?)),
    ),
    ("usage_to_client", Set(|value, draft| draft.answer("usage", text(value)?))),
    // doors
    ("client_keys", Set(client_keys)),
    ("cors_allow_origins", Set(|value, draft| draft.server("allowed_origins", value))),
    (
        "max_body_megabytes",
        Set(|value, draft| draft.server("max_body", format!("\"{}MiB\"", value.as_u64()?))),
    ),
    ("responses_path", Set(forwarded)),
    ("messages_path", Set(forwarded)),
    // calls and thinking
    ("repair_text_tool_calls", Set(|value, draft| draft.repair("tool_calls", on(value)?))),
    (
        "promote_calls_found_in_reasoning",
        Set(|value, draft| draft.repair("calls_in_thoughts", value.as_bool()?)),
    ),
    ("enforce_parallel_tool_calls_false", Set(|value, draft| draft.repair("one_call", value.as_bool()?))),
    (
        "named_tool_choice",
        Set(|value, draft| (value == "required-with-one-tool").then(|| draft.rule("named-choice", true))?),
    ),
    ("tool_id_style", Set(tool_id_style)),
    ("reasoning_field_to_client", Set(|value, draft| draft.answer("reasoning", text(value)?))),
    ("thinks_without_opening_tag", Set(|value, draft| draft.backend("thinking_open", value.as_bool()?))),
    ("thinking_tags", Set(thinking_tags)),
    // the request's shape
    ("history_repair", Set(|value, draft| draft.repair("history", value.as_bool()?))),
    ("system_messages", Set(system_messages)),
    ("developer_role", Set(|value, draft| (value == "to-system").then(|| draft.need("no-developer")))),
    (
        "merge_same_role_messages",
        Set(|value, draft| value.as_bool()?.then(|| draft.need("alternating-roles"))),
    ),
    ("ensure_user_turn", Set(|value, draft| value.as_bool()?.then(|| draft.need("user-turn")))),
    ("null_content_to", Set(|value, draft| (value == "empty-string").then(|| draft.need("no-null-content")))),
    ("flatten_text_parts", Set(|value, draft| value.as_bool()?.then(|| draft.need("string-content")))),
    (
        "images_on_text_backend",
        Set(|value, draft| (value == "placeholder").then(|| draft.rule("pictures", true))?),
    ),
    ("drop_request_fields", Set(|value, draft| draft.drop(value.as_array()?.iter()))),
    (
        "drop_answer_only_message_fields",
        Set(|value, draft| if value.as_bool()? { draft.drop(ANSWER_ONLY) } else { Some(()) }),
    ),
    ("drop_non_function_tools", Set(|value, draft| draft.rule("other-tools", value.as_bool()?))),
    ("schema_cleanup", Set(|value, draft| draft.backend("drop_schema_keywords", value))),
    ("retry_with_loose_schemas", Set(|value, draft| draft.rule("loose-schemas", value.as_bool()?))),
    ("retry_without_forbidden_fields", Set(|value, draft| draft.rule("refused", value.as_bool()?))),
];

/// What only answers have, and strict servers refuse in a history; quoted.
const ANSWER_ONLY: [&str; 4] = [
    "\"/messages/*/refusal\"",
    "\"/messages/*/annotations\"",
    "\"/messages/*/audio\"",
    "\"/messages/*/function_call\"",
];

/// The proxy weighs prefills in seconds: those that a prompt of so many tokens takes on a machine of unknown speed.
fn gate(value: &Value, draft: &mut Draft) -> Option<()> {
    let stall = Speed::USUAL.prefill(0, value.get("above_prompt_tokens")?.as_u64()?);
    draft.admission("max_victim_stall", format!("\"{}ms\"", (stall * 1000.0).round()));
    draft.admission("large_prefill_wait", ms(value.get("wait_at_most_ms")?)?)
}

/// A backend that speaks the dialect itself gets it as it came.
fn forwarded(value: &Value, _: &mut Draft) -> Option<()> {
    (value == "forward").then_some(())
}

fn system_messages(value: &Value, draft: &mut Draft) -> Option<()> {
    draft.need(match value.as_str()? {
        "join-front" => "system-first",
        "late-to-user" => "late-system-as-user",
        _ => return None,
    });
    Some(())
}

/// Every request, with tools or without.
fn room_to_think(value: &Value, draft: &mut Draft) -> Option<()> {
    draft.backend("thinks", true);
    draft.everybody("thinking_output", value.as_u64()?)
}

fn tool_id_style(value: &Value, draft: &mut Draft) -> Option<()> {
    draft.need(match value.as_str()? {
        "alnum9" => "nine-character-ids",
        "kimi" => "kimi-ids",
        _ => return None,
    });
    Some(())
}

/// Two tags, or the opening one alone.
fn thinking_tags(value: &Value, draft: &mut Draft) -> Option<()> {
    let [open, close] = match value {
        Value::Array(tags) => [tags.first()?.as_str()?.to_owned(), tags.get(1)?.as_str()?.to_owned()],
        Value::Object(tags) => {
            [tags.get("open")?.as_str()?.to_owned(), tags.get("close")?.as_str()?.to_owned()]
        }
        Value::String(open) => [open.clone(), open.replacen('<', "</", 1).replacen('[', "[/", 1)],
        _ => return None,
    };
    draft.backend("thinking_tags", format!("[{}, {}]", quoted(&open), quoted(&close)))
}

fn death_as_overflow(value: &Value, draft: &mut Draft) -> Option<()> {
    draft.failover("death_is_overflow_above", value.get("above_prompt_tokens")?.as_u64()?)
}

fn keep_alive(value: &Value, draft: &mut Draft) -> Option<()> {
    let (after, every) = (value.get("after_ms")?, value.get("every_ms")?);
    draft.failover("hold_head", ms(after)?)?;
    // One silence for the first and all later ones: the shorter.
    draft.failover("keep_alive", ms(if after.as_u64()? < every.as_u64()? { after } else { every })?)
}

/// What the operator wants for everybody; without it each recognised client gets its own.
fn keep_alive_style(value: &Value, draft: &mut Draft) -> Option<()> {
    match value.as_str()? {
        "by-client" => {}
        style @ ("comment" | "empty-delta") => {
            draft.everybody.push(format!("keep_alive = \"{style}\""));
        }
        _ => return None,
    }
    Some(())
}

fn on(value: &Value) -> Option<&'static str> {
    Some(if value.as_bool()? { "\"auto\"" } else { "\"off\"" })
}

fn overflow_loop(value: &Value, draft: &mut Draft) -> Option<()> {
    let (count, within) = (value.get("overflows")?.as_u64()?, ms(value.get("within_ms")?)?);
    draft.answer("overflow_loop", format!("{{ count = {count}, within = {within} }}"))
}

fn client_keys(value: &Value, draft: &mut Draft) -> Option<()> {
    let keys: Option<Vec<&str>> = value.as_array()?.iter().map(Value::as_str).collect();
    draft.env.push(("SWITCHBACK_API_KEYS".to_owned(), keys?.join(",")));
    draft.server("api_keys_env", quoted("SWITCHBACK_API_KEYS"))
}

/// The pieces of the file.
#[derive(Debug, Default)]
struct Draft {
    server: Vec<String>,
    failover: Vec<String>,
    admission: Vec<String>,
    answer: Vec<String>,
    routing: Vec<String>,
    repair: Vec<String>,
    /// For each backend.
    backend: Vec<String>,
    needs: Vec<String>,
    drop: Vec<String>,
    rules_on: Vec<String>,
    rules_off: Vec<String>,
    /// For each client.
    everybody: Vec<String>,
    env: Vec<(String, String)>,
    unmapped: Vec<String>,
}

impl Draft {
    fn server(&mut self, key: &str, value: impl std::fmt::Display) -> Option<()> {
        self.server.push(format!("{key} = {value}"));
        Some(())
    }

    fn failover(&mut self, key: &str, value: impl std::fmt::Display) -> Option<()> {
        self.failover.push(format!("{key} = {value}"));
        Some(())
    }

    fn admission(&mut self, key: &str, value: impl std::fmt::Display) -> Option<()> {
        self.admission.push(format!("{key} = {value}"));
        Some(())
    }

    fn routing(&mut self, key: &str, value: impl std::fmt::Display) -> Option<()> {
        self.routing.push(format!("{key} = {value}"));
        Some(())
    }

    fn repair(&mut self, key: &str, value: impl std::fmt::Display) -> Option<()> {
        self.repair.push(format!("{key} = {value}"));
        Some(())
    }

    fn backend(&mut self, key: &str, value: impl std::fmt::Display) -> Option<()> {
        self.backend.push(format!("{key} = {value}"));
        Some(())
    }

    fn everybody(&mut self, key: &str, value: impl std::fmt::Display) -> Option<()> {
        self.everybody.push(format!("{key} = {value}"));
        Some(())
    }

    fn drop(&mut self, places: impl IntoIterator<Item = impl std::fmt::Display>) -> Option<()> {
        self.drop.extend(places.into_iter().map(|place| place.to_string()));
        Some(())
    }

    fn rule(&mut self, rule: &str, on: bool) -> Option<()> {
        if on { &mut self.rules_on } else { &mut self.rules_off }.push(quoted(rule));
        Some(())
    }

    fn need(&mut self, need: &str) {
        self.needs.push(quoted(need));
    }

    fn answer(&mut self, key: &str, value: impl std::fmt::Display) -> Option<()> {
        self.answer.push(format!("{key} = {value}"));
        Some(())
    }

    fn word(&mut self, word: &str, value: &Value) {
        let known = WORDS.iter().find(|(known, _)| *known == word);
        let missing = match known.map(|(_, becomes)| becomes) {
            Some(Set(set)) => set(value, self).is_none().then_some("cannot be read"),
            Some(Always(Some(only))) => (*value != Value::Bool(*only)).then_some("another value than ours"),
            Some(Always(None) | Elsewhere) => None,
            None => Some("not in the table"),
        };
        if let Some(missing) = missing {
            let value = if value.to_string().len() <= 40 { format!(" = {value}") } else { String::new() };
            self.unmapped.push(format!("{word}{value} ({missing})"));
        }
    }
}

/// Writes the configuration for a case whose backends listen at `addresses`.
pub fn configuration(case: &Case, addresses: &[SocketAddr]) -> Configuration {
    let mut draft = Draft::default();
    for (word, value) in &case.settings {
        draft.word(word, value);
        if let ("failover" | "keepalive", Value::Object(members)) = (word.as_str(), value) {
            for (member, value) in members {
                draft.word(&format!("{word}.{member}"), value);
            }
        }
    }
    let backends = backends::backends(case, addresses, &mut draft);
    let server = draft.server.join("\n");
    let (failover, answer) = (draft.failover.join("\n"), draft.answer.join("\n"));
    let (routing, everybody) = (draft.routing.join("\n"), draft.everybody.join("\n"));
    let (repair, admission) = (draft.repair.join("\n"), draft.admission.join("\n"));
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n{server}\n\n{backends}{models}[[client]]\nname = \"everybody\"\n{everybody}\n\n[routing]\n{routing}\n\n[repair]\n{repair}\n\n[admission]\n{admission}\n\n[failover]\n{failover}\n\n[answer]\n{answer}\n\n\
         [probe]\ninterval = \"200ms\"\n",
        models = models::models(case)
    );
    Configuration { toml, env: draft.env, unmapped: draft.unmapped }
}

fn ms(value: &Value) -> Option<String> {
    // Through the type, so that only whole milliseconds pass.
    let duration = Duration::from_millis(value.as_u64()?);
    Some(quoted(&format!("{}ms", duration.as_millis())))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(quoted)
}

/// A TOML string; JSON's way is valid there.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
#[path = "adapter_tests.rs"]
mod tests;
