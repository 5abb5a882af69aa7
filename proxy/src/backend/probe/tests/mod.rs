//! A backend that answers each path from a table, in memory, and keeps what it was asked.
//!
//! Time is paused, so that an answer that never comes costs none. Answers are recorded (llama.cpp build 11434) or written
//! after the engines' sources, which the probe's files name.

mod engines;
mod odd;
mod watching;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use parking_lot::Mutex;
use switchback_policies::facts::BackendState;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::super::client::{Connect, Connecting, Io};
use super::super::{Backend, Found};
use crate::config::Config;

/// How long a probe may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What a path answers.
#[derive(Clone, Debug)]
enum Page {
    /// Status, extra head lines, body.
    Answer(u16, &'static str, String),
    /// 200, or 400 where the body of the question has one of these.
    Refuses(&'static [&'static str]),
    /// Nothing, for ever.
    Hangs,
    /// The head and half a body, then nothing.
    Stops(String),
}

/// A server by its pages. What is not listed is 404.
#[derive(Clone, Debug, Default)]
struct Site(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    pages: HashMap<String, Page>,
    asked: Vec<String>,
    down: bool,
}

impl Site {
    fn new(pages: &[(&str, &str)]) -> Self {
        let site = Self::default();
        for (path, body) in pages {
            site.page(path, Page::Answer(200, "", (*body).to_owned()));
        }
        site
    }

    fn page(&self, path: &str, page: Page) -> &Self {
        self.0.lock().pages.insert(path.to_owned(), page);
        self
    }

    /// Takes its place: other pages on the same port.
    fn becomes(&self, other: &Self) {
        self.0.lock().pages = other.0.lock().pages.clone();
    }

    fn listens(&self, listens: bool) {
        self.0.lock().down = !listens;
    }

    /// What was asked since the last time, with its method.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().asked)
    }

    /// A backend at this site; `more` is added to its configuration.
    fn backend(&self, more: &str) -> Arc<Backend> {
        let text = format!("[[backend]]\nname = \"b\"\nurl = \"http://b\"\n{more}");
        let config = Config::parse(&text, Path::new(".")).expect("a configuration");
        Arc::new(Backend::new(
            config.backends[0].clone(),
            Arc::new(self.clone()),
            TIMEOUT,
            crate::cliffs::CliffMaps::nothing(),
        ))
    }

    /// What one whole probe makes of it.
    async fn found(&self, more: &str) -> (BackendState, Found) {
        let backend = self.backend(more);
        super::once(&backend, TIMEOUT).await;
        let found = backend.found.read().clone();
        (backend.state(), found)
    }
}

impl Connect for Site {
    fn connect(&self, _: &Authority) -> Connecting {
        let site = self.clone();
        Box::pin(async move {
            if site.0.lock().down {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (near, far) = tokio::io::duplex(1 << 16);
            tokio::spawn(site.serve(far));
            Ok(Box::new(near) as Box<dyn Io>)
        })
    }
}

impl Site {
    async fn serve(self, mut pipe: DuplexStream) {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match pipe.read_buf(&mut head).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let mut text = String::from_utf8(head).expect("an ascii head");
        let length = |text: &str| {
            let (head, body) = text.split_once("\r\n\r\n")?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            Some(length.parse::<usize>().ok()? > body.len())
        };
        while length(&text) == Some(true) {
            let mut more = Vec::new();
            match pipe.read_buf(&mut more).await {
                Ok(0) | Err(_) => return,
                Ok(_) => text.push_str(&String::from_utf8(more).expect("text")),
            }
        }
        let line: Vec<_> = text.split(' ').take(2).collect();
        let page = {
            let mut state = self.0.lock();
            state.asked.push(line.join(" "));
            state.pages.get(line[1]).cloned()
        };
        let page = page.unwrap_or_else(|| Page::Answer(404, "", r#"{"detail":"Not Found"}"#.to_owned()));
        let (answer, ends) = match page {
            Page::Answer(status, head, body) => {
                (format!("HTTP/1.1 {status} X\r\n{head}content-length: {}\r\n\r\n{body}", body.len()), true)
            }
            Page::Refuses(what) => {
                let refused = what.iter().any(|what| text.contains(what));
                let (status, body) =
                    if refused { (400, r#"{"error":{"message":"no"}}"#) } else { (200, "{}") };
                (format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len()), true)
            }
            Page::Hangs => (String::new(), false),
            Page::Stops(body) => {
                (format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n{body}", body.len() + 1), false)
            }
        };
        // The probe may hang up in the middle of a long page.
        let _ = pipe.write_all(answer.as_bytes()).await;
        if !ends {
            let _ = pipe.read_buf(&mut Vec::new()).await;
        }
    }
}

/// The sites of all engines, ready.
fn vllm() -> Site {
    Site::new(&[
        ("/v1/models", include_str!("recorded/vllm-models.json")),
        ("/health", ""),
        ("/version", r#"{"version":"0.32.0"}"#),
        ("/metrics", include_str!("recorded/vllm-metrics.txt")),
    ])
}

fn llama_cpp() -> Site {
    Site::new(&[
        ("/v1/models", include_str!("recorded/llama-models.json")),
        ("/health", r#"{"status":"ok"}"#),
        ("/props", include_str!("recorded/llama-props.json")),
        ("/slots", "[]"),
        ("/metrics", ""),
    ])
}

fn ik_llama() -> Site {
    Site::new(&[
        ("/v1/models", include_str!("recorded/ik-models.json")),
        ("/health", r#"{"status":"ok","slots_idle":4,"slots_processing":0}"#),
        ("/props", include_str!("recorded/ik-props.json")),
        ("/slots", "[]"),
        ("/metrics", ""),
    ])
}

fn sglang() -> Site {
    Site::new(&[
        ("/v1/models", include_str!("recorded/sglang-models.json")),
        ("/health", ""),
        (
            "/model_info",
            r#"{"model_path":"models/qwen3-32b","is_generation":true,"has_image_understanding":false}"#,
        ),
        ("/server_info", include_str!("recorded/sglang-server-info.json")),
    ])
}

fn ollama() -> Site {
    Site::new(&[
        ("/", "Ollama is running"),
        ("/v1/models", include_str!("recorded/ollama-models.json")),
        ("/api/version", r#"{"version":"0.12.6"}"#),
        ("/api/ps", include_str!("recorded/ollama-ps.json")),
        ("/api/show", include_str!("recorded/ollama-show.json")),
    ])
}

fn lm_studio() -> Site {
    let unknown = r#"{"error":"Unexpected endpoint or method. (GET /). Returning 200 anyway"}"#;
    Site::new(&[
        ("/", unknown),
        ("/health", unknown),
        ("/info", unknown),
        ("/api/ps", unknown),
        ("/v1/models", include_str!("recorded/lm-studio-models.json")),
        ("/api/v1/models", include_str!("recorded/lm-studio-api-v1.json")),
        ("/api/v0/models", unknown),
    ])
}

fn tgi() -> Site {
    Site::new(&[
        (
            "/v1/models",
            r#"{"object":"list","data":[{"id":"meta-llama/Llama-3.1-8B-Instruct","object":"model","created":0,"owned_by":"meta-llama/Llama-3.1-8B-Instruct"}]}"#,
        ),
        ("/info", include_str!("recorded/tgi-info.json")),
        ("/health", ""),
    ])
}
