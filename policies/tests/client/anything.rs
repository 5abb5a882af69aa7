//! Whatever else comes.

use proptest::prelude::*;
use serde_json::json;
use switchback_policies::client::{BUILTIN, Confidence};

use crate::fixtures::Request;
use crate::{class_of, who};

fn any_request() -> impl Strategy<Value = Request> {
    let names: Vec<String> = BUILTIN
        .iter()
        .flat_map(|row| row.tools)
        .map(|name| (*name).to_owned())
        .chain(["ApplyPatch".into()])
        .collect();
    let tools = prop::collection::vec(prop_oneof![prop::sample::select(names), ".{0,12}"], 0..20);
    let headers = prop::sample::select(vec![
        "user-agent",
        "x-title",
        "x-session-id",
        "x-session-affinity",
        "x-stainless-lang",
        "x-stainless-read-timeout",
        "x-initiator",
        "traceparent",
        "api-key",
        "authorization",
        "originator",
        "x-openwebui-chat-id",
    ]);
    let values = prop_oneof![
        prop::sample::select(vec![
            "opencode/1",
            "OpenAI/JS 1",
            "OpenAI/Python 2",
            "Kilo Code",
            "ses_1",
            "js",
            "python",
            "1800.0",
            "00-1",
            "node",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,20}",
    ];
    let headers = prop::collection::vec((headers.prop_map(str::to_owned), values), 0..6);
    let numbers = (any::<u64>(), any::<f64>(), any::<bool>(), any::<bool>(), 0..5_usize);
    (headers, tools, numbers, ".{0,20}").prop_map(|(headers, tools, (cap, heat, stream, usage, messages), words)| Request {
        headers,
        tools,
        body: json!({
            "max_tokens": cap, "temperature": heat, "stream": stream, "stream_options": {"include_usage": usage},
            "messages": vec![json!({"role": "user", "content": words}); messages], "tool_choice": words, "store": usage,
        }),
        ..Request::chat(json!({}))
    })
}

proptest! {
    #[test]
    fn any_clues_give_an_answer_with_reasons_and_always_the_same(request in any_request()) {
        let found = who(&request);
        prop_assert!(!found.because.is_empty());
        prop_assert!(BUILTIN.iter().any(|row| row == found.profile));
        prop_assert!(found.because.iter().all(|because| !because.to_string().is_empty()));
        prop_assert_eq!(&found, &who(&request));
        prop_assert_eq!(class_of(&request), class_of(&request));
    }

    #[test]
    fn neither_the_order_of_tools_nor_of_headers_matters(request in any_request()) {
        let mut turned = request.clone();
        turned.tools.reverse();
        // A header that stands twice is read once, so only the tools of such a request are turned.
        let twice = (1..request.headers.len()).any(|at| request.headers[..at].iter().any(|(name, _)| *name == request.headers[at].0));
        if !twice {
            turned.headers.reverse();
        }
        prop_assert_eq!(who(&request), who(&turned));
    }

    #[test]
    fn a_client_that_names_itself_is_believed_whatever_its_body(request in any_request()) {
        let request = request.without_header("x-title").without_header("originator").without_header("x-openwebui-chat-id");
        let found = who(&request.with_header("user-agent", "Zed/1.0"));
        prop_assert_eq!((found.profile.id, found.confidence), ("zed", Confidence::Certain));
    }
}
