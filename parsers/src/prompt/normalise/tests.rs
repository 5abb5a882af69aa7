//! What reaches the template, engine by engine. The whole of it is held against recorded prompts in `tests/recorded_counts.rs`; here
//! stand the rules, one by one.

use bytes::Bytes;
use serde_json::{Value as Json, json};

use super::{Ending, Prepared, Refused, llama_cpp, vllm};
use crate::prompt::probe::Traits;
use crate::request::ChatRequest;

fn traits() -> Traits {
    Traits { string_content: true, system_role: true, object_arguments: true, ..Traits::default() }
}

fn request(body: &Json) -> ChatRequest {
    ChatRequest::parse(Bytes::from(body.to_string())).unwrap()
}

fn for_vllm(body: &Json) -> Prepared {
    vllm::prepare(&request(body), &traits()).unwrap()
}

fn for_llama_cpp(body: &Json) -> Prepared {
    llama_cpp::prepare(&request(body), &traits()).unwrap()
}

fn call(arguments: Json) -> Json {
    json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}})
}

fn history(arguments: Json) -> Json {
    json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": null, "tool_calls": [call(arguments)]},
        {"role": "tool", "tool_call_id": "c1", "content": "y"}]})
}

#[test]
fn vllm_makes_a_mapping_of_all_arguments() {
    for (arguments, expected) in [
        (json!("{\"b\": 1, \"a\": [2.0]}"), json!({"b": 1, "a": [2.0]})),
        (json!(""), json!({})),
        (json!("{broken"), json!({})),
        (json!("[1]"), json!({})),
        (json!(null), json!({})),
    ] {
        let prepared = for_vllm(&history(arguments));
        assert_eq!(prepared.context["messages"][1]["tool_calls"][0]["function"]["arguments"], expected);
        assert_eq!(prepared.context["messages"][1]["content"], "");
    }
}

#[test]
fn llama_cpp_refuses_arguments_that_are_not_json() {
    let refused = llama_cpp::prepare(&request(&history(json!("{broken"))), &traits()).unwrap_err();
    assert!(refused.0.starts_with("the arguments of a past call are not json: "), "{refused:?}");
    let text = Traits { object_arguments: false, ..traits() };
    let prepared = llama_cpp::prepare(&request(&history(json!("{broken"))), &text).unwrap();
    assert_eq!(prepared.context["messages"][1]["tool_calls"][0]["function"]["arguments"], "{broken");
}

#[test]
fn tools_are_written_anew() {
    let tool = json!({"function": {"parameters": {"z": 1, "a": 2}, "name": "f", "x": 1, "strict": true}, "type": "function"});
    let body = json!({"messages": [{"role": "user", "content": "x"}], "tools": [tool, {"type": "function", "function": {"name": "g"}}]});
    let tools = for_vllm(&body).context["tools"].to_string();
    assert_eq!(
        tools,
        r#"[{"type":"function","function":{"name":"f","description":null,"parameters":{"z":1,"a":2},"strict":true}},{"type":"function","function":{"name":"g","description":null,"parameters":null}}]"#
    );
    let tools = for_llama_cpp(&body).context["tools"].to_string();
    assert_eq!(
        tools,
        r#"[{"type":"function","function":{"name":"f","description":"","parameters":{"z":1,"a":2}}},{"type":"function","function":{"name":"g","description":"","parameters":{}}}]"#
    );
}

#[test]
fn vllm_gathers_system_messages_for_templates_without_a_developer() {
    let body = json!({"messages": [{"role": "user", "content": "u"}, {"role": "developer", "content": "d"}, {"role": "system", "content": "s"}]});
    let messages = for_vllm(&body).context["messages"].clone();
    assert_eq!(messages, json!([{"role": "system", "content": "d\n\ns"}, {"role": "user", "content": "u"}]));
    let knows = Traits { names_developer: true, ..traits() };
    let messages = vllm::prepare(&request(&body), &knows).unwrap().context["messages"].clone();
    assert_eq!(messages[1]["role"], "developer");
    let messages = for_llama_cpp(&body).context["messages"].clone();
    assert_eq!(
        [&messages[0]["role"], &messages[1]["role"], &messages[2]["role"]],
        ["user", "system", "system"]
    );
}

#[test]
fn parts_become_text_or_stay_parts_as_the_template_takes_them() {
    let body = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]}]});
    assert_eq!(for_vllm(&body).context["messages"][0]["content"], "a\nb");
    assert_eq!(for_llama_cpp(&body).context["messages"][0]["content"], "a\n\nb");
    let lists = Traits { list_content: true, list_in_vllm: true, string_content: false, ..traits() };
    let content = vllm::prepare(&request(&body), &lists).unwrap().context["messages"][0]["content"].clone();
    assert_eq!(content.as_array().unwrap().len(), 3);
    let plain = request(&json!({"messages": [{"role": "user", "content": "a"}]}));
    for prepared in [vllm::prepare(&plain, &lists), llama_cpp::prepare(&plain, &lists)] {
        assert_eq!(
            prepared.unwrap().context["messages"][0]["content"],
            json!([{"type": "text", "text": "a"}])
        );
    }
}

#[test]
fn a_trailing_assistant_message_is_a_past_turn_to_vllm_and_a_beginning_to_llama_cpp() {
    let body = json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "The capital"}]});
    let prepared = for_vllm(&body);
    assert!(matches!(prepared.ending, Ending::Rendered) && prepared.context["add_generation_prompt"] == true);
    let prepared = for_llama_cpp(&body);
    assert!(
        matches!(&prepared.ending, Ending::Continued { content: Some(said), .. } if said == "The capital")
    );
    assert_eq!(prepared.context["messages"].as_array().unwrap().len(), 1);
    assert!(!prepared.context.contains_key("add_generation_prompt"));
}

#[test]
fn the_request_decides_over_its_own_template_arguments() {
    let body = json!({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "none", "add_generation_prompt": false,
        "chat_template_kwargs": {"add_generation_prompt": true, "mine": 1, "unset": null}});
    let context = for_vllm(&body).context;
    assert_eq!((&context["add_generation_prompt"], &context["mine"]), (&json!(false), &json!(1)));
    assert_eq!((context["enable_thinking"].clone(), context.contains_key("unset")), (json!(false), false));
    assert_eq!(for_llama_cpp(&body).context["enable_thinking"], false);
}

/// As vLLM 0.32.0's own code hands it to a template.
#[test]
fn vllm_hands_on_thoughts_and_texts_of_any_type_and_refuses_what_it_cannot_join() {
    let thought = |more: Json| {
        let mut message = json!({"role": "assistant", "content": "hi"});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        for_vllm(&json!({"messages": [message]})).context["messages"][0]["reasoning_content"].clone()
    };
    for (more, seen) in [
        (json!({"reasoning": 7, "reasoning_content": "rc"}), json!(7)),
        (json!({"reasoning": null, "reasoning_content": ["z"]}), json!(["z"])),
        (json!({"reasoning": "", "reasoning_content": "rc"}), json!("")),
        (json!({"reasoning_content": false}), json!(false)),
    ] {
        assert_eq!(thought(more.clone()), seen, "{more}");
    }
    let parts =
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": 7}, {"type": "text"}]}]});
    let parts = ChatRequest::parse(Bytes::from(parts.to_string())).unwrap();
    let lists = Traits { list_in_vllm: true, ..Traits::default() };
    let listed = vllm::prepare(&parts, &lists).unwrap().context["messages"][0]["content"].clone();
    assert_eq!(listed, json!([{"type": "text", "text": 7}]));
    assert!(vllm::prepare(&parts, &Traits::default()).is_err());
    let none = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": false}, {"type": "text", "text": []}]}]});
    assert_eq!(for_vllm(&none).context["messages"][0]["content"], "");
    let odd = json!({"messages": [{"role": "assistant", "content": {}, "tool_calls": ""}]});
    assert_eq!(for_vllm(&odd).context["messages"][0], json!({"role": "assistant", "content": ""}));
}

#[test]
fn what_an_engine_refuses_has_no_prompt() {
    let body = |more: Json| {
        let mut body =
            json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request(&body)
    };
    let refused = |result: Result<Prepared, Refused>| result.unwrap_err().0;
    let both = body(json!({"continue_final_message": true, "add_generation_prompt": true}));
    let reason = "continue_final_message needs add_generation_prompt to be false";
    assert_eq!(refused(vllm::prepare(&both, &traits())), reason);
    assert_eq!(refused(llama_cpp::prepare(&both, &traits())), reason);
    let odd_tools = body(json!({"tools": "hammer"}));
    assert_eq!(refused(vllm::prepare(&odd_tools, &traits())), "tools must be a list");
    assert_eq!(refused(llama_cpp::prepare(&odd_tools, &traits())), "tools must be a list");
    let odd_choice = body(json!({"tool_choice": "perhaps"}));
    assert_eq!(
        refused(llama_cpp::prepare(&odd_choice, &traits())),
        "tool_choice \"perhaps\" is not supported"
    );
    let part =
        request(&json!({"messages": [{"role": "user", "content": [{"type": "smell", "smell": "rose"}]}]}));
    assert_eq!(refused(vllm::prepare(&part, &traits())), "content part type \"smell\" is not supported");
    assert_eq!(refused(llama_cpp::prepare(&part, &traits())), "content part type \"smell\" is not supported");
}

#[test]
fn what_llama_cpp_does_by_itself_is_known_to_be_unknown() {
    assert!(
        llama_cpp::has_handler("a <|channel|> b")
            && llama_cpp::has_handler("[ARGS] [TOOL_CALLS] [SYSTEM_PROMPT]")
    );
    assert!(!llama_cpp::has_handler("[TOOL_CALLS] <|im_start|>"));
    let parts = json!([{"type": "text", "text": "r"}]);
    let result = json!({"messages": [{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "1", "content": parts}]});
    let lists = Traits { list_content: true, ..traits() };
    assert!(llama_cpp::prepare(&request(&result), &lists).unwrap().unsure);
    assert!(!llama_cpp::prepare(&request(&result), &traits()).unwrap().unsure);
    let go_on =
        json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]});
    let thinks = Traits { thinks_unlike_qwen: true, ..traits() };
    assert!(llama_cpp::prepare(&request(&go_on), &thinks).unwrap().unsure);
    assert!(!llama_cpp::prepare(&request(&go_on), &traits()).unwrap().unsure);
}

#[test]
fn texts_of_a_beginning_are_joined_by_an_empty_line_but_not_in_front_of_the_first() {
    // As `/apply-template` of build 11549 has it.
    for (parts, expected) in [
        (json!(["", "ab"]), "ab"),
        (json!(["x", "ab"]), "x\n\nab"),
        (json!(["x", "", "ab"]), "x\n\n\n\nab"),
        (json!(["x", ""]), "x\n\n"),
    ] {
        let parts: Vec<Json> =
            parts.as_array().unwrap().iter().map(|text| json!({"type": "text", "text": text})).collect();
        let prepared = for_llama_cpp(&json!({"messages": [{"role": "assistant", "content": parts}]}));
        let Ending::Continued { content, .. } = prepared.ending else { panic!("{:?}", prepared.ending) };
        assert_eq!(content.as_deref(), Some(expected));
    }
}
