//! Recorded requests of real clients.

use serde_json::json;
use switchback_policies::client::{Class, Confidence, recognise};

use crate::fixtures::{Request, fixtures};
use crate::{check, class_of, profile, who};

#[test]
fn every_recorded_request_is_recognised_as_its_client() {
    let all = fixtures();
    assert!(all.len() >= 55, "{} requests", all.len());
    for request in &all {
        let found = who(request);
        assert_eq!(found.profile.id, request.client, "{}: {found}", request.place);
        assert!(found.confidence >= Confidence::Guessed, "{}: {found}", request.place);
    }
}

#[test]
fn without_its_user_agent_a_client_is_known_by_headers_tools_or_body() {
    // Its second compaction request has neither tools nor a header of its own.
    let unknowable = ["qwen-code.compaction.json 3"];
    for request in fixtures() {
        let request = request.without_header("user-agent");
        let found = who(&request);
        if unknowable.contains(&request.place.as_str()) {
            assert_eq!(found.profile.id, "sdk:openai-js", "{}: {found}", request.place);
        } else {
            assert_eq!(found.profile.id, request.client, "{}: {found}", request.place);
        }
    }
}

#[test]
fn tools_alone_name_a_client_that_has_enough_of_its_own() {
    for request in fixtures().iter().filter(|request| request.tools.len() > 1) {
        let bare = Request { headers: Vec::new(), body: json!({}), ..request.clone() };
        check(&bare, &request.client, Confidence::Likely);
    }
}

#[test]
fn two_tools_lost_or_renamed_and_three_foreign_ones_change_nothing() {
    let foreign = ["mcp__tracker__list", "query_database", "take_screenshot"];
    for request in fixtures().iter().filter(|request| !request.tools.is_empty()) {
        // With one tool, and that a common one, nothing is left of it.
        let expected = if request.tools.len() == 1 { "sdk:openai-python" } else { &request.client };
        for first in 0..request.tools.len() {
            for second in first..request.tools.len() {
                let mut lost = request.clone();
                lost.tools.remove(second);
                if second > first {
                    lost.tools.remove(first);
                }
                let mut renamed = request.clone();
                for at in [first, second] {
                    renamed.tools[at] = format!("new_{}", request.tools[at]);
                }
                for mut changed in [lost, renamed] {
                    changed.tools.extend(foreign.map(str::to_owned));
                    let found = who(&changed);
                    assert_eq!(
                        found.profile.id, expected,
                        "{} less {first}, {second}: {found}",
                        request.place
                    );
                }
            }
        }
    }
}

#[test]
fn a_hundred_tools_of_the_users_own_hide_no_client_but_the_one_with_a_single_tool() {
    for mut request in fixtures() {
        if request.tools.len() != 1 {
            request.tools.extend((0..100).map(|nth| format!("mcp__server__tool_{nth}")));
            // A request that had no tools because it is side traffic, or because its client has none, has them now.
            if request.tools.len() > 100 {
                let found = who(&request);
                assert_eq!(found.profile.id, request.client, "{}: {found}", request.place);
            }
        }
    }
}

#[test]
fn titles_are_background_and_all_else_is_somebodys_turn() {
    let background: Vec<String> = fixtures()
        .into_iter()
        .filter(|request| class_of(request) == Class::Background)
        .map(|request| request.place)
        .collect();
    assert_eq!(
        background,
        ["claude-code.interactive.json 1", "opencode.compaction.json 0", "opencode.json 0"]
    );
}

#[test]
fn a_title_request_grown_long_or_without_its_schema_is_somebodys_turn() {
    let all = fixtures();
    let title = |place: &str| all.iter().find(|request| request.place == place).expect("a fixture").clone();
    for place in ["opencode.json 0", "claude-code.interactive.json 1"] {
        let long = Request { bytes: 100_000, ..title(place) };
        assert_eq!(class_of(&long), Class::Agent, "{place}");
    }
    let mut free = title("claude-code.interactive.json 1");
    free.body["output_config"] = json!({"effort": "high"});
    assert_eq!(class_of(&free), Class::Agent);
}

#[test]
fn a_conversation_has_one_name_over_all_requests_of_a_client_that_names_it() {
    let named = ["claude-code", "codex", "kilo", "opencode", "openhands"];
    for request in fixtures() {
        let name = request.clues(|clues| recognise(&clues).profile.conversation(&clues).map(str::to_owned));
        // The summary of OpenHands carries none.
        let expected =
            named.contains(&request.client.as_str()) && request.place != "openhands.compaction.json 2";
        assert_eq!(name.is_some(), expected, "{}: {name:?}", request.place);
        if let Some(name) = name {
            assert!(name.ends_with("0000000001"), "{}: {name}", request.place);
        }
    }
}

#[test]
fn a_conversation_is_still_named_by_the_body_where_a_header_was_lost() {
    let claude = fixtures().into_iter().find(|request| request.client == "claude-code").expect("one");
    let claude = claude.without_header("x-claude-code-session-id");
    let name = claude.clues(|clues| profile("claude-code").conversation(&clues).map(str::to_owned));
    assert_eq!(name.as_deref(), Some("00000000-0000-4000-8000-000000000001"));
}

#[test]
fn the_reasons_are_sentences() {
    let all = fixtures();
    let sentence =
        |place: &str| who(all.iter().find(|request| request.place == place).expect("a fixture")).to_string();
    assert_eq!(
        sentence("opencode.json 1"),
        "OpenCode: user agent opencode/1.18.33, header x-session-id, header x-session-affinity, 10 of 10 tool names"
    );
    assert_eq!(
        sentence("hermes-agent.json 3"),
        "Hermes Agent: header x-stainless-read-timeout, 17 of 17 tool names"
    );
    assert_eq!(
        sentence("aider.json 0"),
        "Aider: header x-stainless-raw-response, temperature 0 with no tools, no output limit, a stream, usage not \
         asked for, 10 messages"
    );
}
