//! The backends of a case, each as a table of the configuration.
//!
//! Words that hold for every backend stand in each; a word about one that is not known here is reported.

use std::net::SocketAddr;

use serde_json::Value;

use super::{Draft, quoted};
use crate::wire::case::{Case, Kind};

/// The words about a single backend, beside its name, kind, window and name of the model.
const BACKEND_WORDS: &[(&str, Option<&str>)] =
    &[("api_key", None), ("images", None), ("slots", None), ("tool_parser", None)];

pub(super) fn backends(case: &Case, addresses: &[SocketAddr], draft: &mut Draft) -> String {
    let mut tables = String::new();
    for (number, (backend, address)) in case.backends.iter().zip(addresses).enumerate() {
        let engine = match backend.kind {
            Kind::Vllm => "vllm",
            Kind::LlamaCpp => "llama-cpp",
            Kind::IkLlama => "ik-llama",
            Kind::Ollama => "ollama",
            Kind::Other => "other",
        };
        tables.push_str(&format!(
            "[[backend]]\nname = {}\nurl = \"http://{address}\"\nengine = \"{engine}\"\nwindow = {}\nlimit = {{ single = {} }}\n",
            quoted(&backend.name),
            backend.window_tokens,
            backend.safe_prompt_tokens.min(backend.window_tokens),
        ));
        if let Some(model) = &backend.serves {
            tables.push_str(&format!("model = {}\n", quoted(model)));
        }
        for (word, value) in &backend.more {
            match (word.as_str(), value) {
                ("api_key", Value::String(key)) => {
                    let name = format!("BACKEND_{number}_KEY");
                    tables.push_str(&format!("api_key_env = \"{name}\"\n"));
                    draft.env.push((name, key.clone()));
                }
                ("images", Value::Bool(images)) => tables.push_str(&format!("images = {images}\n")),
                ("slots", Value::Number(slots)) => tables.push_str(&format!("slots = {slots}\n")),
                ("tool_parser", Value::Bool(parses)) => tables.push_str(&format!("tool_parser = {parses}\n")),
                (other, _) => {
                    let missing = BACKEND_WORDS
                        .iter()
                        .find(|(word, _)| *word == other)
                        .and_then(|(_, missing)| *missing);
                    draft
                        .unmapped
                        .push(format!("backends.{other} ({})", missing.unwrap_or("not in the table")));
                }
            }
        }
        tables.push_str(&format!("needs = [{}]\n", draft.needs.join(", ")));
        tables.push_str(&format!("drop = [{}]\n", draft.drop.join(", ")));
        tables.push_str(&format!("rules_on = [{}]\n", draft.rules_on.join(", ")));
        tables.push_str(&format!("rules_off = [{}]\n", draft.rules_off.join(", ")));
        tables.push_str(&draft.backend.join("\n"));
        tables.push_str("\n\n");
    }
    tables
}
