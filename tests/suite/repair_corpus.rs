//! The whole corpus of tool calls through the proxy, plain and streamed, in each dialect: what a client puts together is what the
//! corpus says.

use std::path::Path;

use serde_json::{Map, Value, json};
use switchback_tests::wire::message::Message;

use crate::harness::{Reply, World, reasoning};
use crate::repairing::{assembled, frames};
use crate::speaking::{Api, Part};

/// One line of the corpus.
struct Line(Value);

impl Line {
    fn text(&self) -> &str {
        self.0["text"].as_str().expect("a text")
    }

    fn more(&self, key: &str) -> Option<&Value> {
        self.0["request"].get(key)
    }

    fn finish(&self) -> &str {
        self.more("upstream_finish").and_then(Value::as_str).unwrap_or("stop")
    }

    fn world(&self) -> World {
        let open = self.more("thinking_open").is_some_and(|open| *open == true);
        World::configured(&format!(
            "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nengine = \"vllm\"\nwindow = 32000\nmodel = \"m\"\nthinking_open = {open}\n"
        ))
    }

    fn request(&self, stream: bool) -> String {
        let mut request = Map::new();
        request.insert("model".to_owned(), "m".into());
        request.insert("messages".to_owned(), json!([{ "role": "user", "content": "go" }]));
        request.insert("stream".to_owned(), stream.into());
        request.insert("tools".to_owned(), self.0["tools"].clone());
        for key in ["tool_choice", "parallel_tool_calls"] {
            request.extend(self.more(key).map(|value| (key.to_owned(), value.clone())));
        }
        if let Some(format) = self.more("response_format") {
            request.insert("response_format".to_owned(), json!({ "type": format }));
        }
        Value::Object(request).to_string()
    }

    async fn streamed(&self, piece: usize) -> Message {
        let world = self.world();
        let mut steps = frames(self.text(), piece, self.finish());
        if let Some(thought) = self.more("upstream_reasoning") {
            steps.insert(1, reasoning(thought.as_str().expect("text")));
        }
        world.backend("b").then(Reply::stream(steps));
        assembled(&world.chat(&self.request(true)).await)
    }

    async fn plain(&self) -> Message {
        let world = self.world();
        let mut message = json!({ "role": "assistant", "content": self.text() });
        if let Some(reasoning) = self.more("upstream_reasoning") {
            message["reasoning_content"] = reasoning.clone();
        }
        let choice = json!({ "index": 0, "message": message, "finish_reason": self.finish() });
        world.backend("b").then(Reply::json(200, &json!({ "choices": [choice] }).to_string()));
        Message::of_body(&world.chat(&self.request(false)).await.json())
    }

    /// The same request in another dialect.
    fn request_in(&self, api: Api, stream: bool) -> String {
        let mut more = Map::new();
        let demanded = self.more("tool_choice").map(|choice| match (api, choice["function"].get("name")) {
            (Api::Messages, Some(name)) => json!({ "type": "tool", "name": name }),
            (Api::Messages, None) if *choice == "required" => json!({ "type": "any" }),
            (Api::Messages, None) => json!({ "type": choice }),
            (Api::Responses, Some(name)) => json!({ "type": "function", "name": name }),
            (Api::Responses, None) => choice.clone(),
        });
        more.extend(demanded.map(|choice| ("tool_choice".to_owned(), choice)));
        match (api, self.more("parallel_tool_calls")) {
            (Api::Messages, Some(_)) => {
                more.insert(
                    "tool_choice".to_owned(),
                    json!({ "type": "auto", "disable_parallel_tool_use": true }),
                );
            }
            (Api::Responses, Some(parallel)) => {
                more.insert("parallel_tool_calls".to_owned(), parallel.clone());
            }
            (_, None) => {}
        }
        if let Some(format) = self.more("response_format") {
            let (name, value) = match api {
                Api::Messages => ("output_config", json!({ "format": { "type": format } })),
                Api::Responses => ("text", json!({ "format": { "type": format } })),
            };
            more.insert(name.to_owned(), value);
        }
        api.request(&self.0["tools"], stream, &more.into())
    }

    async fn complaints_in(&self, api: Api) -> Vec<String> {
        let thought = self.more("upstream_reasoning").and_then(Value::as_str).map(Part::Thought);
        let parts: Vec<Part<'_>> = thought.into_iter().chain([Part::Text(self.text())]).collect();
        let world = self.world();
        world.backend("b").then(Reply::json(200, &api.answer(&parts, self.finish()).to_string()));
        let answer = world.post(api.path(), &self.request_in(api, false)).await.json();
        let mut wrong = self.complaints(&api.of_body(&answer), &format!("{api:?}, plain"));
        for piece in [1, 4096] {
            let world = self.world();
            let steps = api.steps(&parts, piece, self.finish());
            let answer = api.streamed(&world, &self.request_in(api, true), steps).await;
            wrong.extend(self.complaints(&api.assembled(&answer), &format!("{api:?}, in pieces of {piece}")));
        }
        wrong
    }

    /// The corpus's own rules of comparison.
    fn complaints(&self, got: &Message, how: &str) -> Vec<String> {
        let expected = &self.0["expect"];
        let calls = expected["tool_calls"].as_array().expect("calls");
        let content = expected["content"].as_str().unwrap_or_default();
        let mut wrong = got.faults.clone();
        let same = if !calls.is_empty() {
            collapsed(content) == collapsed(&got.content)
        } else if content == self.text() {
            content == got.content
        } else {
            content.trim() == got.content.trim()
        };
        if !same {
            wrong.push(format!("content {:?}, not {content:?}", got.content));
        }
        if collapsed(expected["reasoning"].as_str().unwrap_or_default()) != collapsed(&got.reasoning) {
            wrong.push(format!("reasoning {:?}, not {}", got.reasoning, expected["reasoning"]));
        }
        let want: Vec<(&str, Value)> = calls
            .iter()
            .map(|call| (call["name"].as_str().unwrap_or_default(), floats(&call["arguments"])))
            .collect();
        let decoded = |text: &str| floats(&serde_json::from_str(text).unwrap_or(Value::Null));
        let have: Vec<(&str, Value)> =
            got.calls.iter().map(|call| (call.name.as_str(), decoded(&call.arguments))).collect();
        if want != have {
            wrong.push(format!("calls {have:?}, not {want:?}"));
        }
        if got.calls.iter().any(|call| call.id.is_empty()) {
            wrong.push("a call has no id".to_owned());
        }
        if self.0["finish_reason"] != *got.finish.as_deref().unwrap_or_default() {
            wrong.push(format!("finish {:?}, not {}", got.finish, self.0["finish_reason"]));
        }
        wrong.iter().map(|wrong| format!("{} {how}: {wrong}", self.0["id"])).collect()
    }
}

fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// 1000 and 1000.0 are the same.
fn floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(list) => list.iter().map(floats).collect(),
        Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), floats(value))).collect(),
        other => other.clone(),
    }
}

fn lines() -> Vec<Line> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/toolcalls");
    let files = std::fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("an entry").path());
    let corpora = files.filter(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    corpora
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).expect("a file");
            let lines = text.lines().filter(|line| !line.is_empty());
            lines.map(|line| Line(serde_json::from_str(line).expect("JSON"))).collect::<Vec<_>>()
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_line_of_the_corpus_arrives_as_it_should_plain_and_streamed() {
    let lines = lines();
    assert!(lines.len() >= 297, "the corpus has {} lines only", lines.len());
    let mut wrong = Vec::new();
    for line in lines {
        wrong.extend(line.complaints(&line.plain().await, "plain"));
        for piece in [1, 4, 4096] {
            wrong.extend(line.complaints(&line.streamed(piece).await, &format!("in pieces of {piece}")));
        }
    }
    assert!(wrong.is_empty(), "{} complaints:\n{}", wrong.len(), wrong.join("\n"));
}

async fn complaints_in(api: Api) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in lines() {
        wrong.extend(line.complaints_in(api).await);
    }
    wrong
}

#[tokio::test(start_paused = true)]
async fn every_line_of_the_corpus_arrives_as_it_should_in_messages() {
    let wrong = complaints_in(Api::Messages).await;
    assert!(wrong.is_empty(), "{} complaints:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn every_line_of_the_corpus_arrives_as_it_should_in_responses() {
    let wrong = complaints_in(Api::Responses).await;
    assert!(wrong.is_empty(), "{} complaints:\n{}", wrong.len(), wrong.join("\n"));
}
