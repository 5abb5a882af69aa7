//! What each word becomes, and that none is dropped.

use serde_json::json;

use super::super::case;
use super::*;

fn written(settings: Value, asked: &str) -> Configuration {
    let mut all = json!({"backends": [
        {"name": "a", "kind": "vllm", "window_tokens": 100, "safe_prompt_tokens": 90, "api_key": "k", "serves": "m"},
        {"name": "b", "kind": "llama.cpp", "window_tokens": 50, "safe_prompt_tokens": 60, "slots": 1}]});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let case = json!({"id": "1-x", "category": "c", "expect": {}, "policy": {"settings": all},
        "client_request": {"method": "POST", "path": "/", "body": {"model": asked}}});
    let case = case::parse(&case.to_string()).unwrap();
    configuration(&case, &["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()])
}

#[test]
fn words_become_settings() {
    let configuration = written(
        json!({
            "failover": {"on": ["out-of-memory"], "order": ["b"]}, "first_token_ms": 800, "continue_after_cut": false,
            "keepalive": {"after_ms": 300, "every_ms": 500, "style": "comment"}, "client_keys": ["one", "two"],
            "overflow_breaker": {"overflows": 3, "within_ms": 60000}, "model_aliases": {"*": "m"}
        }),
        "gpt-4o",
    );
    for line in [
        "name = \"m\"\naliases = [\"gpt-4o\"]\nbackends = [\"b\", \"a\"]",
        "url = \"http://127.0.0.1:2\"\nengine = \"llama-cpp\"\nwindow = 50\nlimit = { single = 50 }",
        "first_token = \"800ms\"",
        "hold_head = \"300ms\"\nkeep_alive = \"300ms\"",
        "overflow_loop = { count = 3, within = \"60000ms\" }",
        "api_keys_env = \"SWITCHBACK_API_KEYS\"",
        "api_key_env = \"BACKEND_0_KEY\"",
        "slots = 1",
        "[[client]]\nname = \"everybody\"\ncut_answers = \"error\"\nkeep_alive = \"comment\"",
    ] {
        assert!(configuration.toml.contains(line), "{line}\n{}", configuration.toml);
    }
    let env = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(configuration.env, [env("SWITCHBACK_API_KEYS", "one,two"), env("BACKEND_0_KEY", "k")]);
    assert_eq!(configuration.unmapped, [""; 0]);
}

#[test]
fn rules_of_a_case_become_rules_of_the_configuration_on_and_off() {
    let configuration = written(
        json!({
            "named_tool_choice": "required-with-one-tool", "drop_non_function_tools": true, "clamp_output_to_window": false,
            "retry_with_loose_schemas": false, "tool_id_style": "kimi", "thinking_tags": ["<r>", "</r>"],
            "output_limit_field_upstream": "max_tokens", "min_output_tokens_for_thinking_model": 4096,
            "promote_calls_found_in_reasoning": false
        }),
        "m",
    );
    for line in [
        r#"rules_on = ["named-choice", "other-tools"]"#,
        r#"rules_off = ["fit-output", "loose-schemas"]"#,
        r#"needs = ["kimi-ids"]"#,
        r#"thinking_tags = ["<r>", "</r>"]"#,
        r#"output_limit = "max_tokens""#,
        "thinks = true",
        "thinking_output = 4096",
        "calls_in_thoughts = false",
    ] {
        assert!(configuration.toml.contains(line), "{line}\n{}", configuration.toml);
    }
    assert_eq!(configuration.unmapped, [""; 0]);
}

#[test]
fn what_cannot_be_said_is_reported_and_never_dropped() {
    let unmapped = |settings: Value| written(settings, "m").unmapped.len();
    for (settings, count) in [
        (json!({"tool_id_style": "roman"}), 1),
        (json!({"history_repair": false}), 0),
        (json!({"continue_after_cut": true}), 0),
        (json!({"continue_after_cut": "perhaps"}), 1),
        (json!({"keepalive": {"after_ms": 1, "every_ms": 1, "style": "by-client"}}), 0),
        (json!({"keepalive": {"after_ms": 1, "every_ms": 1, "style": "smoke signals"}}), 1),
        (json!({"keepalive": {"after_ms": "soon"}}), 1),
        (json!({"failover": {"no_such_member": 1}}), 1),
        (json!({"no_such_word": 1}), 1),
    ] {
        assert_eq!(unmapped(settings.clone()), count, "{settings}");
    }
}

#[test]
fn no_word_stands_twice_in_the_table() {
    let names: std::collections::BTreeSet<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    assert_eq!(names.len(), WORDS.len());
}
