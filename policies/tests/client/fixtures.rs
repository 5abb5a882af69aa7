//! Recorded requests, and how the clues are gathered from one, as the proxy does it.

use std::path::Path;

use serde_json::Value;
use switchback_policies::client::{BodyClues, CapField, Clues, Dialect, OutputCap};

/// A request as recorded, or as built by a test.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `FILE N`: the N-th request of a file.
    pub(crate) place: String,
    /// Whose it is: the file's name up to the first dot.
    pub(crate) client: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) key_name: Option<String>,
    pub(crate) tools: Vec<String>,
    pub(crate) body: Value,
    pub(crate) bytes: u64,
}

impl Request {
    /// A chat request with this body and no headers.
    pub(crate) fn chat(body: Value) -> Self {
        Self {
            place: "built by hand".to_owned(),
            client: String::new(),
            path: "/v1/chat/completions".to_owned(),
            headers: Vec::new(),
            key_name: None,
            tools: tool_names(&body["tools"]).unwrap_or_default(),
            bytes: body.to_string().len() as u64,
            body,
        }
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self = self.without_header(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    /// Gathers the clues and asks for something.
    pub(crate) fn clues<T>(&self, ask: impl FnOnce(Clues<'_>) -> T) -> T {
        let header = |name: &str| {
            self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        let tools: Vec<&str> = self.tools.iter().map(String::as_str).collect();
        let user_id = self.body["metadata"]["user_id"].as_str().and_then(|text| text.parse::<Value>().ok());
        let metadata_session = user_id.as_ref().and_then(|value| value["session_id"].as_str());
        let first_user = first_user(&self.body);
        ask(Clues {
            headers: &header,
            key_name: self.key_name.as_deref(),
            dialect: dialect(&self.path),
            tools: &tools,
            body: BodyClues { metadata_session, first_user, bytes: self.bytes, ..body_clues(&self.body) },
        })
    }
}

fn dialect(path: &str) -> Dialect {
    match path.split('?').next().unwrap_or_default().trim_start_matches("/v1") {
        "/chat/completions" => Dialect::Chat,
        "/completions" => Dialect::Completions,
        "/messages" => Dialect::Messages,
        "/responses" => Dialect::Responses,
        _ => Dialect::Other,
    }
}

fn body_clues(body: &Value) -> BodyClues<'_> {
    let cap = [
        (CapField::MaxTokens, "max_tokens"),
        (CapField::MaxCompletionTokens, "max_completion_tokens"),
        (CapField::MaxOutputTokens, "max_output_tokens"),
    ];
    let format = |value: &Value| value["type"] == "json_schema";
    BodyClues {
        cap: cap
            .iter()
            .find_map(|(field, name)| Some(OutputCap { field: *field, tokens: body[*name].as_u64()? })),
        temperature: body["temperature"].as_f64(),
        parallel_tool_calls: body["parallel_tool_calls"].as_bool(),
        tool_choice: body["tool_choice"].as_str(),
        stream: body["stream"] == true,
        include_usage: body["stream_options"]["include_usage"] == true,
        input: !body["input"].is_null() && body["messages"].is_null(),
        store: body["store"].as_bool(),
        reasoning_effort: body["reasoning_effort"].as_str(),
        prompt_cache_key: body["prompt_cache_key"].as_str(),
        structured: format(&body["output_config"]["format"])
            || format(&body["response_format"])
            || format(&body["text"]["format"]),
        messages: messages(body).len(),
        ..BodyClues::default()
    }
}

fn messages(body: &Value) -> &[Value] {
    ["messages", "input"].iter().find_map(|name| body[*name].as_array()).map_or(&[], Vec::as_slice)
}

fn first_user(body: &Value) -> Option<&str> {
    let content = &messages(body).iter().find(|message| message["role"] == "user")?["content"];
    content.as_str().or_else(|| content[0]["text"].as_str())
}

/// The names of a list of tools; `None` if it is no list.
fn tool_names(tools: &Value) -> Option<Vec<String>> {
    let name = |tool: &Value| {
        let names = [&tool["function"]["name"], &tool["name"], &tool["type"]];
        names.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
    };
    Some(tools.as_array()?.iter().map(name).collect())
}

/// All recorded requests that ask for an answer, in the order of their files. The files also hold probes, which have no
/// dialect and reach no model.
pub(crate) fn fixtures() -> Vec<Request> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/clients");
    let entries = std::fs::read_dir(&folder).expect("the recorded requests");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().flat_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Vec<Request> {
    let file = path.file_name().and_then(|name| name.to_str()).expect("a file name");
    let text = std::fs::read_to_string(path).expect("readable");
    let recorded: Value = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut tools_of_the_first = Vec::new();
    let mut requests = Vec::new();
    for (nth, request) in recorded["requests"].as_array().expect("requests").iter().enumerate() {
        let path = request["path"].as_str().expect("a path");
        if dialect(path) == Dialect::Other {
            continue;
        }
        // Repeated lists are abbreviated to a sentence.
        let tools = match &request["body"]["tools"] {
            Value::String(_) => tools_of_the_first.clone(),
            list => tool_names(list).unwrap_or_default(),
        };
        if tools_of_the_first.is_empty() {
            tools_of_the_first.clone_from(&tools);
        }
        let headers = request["headers"].as_object().expect("headers").iter();
        requests.push(Request {
            place: format!("{file} {nth}"),
            client: file.split('.').next().unwrap_or_default().to_owned(),
            path: path.to_owned(),
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            key_name: None,
            tools,
            body: request["body"].clone(),
            bytes: request["body_bytes"].as_u64().expect("a length"),
        });
    }
    requests
}
