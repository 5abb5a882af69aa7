//! Trials of what a backend refuses: members that clients send, keywords of their schemas, pictures, a prompt above its window.
//!
//! All at once first, since most take everything; one by one only where that was refused. A prompt above the window is sent
//! only to engines that are known to refuse it unread, and only if the engine itself has counted it: others would read it,
//! and a long prompt is what kills a card.

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::{Diagnosis, Engine};
use switchback_parsers::request::ChatRequest;

use super::ask::{Heard, Patient, short};
use super::calls::Tools;
use super::finding::{Finding, Verdict};
use crate::measure::by_backend;

/// The largest window for which a prompt above it is made: about 2 MB of text.
const LARGEST_WINDOW: u64 = 400_000;

/// A grey square of 64 × 64 pixels, PNG.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAKUlEQVR42u3MQREAAAwCIKMb3RD77SAA6VEEAoFAIBAIBAKBQCAQfA8G320AeXC6efoAAAAASUVORK5CYII=";

fn small() -> Json {
    json!({ "max_tokens": 1, "messages": [{ "role": "user", "content": "Hello" }] })
}

/// Members that clients' libraries fill in, and what they stand for at the least.
fn members() -> [(&'static str, Json); 14] {
    [
        ("store", json!(false)),
        ("metadata", json!({ "a": "b" })),
        ("service_tier", json!("auto")),
        ("user", json!("doctor")),
        ("prompt_cache_key", json!("doctor")),
        ("safety_identifier", json!("doctor")),
        ("verbosity", json!("low")),
        ("logit_bias", json!({})),
        ("presence_penalty", json!(0)),
        ("frequency_penalty", json!(0)),
        ("seed", json!(1)),
        ("n", json!(1)),
        ("modalities", json!(["text"])),
        ("parallel_tool_calls", json!(true)),
    ]
}

/// Members that are refused.
pub(super) async fn unknown_members(patient: &Patient, tools: &Tools) -> Finding {
    const TRIAL: &str = "members";
    let with = |some: &[(&'static str, Json)]| {
        let mut body = small();
        if let Some(choice) = tools.choice {
            body["tools"] = tool(Map::new());
            body["tool_choice"] = choice.into();
        }
        some.iter().for_each(|(name, value)| body[*name] = value.clone());
        body
    };
    let all: Vec<_> = members()
        .into_iter()
        .filter(|(name, _)| tools.choice.is_some() || *name != "parallel_tool_calls")
        .collect();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let (refused, why) =
        match each(patient, &with(&all), all.iter().map(|one| with(std::slice::from_ref(one)))).await {
            Each::AllPass => {
                return Finding::new(TRIAL, Verdict::Good, format!("{} of clients' members pass", all.len()));
            }
            Each::Untold(why) => return Finding::new(TRIAL, Verdict::Untold, why),
            Each::Refused(refused, why) => (refused, why),
        };
    let places: Vec<String> = refused.iter().map(|at| format!("/{}", names[*at])).collect();
    let finding = Finding::new(TRIAL, Verdict::Mended, format!("refuses {}: {why}", places.join(", ")));
    more(finding, "drop", &patient.backend.config.drop, places, "requests with these members are refused")
}

/// The setting, if anything is missing in what is configured.
pub(super) fn more(
    mut finding: Finding,
    key: &'static str,
    configured: &[String],
    mut wanted: Vec<String>,
    because: &str,
) -> Finding {
    wanted.retain(|one| !configured.contains(one));
    if wanted.is_empty() {
        finding.said.push_str("; left out, as configured");
        return finding;
    }
    finding.sets(key, list(&[configured, &wanted].concat()), because)
}

/// Keywords of JSON Schema, in a schema where each means something.
fn keywords() -> [(&'static str, Json); 14] {
    let string = |name: &str, value: Json| json!({ "type": "string", name: value });
    [
        // llama.cpp's grammar takes only patterns that begin with ^ and end with $ (ggml-org/llama.cpp#26930).
        ("pattern", string("pattern", json!("\\S"))),
        ("format", string("format", json!("uri"))),
        ("minLength", string("minLength", json!(1))),
        ("maxLength", string("maxLength", json!(4000))),
        ("default", string("default", json!("x"))),
        ("examples", string("examples", json!(["x"]))),
        ("minimum", json!({ "type": "integer", "minimum": 1 })),
        ("maximum", json!({ "type": "integer", "maximum": 600_000 })),
        ("exclusiveMinimum", json!({ "type": "integer", "exclusiveMinimum": 0 })),
        ("minItems", json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })),
        ("maxItems", json!({ "type": "array", "items": { "type": "string" }, "maxItems": 20 })),
        ("uniqueItems", json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true })),
        ("propertyNames", json!({ "type": "object", "propertyNames": { "type": "string" } })),
        (
            "additionalProperties",
            json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        ),
    ]
}

fn tool(properties: Map<String, Json>) -> Json {
    let parameters = json!({ "type": "object", "properties": properties });
    let function = json!({ "name": "note", "description": "Keeps a note", "parameters": parameters });
    json!([{ "type": "function", "function": function }])
}

/// Keywords of schemas that are refused.
pub(super) async fn schema_keywords(patient: &Patient, tools: &Tools) -> Finding {
    const TRIAL: &str = "schemas";
    let Some(choice) = tools.choice else {
        return Finding::new(TRIAL, Verdict::Untold, "it takes no tools");
    };
    let with = |some: &[(&'static str, Json)]| {
        let mut body = small();
        let properties = some.iter().map(|(name, schema)| (format!("of_{name}"), schema.clone()));
        body["tools"] = tool(properties.collect());
        body["tool_choice"] = choice.into();
        body
    };
    let all = keywords();
    let (refused, why) =
        match each(patient, &with(&all), all.iter().map(|one| with(std::slice::from_ref(one)))).await {
            Each::AllPass => {
                return Finding::new(TRIAL, Verdict::Good, format!("{} keywords pass", all.len()));
            }
            Each::Untold(why) => return Finding::new(TRIAL, Verdict::Untold, why),
            Each::Refused(refused, why) => (refused, why),
        };
    let words: Vec<String> = refused.iter().map(|at| all[*at].0.to_owned()).collect();
    let finding = Finding::new(TRIAL, Verdict::Mended, format!("refuses {}: {why}", words.join(", ")));
    let configured = &patient.backend.config.drop_schema_keywords;
    more(finding, "drop_schema_keywords", configured, words, "tools with these in their schemas are refused")
}

/// What became of a request with everything, and of those with one thing each.
enum Each {
    AllPass,
    Refused(Vec<usize>, String),
    Untold(String),
}

async fn each(patient: &Patient, all: &Json, ones: impl Iterator<Item = Json>) -> Each {
    let heard = patient.ask(all.clone()).await;
    let Some(why) = refusal(&heard) else {
        return heard.failure().map_or(Each::AllPass, Each::Untold);
    };
    let mut refused = Vec::new();
    for (at, one) in ones.enumerate() {
        if refusal(&patient.ask(one).await).is_some() {
            refused.push(at);
        }
    }
    if refused.is_empty() {
        return Each::Untold(format!("refused all together, and none alone: {why}"));
    }
    Each::Refused(refused, why)
}

/// What it says against the request itself. llama.cpp says so with 500 or 400.
fn refusal(heard: &Heard) -> Option<String> {
    let error = heard.error.as_ref()?;
    let of_request = matches!(error.diagnosis, Diagnosis::ClientFault | Diagnosis::NotServed);
    (of_request || heard.refused().is_some()).then(|| short(&error.message))
}

/// Whether it sees.
pub(super) async fn pictures(patient: &Patient) -> Finding {
    const TRIAL: &str = "pictures";
    if let Some(sees) = patient.backend.found().images {
        return Finding::new(
            TRIAL,
            Verdict::Good,
            if sees { "it says that it sees" } else { "it says that it does not" },
        );
    }
    let mut body = small();
    let url = format!("data:image/png;base64,{PICTURE}");
    body["messages"][0]["content"] = json!([
        { "type": "text", "text": "Which colour?" },
        { "type": "image_url", "image_url": { "url": url } },
    ]);
    let heard = patient.ask(body).await;
    let configured = patient.backend.config.images;
    match (refusal(&heard), heard.failure()) {
        (Some(why), _) if configured == Some(false) => {
            Finding::new(TRIAL, Verdict::Good, format!("it does not see, as configured: {why}"))
        }
        (Some(why), _) => Finding::new(TRIAL, Verdict::Setting, format!("it does not see: {why}")).sets(
            "images",
            "false",
            "a picture was refused",
        ),
        (None, Some(why)) => Finding::new(TRIAL, Verdict::Untold, why),
        (None, None) => Finding::new(TRIAL, Verdict::Good, "it takes them"),
    }
}

/// How it refuses a prompt that does not fit, and what that tells of its window.
pub(super) async fn overflow(patient: &Patient) -> Finding {
    const TRIAL: &str = "overflow";
    let backend = &patient.backend;
    if !matches!(backend.engine(), Engine::Vllm | Engine::LlamaCpp | Engine::Sglang) {
        return Finding::new(TRIAL, Verdict::Untold, "not tried: this engine would read what it cannot hold");
    }
    let facts = backend.facts();
    let Some(window) = backend.found().window.max(facts.window) else {
        return Finding::new(TRIAL, Verdict::Untold, "not tried: its window is not known");
    };
    if window > LARGEST_WINDOW {
        return Finding::new(
            TRIAL,
            Verdict::Untold,
            format!("not tried: its window of {window} is too large"),
        );
    }
    // About a token a letter; what it really is the engine says itself, before it gets it to read.
    let letters = usize::try_from(window + window / 3).unwrap_or_default();
    let mut body = small();
    body["messages"][0]["content"] = "a ".repeat(letters).into();
    let counted = match ChatRequest::parse(body.to_string().into()) {
        Ok(request) => by_backend(backend, Some(Dialect::Chat), &request).await,
        Err(_) => None,
    };
    let Some(counted) = counted.filter(|counted| *counted > window + window / 10) else {
        return Finding::new(TRIAL, Verdict::Untold, "not tried: it could not be asked how long a prompt is");
    };
    judge_overflow(TRIAL, &patient.ask(body).await, counted, window, facts.window)
}

fn judge_overflow(
    trial: &'static str,
    heard: &Heard,
    counted: u64,
    window: u64,
    planned: Option<u64>,
) -> Finding {
    let Some(error) = &heard.error else {
        let said = match &heard.broken {
            Some(why) => format!("a prompt of {counted} tokens: {why}"),
            None => {
                format!("takes a prompt of {counted} tokens with a window of {window}: some of it is lost")
            }
        };
        return Finding::new(trial, Verdict::Bad, said);
    };
    let status: Cow<'_, str> = error.status.map_or("an event".into(), |status| status.to_string().into());
    match &error.diagnosis {
        Diagnosis::ContextTooLong { limit: Some(limit), .. } if planned != Some(*limit) => {
            let said = format!("refused with {status}, and it says that the window is {limit}");
            let finding = Finding::new(trial, Verdict::Setting, said);
            finding.sets("window", limit.to_string(), "as its own refusal says")
        }
        Diagnosis::ContextTooLong { .. } => {
            let said = format!("{counted} tokens are refused with {status}, as what they are");
            Finding::new(trial, Verdict::Good, said)
        }
        _ => {
            Finding::new(trial, Verdict::Bad, format!("{counted} tokens: {status} {}", short(&error.message)))
        }
    }
}

/// A list, as TOML.
fn list(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| toml::Value::from(word.as_str()).to_string()).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_already_is_not_to_be_set_again() {
        let wanted = |places: &[&str]| places.iter().map(|place| (*place).to_owned()).collect::<Vec<_>>();
        let judged = |refused: &[&str]| {
            let finding = Finding::new("members", Verdict::Mended, "refuses them");
            more(finding, "drop", &wanted(&["/store"]), wanted(refused), "they are refused")
        };
        assert_eq!(judged(&["/store"]).verdict, Verdict::Mended);
        assert!(judged(&["/store"]).settings.is_empty());
        assert_eq!(judged(&["/store", "/user"]).settings[0].value, r#"["/store", "/user"]"#);
    }
}
