//! The proxy between scripted backends and a scripted client, all in one task tree, over in-memory pipes, on paused time:
//! five minutes of silence pass in no time, and nothing depends on how fast the machine is.
//!
//! A test says what the backends do, sends requests, and looks at what arrived on both sides.

mod backend;
mod client;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use http::uri::Authority;
use switchback::{Config, Connect, Connecting, Service};

pub(crate) use self::backend::{Backend, Reply, Step, delta, finish, reasoning, role};
pub(crate) use self::client::{Answer, Client, request};

/// Everything at once.
pub(crate) struct World {
    service: Arc<Service>,
    backends: Arc<HashMap<String, Arc<Backend>>>,
}

impl World {
    /// A proxy over the named backends (`http://NAME`), each with a window, and a model `m` that lists them in that order.
    /// `more` is appended to the configuration.
    pub(crate) fn new(backends: &[(&str, u64)], more: &str) -> Self {
        let mut text = String::new();
        for (name, window) in backends {
            text.push_str(&format!(
                "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"vllm\"\nwindow = {window}\nmodel = \"m\"\n"
            ));
        }
        let names: Vec<String> = backends.iter().map(|(name, _)| format!("{name:?}")).collect();
        text.push_str(&format!(
            "[[model]]\nname = \"m\"\naliases = [\"auto\"]\nbackends = [{}]\n{more}",
            names.join(", ")
        ));
        Self::configured(&text)
    }

    /// A proxy with a whole configuration; its backends' hosts become scripted backends.
    pub(crate) fn configured(text: &str) -> Self {
        let config = Config::parse(text, Path::new(".")).expect("a configuration that makes sense");
        let hosts = text.lines().filter_map(|line| line.strip_prefix("url = \"http://"));
        let backends: HashMap<String, Arc<Backend>> = hosts
            .map(|host| host.trim_end_matches('"').to_owned())
            .map(|host| (host.clone(), Backend::new(&host)))
            .collect();
        let backends = Arc::new(backends);
        let service = Arc::new(Service::new(config, Arc::new(Pipes(backends.clone()))));
        Self { service, backends }
    }

    /// Changes the configuration.
    pub(crate) fn reload(&self, text: &str) {
        self.service.reload(Config::parse(text, Path::new(".")).expect("a configuration that makes sense"));
    }

    /// A scripted backend.
    pub(crate) fn backend(&self, name: &str) -> &Arc<Backend> {
        self.backends.get(name).expect("a backend of this name")
    }

    /// A new connection to the proxy.
    pub(crate) async fn client(&self) -> Client {
        let (near, far) = tokio::io::duplex(64 << 10);
        let service = self.service.clone();
        tokio::spawn(async move { service.connection(far).await });
        Client::over(near).await
    }

    /// A new connection to the proxy, byte by byte.
    pub(crate) fn raw(&self) -> tokio::io::DuplexStream {
        let (near, far) = tokio::io::duplex(64 << 10);
        let service = self.service.clone();
        tokio::spawn(async move { service.connection(far).await });
        near
    }

    /// One chat request on a connection of its own, answered to its end.
    pub(crate) async fn chat(&self, body: &str) -> Answer {
        self.post("/v1/chat/completions", body).await
    }

    /// One POST on a connection of its own, answered to its end.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.client().await.post(path, body).await.whole().await
    }

    /// One GET on a connection of its own.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.client().await.get(path).await.whole().await
    }
}

/// Connects to scripted backends by host name.
#[derive(Debug)]
struct Pipes(Arc<HashMap<String, Arc<Backend>>>);

impl Connect for Pipes {
    fn connect(&self, to: &Authority) -> Connecting {
        let backend = self.0.get(to.host()).cloned();
        Box::pin(async move {
            let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            backend.ok_or_else(refused)?.accept().ok_or_else(refused)
        })
    }
}

/// A chat request with one user message.
pub(crate) fn ask(text: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":{}}}]}}"#, serde_json::Value::from(text))
}

/// The same, streamed.
pub(crate) fn ask_stream(text: &str) -> String {
    format!(
        r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":{}}}]}}"#,
        serde_json::Value::from(text)
    )
}

/// A text that has at least so many tokens in any vocabulary, and not many more in bounds.
pub(crate) fn words(count: usize) -> String {
    "ab ".repeat(count)
}
