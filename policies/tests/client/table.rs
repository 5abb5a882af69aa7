//! The table of built-in profiles.

use switchback_policies::client::{BUILTIN, KeepAlive};

#[test]
fn the_table_has_one_row_a_client_and_names_headers_in_lower_case() {
    for (row, one) in BUILTIN.iter().enumerate() {
        assert!(BUILTIN[..row].iter().all(|other| other.id != one.id), "{}", one.id);
        assert!(one.id.bytes().all(|byte| byte.is_ascii_lowercase() || b"-:".contains(&byte)), "{}", one.id);
        let printed = format!("{one:?}");
        for part in printed.split("Header(\"").skip(1) {
            let name = part.split('"').next().expect("a name");
            assert_eq!(name, name.to_lowercase(), "{}", one.id);
        }
    }
}

#[test]
fn the_clients_that_need_more_than_comments_get_it() {
    let by = |wanted| {
        let rows = BUILTIN.iter().filter(move |profile| profile.keep_alive == wanted);
        rows.map(|profile| profile.id).collect::<Vec<_>>()
    };
    assert_eq!(by(KeepAlive::Ping), ["codex", "claude-code"]);
    assert_eq!(by(KeepAlive::EmptyDelta), ["qwen-code", "continue", "mistral-vibe"]);
}

#[test]
fn the_clients_that_start_above_fifteen_thousand_tokens_are_known() {
    let ids: Vec<_> = BUILTIN.iter().filter(|row| row.starts_above(15_000)).map(|row| row.id).collect();
    assert_eq!(ids, ["claude-code", "qwen-code", "openclaw", "llm-gateway"]);
}
