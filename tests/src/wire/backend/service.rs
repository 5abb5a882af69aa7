//! What a healthy engine answers besides inference: health, models, properties, counts; each kind in its own way.
//!
//! A count is the counting request's body in bytes, divided by four. A path that the kind does not have is a 404,
//! as the real one gives; only what generates tokens is left to the script. Each of these answers closes its connection:
//! so no scripted close can pass for a pooled socket that had gone stale.

use http::StatusCode;
use serde_json::{Value, json};

use super::super::case::{Backend, Kind};

/// A request that is perhaps not for the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) method: &'a str,
    /// With its query.
    pub(super) path: &'a str,
    pub(super) body: &'a [u8],
}

/// Ends of the paths that are asked by POST and generate nothing, whichever engine has them.
const ASIDE: [&str; 9] = [
    "/tokenize",
    "/detokenize",
    "/chat_tokenize",
    "/apply-template",
    "/render",
    "/count_tokens",
    "/input_tokens",
    "/api/show",
    "/props",
];

impl Question<'_> {
    /// The answer's bytes, or nothing if this is for the script.
    pub(super) fn answer(&self, backend: &Backend, served: &str, health: u16) -> Option<Vec<u8>> {
        let path = self.path.split('?').next().unwrap_or_default();
        if self.method == "POST" && !ASIDE.iter().any(|aside| path.ends_with(aside)) {
            return None;
        }
        let known = match self.method {
            "GET" | "HEAD" => look(path, backend, served, health),
            "POST" => self.count(path, backend, served),
            _ => None,
        };
        let (status, body) = known.unwrap_or_else(|| (404, json!({"detail": "Not Found"})));
        Some(written(status, &body, self.method == "HEAD"))
    }

    fn count(&self, path: &str, backend: &Backend, served: &str) -> Option<(u16, Value)> {
        let count = self.body.len() / 4;
        let asked: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let body = match (backend.kind, path) {
            (Kind::Vllm, "/tokenize") => {
                let (window, tokens) = (backend.window_tokens, vec![0; count]);
                json!({"count": count, "max_model_len": window, "tokens": tokens, "token_strs": null})
            }
            (Kind::LlamaCpp, "/v1/chat/completions/input_tokens" | "/v1/responses/input_tokens") => {
                json!({"object": "response.input_tokens", "input_tokens": count})
            }
            (Kind::Vllm | Kind::LlamaCpp | Kind::IkLlama, "/v1/messages/count_tokens") => {
                json!({"input_tokens": count})
            }
            (Kind::LlamaCpp | Kind::IkLlama, "/tokenize") => json!({"tokens": vec![0; count]}),
            (Kind::LlamaCpp | Kind::IkLlama, "/apply-template") => {
                let messages = asked.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
                let turn = |message: &Value| format!("<|turn|>{message}");
                json!({"prompt": messages.iter().map(turn).collect::<String>()})
            }
            (Kind::Ollama, "/api/show") => json!({
                "details": {"format": "gguf", "family": "qwen3"},
                "model_info": {"general.architecture": "qwen3", "qwen3.context_length": backend.window_tokens},
                "capabilities": ["completion", "tools"],
                "model": served,
            }),
            _ => return None,
        };
        Some((200, body))
    }
}

/// What is read without a body.
fn look(path: &str, backend: &Backend, served: &str, health: u16) -> Option<(u16, Value)> {
    let window = backend.window_tokens;
    let slots = backend.more.get("slots").and_then(Value::as_u64).unwrap_or(4);
    let llama = matches!(backend.kind, Kind::LlamaCpp | Kind::IkLlama);
    let body = match (backend.kind, path) {
        (Kind::Vllm | Kind::Other, "/health") => return Some((health, Value::Null)),
        (Kind::LlamaCpp | Kind::IkLlama, "/health" | "/v1/health") => {
            let body = match health {
                200 => json!({"status": "ok"}),
                503 => {
                    json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
                }
                _ => json!({"error": {"code": health, "message": "unhealthy", "type": "server_error"}}),
            };
            return Some((health, body));
        }
        (Kind::Ollama, "/") => return Some((health, json!("Ollama is running"))),
        (Kind::Ollama, "/api/version") => return Some((health, json!({"version": "0.14.2"}))),
        (_, "/v1/models") => models(backend, served),
        (Kind::Vllm, "/version") => json!({"version": "0.32.0"}),
        (Kind::IkLlama, "/version") => json!({"version": "4242", "commit": "0000000"}),
        (_, "/props") if llama => json!({
            "default_generation_settings": {"n_ctx": window},
            "total_slots": slots,
            "model_alias": served,
            "model_path": format!("{served}.gguf"),
            "modalities": {"vision": backend.more.get("images") != Some(&json!(false)), "audio": false},
            "chat_template": "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{%- endfor %}",
            "build_info": "b11434-0000000",
        }),
        (_, "/slots") if llama => {
            (0..slots).map(|id| json!({"id": id, "n_ctx": window, "is_processing": false})).collect()
        }
        (Kind::Ollama, "/api/ps") => {
            json!({"models": [{"name": served, "model": served, "context_length": window}]})
        }
        (Kind::Ollama, "/api/tags") => json!({"models": [{"name": served, "model": served}]}),
        _ => return None,
    };
    Some((200, body))
}

fn models(backend: &Backend, served: &str) -> Value {
    let window = backend.window_tokens;
    let mut entry = json!({"id": served, "object": "model", "created": 1_770_000_000});
    let owner = match backend.kind {
        Kind::Vllm => "vllm",
        Kind::LlamaCpp | Kind::IkLlama => "llamacpp",
        Kind::Ollama => "library",
        Kind::Other => "owner",
    };
    entry["owned_by"] = owner.into();
    match backend.kind {
        Kind::Vllm => {
            entry["root"] = served.into();
            entry["parent"] = Value::Null;
            entry["max_model_len"] = window.into();
        }
        Kind::LlamaCpp => entry["meta"] = json!({"n_ctx": window, "n_ctx_train": window}),
        Kind::IkLlama => {
            entry["meta"] = json!({"n_ctx_train": window});
            entry["max_model_len"] = window.into();
        }
        Kind::Ollama | Kind::Other => {}
    }
    json!({"object": "list", "data": [entry]})
}

fn written(status: u16, body: &Value, head_only: bool) -> Vec<u8> {
    let reason =
        StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unknown");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut bytes = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    if !head_only {
        bytes.push_str(&body);
    }
    bytes.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(kind: &str) -> Backend {
        let written =
            json!({"name": "a", "kind": kind, "window_tokens": 5000, "safe_prompt_tokens": 5000, "slots": 2});
        serde_json::from_value(written).unwrap()
    }

    fn ask(kind: &str, method: &str, path: &str, body: &str, health: u16) -> Option<(String, Value)> {
        let bytes = Question { method, path, body: body.as_bytes() }.answer(&backend(kind), "m", health)?;
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Some((head.split(' ').nth(1).unwrap().to_owned(), serde_json::from_str(body).unwrap_or_default()))
    }

    #[test]
    fn every_kind_tells_its_window_and_counts_in_its_own_way() {
        for (kind, path, pointer) in [
            ("vllm", "/v1/models", "/data/0/max_model_len"),
            ("llama.cpp", "/v1/models", "/data/0/meta/n_ctx"),
            ("llama.cpp", "/props", "/default_generation_settings/n_ctx"),
            ("ik_llama", "/v1/models", "/data/0/max_model_len"),
            ("ollama", "/api/ps", "/models/0/context_length"),
        ] {
            let (status, body) = ask(kind, "GET", path, "", 200).unwrap();
            assert_eq!(
                (status.as_str(), body.pointer(pointer)),
                ("200", Some(&json!(5000))),
                "{kind} {path}"
            );
        }
        for (kind, path, pointer) in [
            ("vllm", "/tokenize", "/count"),
            ("vllm", "/v1/messages/count_tokens", "/input_tokens"),
            ("llama.cpp", "/v1/chat/completions/input_tokens", "/input_tokens"),
            ("ik_llama", "/v1/messages/count_tokens", "/input_tokens"),
        ] {
            let (_, body) = ask(kind, "POST", path, "0123456789abcdef!", 200).unwrap();
            assert_eq!(body.pointer(pointer), Some(&json!(4)), "{kind} {path}");
        }
        assert_eq!(ask("ollama", "POST", "/tokenize", "{}", 200).unwrap().0, "404");
    }

    #[test]
    fn health_is_scripted_and_inference_is_left_to_the_script() {
        assert_eq!(ask("vllm", "GET", "/health", "", 503).unwrap().0, "503");
        assert_eq!(ask("ollama", "GET", "/api/version", "", 503).unwrap().0, "503");
        assert_eq!(ask("vllm", "GET", "/v1/models", "", 503).unwrap().0, "200");
        for path in
            ["/v1/chat/completions", "/v1/messages?beta=true", "/v1/responses", "/api/chat", "/anything"]
        {
            assert!(ask("vllm", "POST", path, "{}", 200).is_none(), "{path}");
        }
    }
}
