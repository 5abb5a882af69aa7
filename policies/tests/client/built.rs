//! Clients that were read or reported, not recorded, and those of which nothing is known.

use serde_json::json;
use switchback_policies::client::{Because, Class, Confidence, PLAIN, side_traffic};

use crate::fixtures::Request;
use crate::{check, class_of, profile, who, with_tools};

/// A turn of Copilot's LLM Gateway with tools.
fn gateway(max_tokens: u64) -> Request {
    Request::chat(json!({
        "model": "m", "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": max_tokens, "temperature": 0, "parallel_tool_calls": true, "tool_choice": "auto",
        "stream": true, "stream_options": {"include_usage": true},
        "tools": [{"type": "function", "function": {"name": "copilot_readFile"}},
                  {"type": "function", "function": {"name": "run_in_terminal"}}],
    }))
}

#[test]
fn copilots_llm_gateway_is_known_by_the_shape_of_its_body() {
    for agent in
        [None, Some("node"), Some("undici"), Some("Mozilla/5.0 Code/1.125.0 Electron/39.2.0 Safari/537.36")]
    {
        for cap in [64, 1000, 4096] {
            let mut request = gateway(cap);
            request.headers.extend(agent.map(|agent| ("user-agent".to_owned(), agent.to_owned())));
            check(&request, "llm-gateway", Confidence::Guessed);
        }
    }
    assert_eq!(
        who(&gateway(64)).to_string(),
        "Copilot LLM Gateway: max_tokens 64 with temperature 0, parallel_tool_calls true, tool_choice auto, a stream, \
         usage asked for, no user agent of its own"
    );
    let mut required = gateway(64);
    required.body["tool_choice"] = json!("required");
    required.body["temperature"] = json!(0.6);
    check(&required, "llm-gateway", Confidence::Guessed);
    let plain_chat = Request::chat(json!({
        "messages": [], "max_tokens": 4096, "temperature": 0.7, "stream": true, "stream_options": {"include_usage": true},
    }));
    check(&plain_chat, "llm-gateway", Confidence::Guessed);
    assert_eq!(profile("llm-gateway").no_limit_at, Some(64));
}

#[test]
fn a_small_limit_of_anybody_else_is_not_taken_for_the_gateways() {
    for cap in [1, 16, 30, 63, 4097] {
        check(&gateway(cap), "plain", Confidence::Unknown);
    }
    check(&gateway(64).with_header("user-agent", "curl/8.5.0"), "plain", Confidence::Unknown);
    check(&gateway(64).with_header("user-agent", "python-httpx/0.28.1"), "plain", Confidence::Unknown);
    check(&gateway(64).with_header("x-stainless-lang", "js"), "sdk:openai-js", Confidence::Library);
    for member in ["temperature", "parallel_tool_calls", "tool_choice", "stream", "stream_options"] {
        let mut request = gateway(64);
        request.body.as_object_mut().expect("an object").remove(member);
        check(&request, "plain", Confidence::Unknown);
    }
    assert_eq!(PLAIN.no_limit_at, None);
}

#[test]
fn cursor_posts_a_responses_body_to_the_chat_endpoint() {
    let mut request = Request::chat(json!({
        "model": "m", "input": [{"role": "user", "content": "hello"}], "user": "u", "stream": true,
        "tools": [{"type": "function", "name": "read_file"}, {"type": "custom", "name": "ApplyPatch"}],
    }));
    check(&request, "cursor", Confidence::Likely);
    request.path = "/v1/responses".to_owned();
    check(&request, "plain", Confidence::Unknown);
    let chat = Request::chat(json!({
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": {"name": "read_file"}}, {"type": "custom", "name": "ApplyPatch"}],
    }));
    check(&chat, "cursor", Confidence::Guessed);
}

#[test]
fn clients_that_name_themselves_in_a_header_are_certain() {
    for (header, value, id) in [
        ("user-agent", "Charm-Crush/0.62.1 (https://charm.land/crush)", "crush"),
        ("user-agent", "GitHubCopilotChat/0.44.0", "copilot-chat-byok"),
        ("user-agent", "RooCode/3.52.1", "roo-code"),
        ("x-title", "Roo Code", "roo-code"),
        ("user-agent", "Zed/0.230.1 (macos; aarch64)", "zed"),
        ("user-agent", "codex_cli_rs/0.171.0 (Mac OS 15.6; arm64) ghostty", "codex"),
        ("user-agent", "Mistral-Vibe/2.14.1", "mistral-vibe"),
        ("x-openwebui-chat-id", "f3f0c1a8", "open-webui"),
        ("x-openwebui-user-id", "7", "open-webui"),
    ] {
        let request = Request::chat(json!({"messages": []})).with_header(header, value);
        check(&request, id, Confidence::Certain);
    }
    let byok = Request::chat(json!({"messages": []}))
        .with_header("x-interaction-id", "1")
        .with_header("x-github-api-version", "2025-05-01");
    check(&byok, "copilot-chat-byok", Confidence::Certain);
    let extension = Request::chat(json!({"messages": []}))
        .with_header("authorization", "Bearer k")
        .with_header("api-key", "k");
    check(&extension, "continue", Confidence::Likely);
}

/// A task of Open WebUI in the words of one of its default prompts.
fn open_webui_task(words: &str) -> Request {
    Request::chat(json!({"messages": [{"role": "user", "content": words}], "stream": false}))
        .with_header("user-agent", "Python/3.12 aiohttp/3.13.2")
}

#[test]
fn open_webuis_titles_tags_and_follow_ups_are_background_and_its_searches_are_not() {
    for words in
        ["### Task:\nGenerate a concise title", "### Task:\nGenerate 1-3 tags", "### Task:\nSuggest 3-5"]
    {
        let task = open_webui_task(words);
        check(&task, "open-webui", Confidence::Guessed);
        assert_eq!(class_of(&task), Class::Background, "{words}");
        let certain = task.with_header("x-openwebui-chat-id", "f3f0c1a8");
        check(&certain, "open-webui", Confidence::Certain);
        assert_eq!(class_of(&certain), Class::Background, "{words}");
    }
    for words in ["### Task:\nAnalyze the chat history to determine", "Generate a title for my book"] {
        assert_eq!(class_of(&open_webui_task(words)), Class::Interactive, "{words}");
    }
    let mut turn = open_webui_task("### Task:\nGenerate a concise title");
    turn.body["stream"] = json!(true);
    assert_eq!(class_of(&turn), Class::Interactive);
}

#[test]
fn qwen_codes_memory_agent_is_background_and_its_other_agents_are_not() {
    let with = |tools: &[&str]| with_tools(tools).with_header("user-agent", "QwenCode/0.24.4 (linux; x64)");
    let memory = ["read_file", "grep_search", "glob", "run_shell_command", "write_file", "edit"];
    let request = with(&memory);
    assert_eq!(class_of(&request), Class::Background);
    let what = request.clues(|clues| side_traffic(&clues, profile("qwen-code")).map(|side| side.what));
    assert_eq!(what, Some("memory"));
    assert_eq!(class_of(&with(&["read_file", "grep_search", "glob", "list_directory"])), Class::Agent);
    assert_eq!(class_of(&with(&[&memory[..], &["agent"]].concat())), Class::Agent);
}

#[test]
fn a_bare_library_is_only_that() {
    for (agent, id) in [
        ("OpenAI/JS 7.59.0", "sdk:openai-js"),
        ("OpenAI/Python 3.57.0", "sdk:openai-python"),
        ("Anthropic/Python 2.14.0", "sdk:anthropic-python"),
        ("ai-sdk/openai-compatible/3.0.92 ai-sdk/provider-utils/5.0.30", "sdk:ai-sdk"),
    ] {
        let request = Request::chat(json!({"messages": [], "stream": true})).with_header("user-agent", agent);
        check(&request, id, Confidence::Library);
    }
    let mut messages = Request::chat(json!({"messages": []})).with_header("x-stainless-lang", "python");
    check(&messages, "sdk:openai-python", Confidence::Library);
    messages.path = "/v1/messages".to_owned();
    check(&messages, "sdk:anthropic-python", Confidence::Library);
}

#[test]
fn an_unknown_client_is_plain_and_is_told_so() {
    for request in [
        Request::chat(json!({})),
        Request::chat(json!({"messages": [], "stream": true, "max_tokens": 64}))
            .with_header("user-agent", "curl/8"),
        with_tools(&["bash", "get_weather"]),
        // Everyday names, pi's four among them, prove nothing in a longer list.
        with_tools(&["read", "bash", "edit", "write", "search", "plan", "browse", "ask", "commit", "review"]),
    ] {
        let found = who(&request);
        assert_eq!(found.profile, &PLAIN);
        assert_eq!(found.because, [Because::Nothing]);
        assert_eq!(found.to_string(), "unknown client: nothing that a known client sends");
        assert_ne!(class_of(&request), Class::Background);
    }
}

#[test]
fn an_agents_turns_and_its_compaction_are_of_its_class_and_a_chat_and_an_embedding_are_interactive() {
    assert_eq!(class_of(&Request::chat(json!({"messages": [], "stream": true}))), Class::Interactive);
    assert_eq!(class_of(&with_tools(&["get_weather"])), Class::Agent);
    let compaction =
        Request::chat(json!({"messages": []})).with_header("user-agent", "opencode/1.18.33 ai-sdk");
    assert_eq!(class_of(&Request { bytes: 200_000, ..compaction.clone() }), Class::Agent);
    let mut embedding = compaction;
    embedding.path = "/v1/embeddings".to_owned();
    assert_eq!(class_of(&embedding), Class::Interactive);
}

#[test]
fn the_name_of_the_api_key_helps_where_the_client_says_nothing_and_not_against_what_it_says() {
    let mut request = Request::chat(json!({"messages": []}));
    request.key_name = Some("llm-gateway".to_owned());
    check(&request, "llm-gateway", Confidence::Likely);
    assert_eq!(who(&request).because, [Because::KeyName]);
    let library = request.clone().with_header("user-agent", "OpenAI/Python 3.57.0");
    check(&library, "llm-gateway", Confidence::Likely);
    check(&request.with_header("user-agent", "Zed/0.230.1"), "zed", Confidence::Certain);
}

#[test]
fn a_reason_repeats_no_header_value_and_no_endless_user_agent() {
    let secret = Request::chat(json!({}))
        .with_header("authorization", "Bearer secret")
        .with_header("api-key", "secret")
        .with_header("x-session-id", "ses_secret")
        .with_header("x-session-affinity", "ses_secret");
    for because in who(&secret).because {
        assert!(!because.to_string().contains("secret"), "{because}");
    }
    let long = Request::chat(json!({})).with_header("user-agent", &format!("opencode/{}", "9".repeat(5000)));
    assert!(who(&long).to_string().len() < 100);
}
