//! A scripted llama-swap: one address for all models, and it loads whatever a request names, whether that is wise or not.
//!
//! As its source has it (`/running`, `/upstream/MODEL/health`, `/api/models/unload/MODEL`): a request for a model that is not
//! loaded takes the other down at once, which the proxy must never let happen.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use switchback::Io;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::backend::read_request;

#[derive(Debug, Default)]
struct State {
    running: Option<(String, bool)>,
    /// Models in the order in which they were loaded.
    loads: Vec<String>,
    unloads: Vec<String>,
    /// Models of requests that came while they were not there.
    swapped_by_request: Vec<String>,
    answered: Vec<String>,
}

/// A scripted llama-swap.
#[derive(Debug)]
pub(crate) struct LlamaSwap {
    models: Vec<String>,
    state: Mutex<State>,
}

impl LlamaSwap {
    pub(super) fn new(models: &[&str]) -> Arc<Self> {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        Arc::new(Self { models, state: Mutex::default() })
    }

    /// What it has loaded, in order.
    pub(crate) fn loads(&self) -> Vec<String> {
        self.state.lock().loads.clone()
    }

    /// What it was told to unload.
    pub(crate) fn unloads(&self) -> Vec<String> {
        self.state.lock().unloads.clone()
    }

    /// Models that were asked for while they were not there.
    pub(crate) fn swapped_by_request(&self) -> Vec<String> {
        self.state.lock().swapped_by_request.clone()
    }

    /// Models that have answered, in order.
    pub(crate) fn answered(&self) -> Vec<String> {
        self.state.lock().answered.clone()
    }

    /// Its time to live is over: what it had loaded is gone.
    pub(crate) fn unloads_by_itself(&self) {
        self.state.lock().running = None;
    }

    pub(super) fn accept(self: &Arc<Self>) -> Box<dyn Io> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let swap = self.clone();
        tokio::spawn(async move { swap.serve(far).await });
        Box::new(near)
    }

    async fn serve(&self, mut pipe: DuplexStream) {
        let Some(request) = read_request(&mut pipe).await else { return };
        let path = request.path.as_str();
        let (status, body) = match path {
            "/health" => (200, "OK".to_owned()),
            "/running" => (200, self.running()),
            "/v1/models" => {
                let list: Vec<_> =
                    self.models.iter().map(|model| json!({"id": model, "object": "model"})).collect();
                (200, json!({"object": "list", "data": list}).to_string())
            }
            "/v1/chat/completions" => {
                let model = request.json()["model"].as_str().unwrap_or_default().to_owned();
                self.answer(model).await
            }
            _ => match (path.strip_prefix("/upstream/"), path.strip_prefix("/api/models/unload/")) {
                (Some(rest), _) => self.load(rest.trim_end_matches("/health")).await,
                (_, Some(model)) => {
                    let mut state = self.state.lock();
                    state.unloads.push(model.to_owned());
                    state.running = None;
                    (200, "OK".to_owned())
                }
                _ => (404, "404 page not found".to_owned()),
            },
        };
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let _ = pipe.write_all(answer.as_bytes()).await;
    }

    fn running(&self) -> String {
        let state = self.state.lock();
        let list: Vec<_> = state
            .running
            .iter()
            .map(|(model, ready)| json!({"model": model, "state": if *ready { "ready" } else { "starting" }}))
            .collect();
        json!({ "running": list }).to_string()
    }

    async fn load(&self, model: &str) -> (u16, String) {
        if !self.models.iter().any(|known| known == model) {
            return (404, "model not found".to_owned());
        }
        {
            let mut state = self.state.lock();
            if state.running.as_ref().is_some_and(|(running, ready)| running == model && *ready) {
                return (200, r#"{"status":"ok"}"#.to_owned());
            }
            state.running = Some((model.to_owned(), false));
            state.loads.push(model.to_owned());
        }
        tokio::time::sleep(Duration::from_secs(40)).await;
        let breaks = model == "broken";
        self.state.lock().running = (!breaks).then(|| (model.to_owned(), true));
        if breaks {
            (502, "unable to start process".to_owned())
        } else {
            (200, r#"{"status":"ok"}"#.to_owned())
        }
    }

    async fn answer(&self, model: String) -> (u16, String) {
        let there = self.state.lock().running.as_ref().is_some_and(|(running, _)| *running == model);
        if !there {
            self.state.lock().swapped_by_request.push(model.clone());
            self.load(&model).await;
        }
        self.state.lock().answered.push(model.clone());
        let message = json!({"role": "assistant", "content": format!("I am {model}.")});
        (
            200,
            json!({"id": "c", "object": "chat.completion", "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
            .to_string(),
        )
    }
}
