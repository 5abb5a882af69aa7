//! Responses: the events of its streams in chat's words, and how its tools are named.
//!
//! vLLM numbers items and events, llama.cpp does neither and names items by id only (both captured); calls of llama.cpp have no id but
//! the call's own. So an item is known by whichever of these there is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::schema::flat_name;

use super::{call_delta, chunk, quoted, text_of};

/// What a name stands for that the model knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    /// A tool of a namespace, and its name there.
    In(String, String),
    /// A tool that takes free text.
    FreeText,
}

/// The tools of a request that are no plain functions, by the name under which the model knows them.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Arc<HashMap<String, Tool>>);

impl Names {
    pub(super) fn of(request: &ChatRequest) -> Self {
        let mut names = HashMap::new();
        for tool in request.tools() {
            let Some(name) = text_of(tool, "name") else { continue };
            match text_of(tool, "type").as_deref() {
                Some("custom") => {
                    names.insert(name, Tool::FreeText);
                }
                Some("namespace") => {
                    let inner = tool.get("tools").into_iter().flat_map(Value::elements);
                    names.extend(
                        inner
                            .filter_map(|tool| text_of(tool, "name"))
                            .map(|local| (flat_name(&name, &local), Tool::In(name.clone(), local))),
                    );
                }
                _ => {}
            }
        }
        Self(Arc::new(names))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.0.get(name)
    }

    /// The name of an item's tool as the model knows it.
    pub(super) fn flat(&self, item: Value<'_>) -> String {
        let name = text_of(item, "name").unwrap_or_default();
        match text_of(item, "namespace").filter(|namespace| !namespace.is_empty()) {
            Some(namespace) if !self.0.contains_key(&name) => flat_name(&namespace, &name),
            _ => name,
        }
    }
}

/// Reads the events of one stream.
#[derive(Debug)]
pub(super) struct Items {
    names: Names,
    items: BTreeMap<String, Item>,
    calls: usize,
}

#[derive(Debug, Default)]
struct Item {
    /// Of a call: its number.
    number: Option<usize>,
    /// Its text, or its arguments, have begun.
    begun: bool,
}

impl Items {
    pub(super) fn new(names: Names) -> Self {
        Self { names, items: BTreeMap::new(), calls: 0 }
    }

    /// What an event says, and whether it may leave as it came.
    pub(super) fn read(&mut self, event: Value<'_>) -> (String, bool) {
        let kind = text_of(event, "type").unwrap_or_default();
        let mut finish = None;
        let ended = kind == "response.output_item.added" && self.calls > 0;
        let delta = match kind.trim_start_matches("response.") {
            "output_item.added" => self.added(event),
            "output_item.done" => self.done(event),
            "output_text.delta" => self.words(event, "content"),
            "reasoning_text.delta" | "reasoning_summary_text.delta" => self.words(event, "reasoning_content"),
            "function_call_arguments.delta" => self.arguments(event),
            "custom_tool_call_input.delta" => self.input(event),
            "completed" | "incomplete" => {
                finish = event.get("response").map(|response| reason_of(response, self.calls > 0));
                None
            }
            _ => None,
        };
        (chunk(delta.as_deref().unwrap_or("{}"), finish.as_deref(), ended, event), true)
    }

    fn item(&mut self, event: Value<'_>) -> &mut Item {
        self.items.entry(place(event)).or_default()
    }

    fn words(&mut self, event: Value<'_>, member: &str) -> Option<String> {
        let text = text_of(event, "delta")?;
        self.item(event).begun = true;
        Some(format!(r#"{{"{member}":{}}}"#, quoted(&text)))
    }

    fn arguments(&mut self, event: Value<'_>) -> Option<String> {
        let piece = text_of(event, "delta").filter(|piece| !piece.is_empty())?;
        let item = self.item(event);
        item.begun = true;
        Some(call_delta(item.number?, &piece))
    }

    /// Free text is a string within arguments.
    fn input(&mut self, event: Value<'_>) -> Option<String> {
        let piece = text_of(event, "delta").filter(|piece| !piece.is_empty())?;
        let item = self.item(event);
        item.begun = true;
        Some(call_delta(item.number?, &escaped(&piece)))
    }

    fn added(&mut self, event: Value<'_>) -> Option<String> {
        let item = event.get("item")?;
        let is_call = matches!(text_of(item, "type").as_deref(), Some("function_call" | "custom_tool_call"));
        let number = is_call.then_some(self.calls);
        self.calls += usize::from(is_call);
        let arguments = match text_of(item, "type").as_deref() {
            Some("custom_tool_call") => "{\"input\":\"".to_owned(),
            _ => text_of(item, "arguments").unwrap_or_default(),
        };
        let begun = !text_of(item, "arguments").unwrap_or_default().is_empty();
        self.items.insert(place(event), Item { number, begun });
        let id = text_of(item, "call_id").unwrap_or_default();
        Some(format!(
            r#"{{"tool_calls":[{{"index":{},"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}}]}}"#,
            number?,
            quoted(&id),
            quoted(&self.names.flat(item)),
            quoted(&arguments)
        ))
    }

    /// What is whole: said here if it was not said before.
    fn done(&mut self, event: Value<'_>) -> Option<String> {
        let item = event.get("item")?;
        if !self.items.contains_key(&place(event)) {
            let begun = self.added(event);
            self.item(event).begun = true;
            return begun.or_else(|| whole_words(item));
        }
        let known = self.item(event);
        let (number, begun) = (known.number, known.begun);
        known.begun = true;
        match (text_of(item, "type").as_deref(), number) {
            (Some("function_call"), Some(number)) if !begun => {
                Some(call_delta(number, &text_of(item, "arguments")?))
            }
            (Some("custom_tool_call"), Some(number)) => {
                let text = if begun { String::new() } else { text_of(item, "input").unwrap_or_default() };
                Some(call_delta(number, &format!("{}\"}}", escaped(&text))))
            }
            _ if !begun => whole_words(item),
            _ => None,
        }
    }
}

/// A text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let mut quoted = quoted(text);
    quoted.pop();
    quoted.split_off(1)
}

/// The words of an item that came whole.
fn whole_words(item: Value<'_>) -> Option<String> {
    let member = match text_of(item, "type")?.as_str() {
        "message" => "content",
        "reasoning" => "reasoning_content",
        _ => return None,
    };
    let text = text_of_parts(item);
    (!text.is_empty()).then(|| format!(r#"{{"{member}":{}}}"#, quoted(&text)))
}

/// The text of all parts of an item.
pub(super) fn text_of_parts(item: Value<'_>) -> String {
    let parts = item.get("content").filter(|parts| parts.elements().next().is_some());
    let parts = parts.or_else(|| item.get("summary")).into_iter().flat_map(Value::elements);
    parts.filter_map(|part| text_of(part, "text")).collect()
}

/// The item of which an event speaks.
pub(super) fn place(event: Value<'_>) -> String {
    let of_item = |member: &str| event.get("item").and_then(|item| text_of(item, member));
    text_of(event, "item_id")
        .or_else(|| of_item("id"))
        .or_else(|| of_item("call_id"))
        .or_else(|| event.get("output_index").map(|index| index.raw().to_owned()))
        .unwrap_or_default()
}

/// Why a response ended, in chat's words: vLLM says `response.completed` of what was cut, too, and tells it within.
pub(super) fn reason_of(response: Value<'_>, has_calls: bool) -> String {
    let reason = response.at("/incomplete_details/reason").and_then(Value::as_str);
    match (response.get("status").is_some_and(|status| status.is_text("incomplete")), reason.as_deref()) {
        (_, Some("content_filter")) => "content_filter",
        (_, Some("max_output_tokens")) | (true, _) => "length",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
    .to_owned()
}
