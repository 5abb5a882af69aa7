//! The proxy between scripted backends and a scripted client, all in one task tree, over in-memory pipes, on paused time:
//! five minutes of silence pass in no time, and nothing depends on how fast the machine is.
//!
//! A test says what the backends do, sends requests, and looks at what arrived on both sides.

mod backend;
mod client;
mod llama_swap;
mod swapper;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use http::uri::Authority;
use switchback::{Config, Connect, Connecting, Service};

pub(crate) use self::backend::{Backend, Reply, Step, delta, finish, reasoning, role};
pub(crate) use self::client::{Answer, Client, request};
pub(crate) use self::llama_swap::LlamaSwap;
pub(crate) use self::swapper::Swapper;

/// Everything at once.
pub(crate) struct World {
    service: Arc<Service>,
    backends: Arc<HashMap<String, Arc<Backend>>>,
    text: String,
    pipes: Pipes,
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
        let hosts = text.lines().filter_map(|line| line.strip_prefix("url = \"http://"));
        let backends: HashMap<String, Arc<Backend>> = hosts
            .map(|host| host.trim_end_matches('"').to_owned())
            .map(|host| (host.clone(), Backend::new(&host)))
            .collect();
        Self::over(text, Pipes { backends: Arc::new(backends), swapper: None, llama_swap: None })
    }

    fn over(text: &str, pipes: Pipes) -> Self {
        let config = Config::parse(text, Path::new(".")).expect("a configuration that makes sense");
        let backends = pipes.backends.clone();
        let service = Arc::new(Service::new(config, Arc::new(pipes.clone())));
        Self { service, backends, text: text.to_owned(), pipes }
    }

    /// Another proxy in front of the same backends.
    pub(crate) fn twin(&self) -> Self {
        Self::over(&self.text, self.pipes.clone())
    }

    /// One card for the named backends, each with a window, a model of its own name, and a place in the model `m`; a
    /// model-switch brings them there. The first of them is there.
    pub(crate) fn on_one_card(backends: &[(&str, u64)], more: &str) -> (Self, Arc<Swapper>) {
        let rows: Vec<(&str, String)> =
            backends.iter().map(|(name, window)| (*name, format!("window = {window}"))).collect();
        let rows: Vec<(&str, &str)> = rows.iter().map(|(name, row)| (*name, row.as_str())).collect();
        Self::on_one_card_with(&rows, more)
    }

    /// The same with what else the configuration says of each.
    pub(crate) fn on_one_card_with(backends: &[(&str, &str)], more: &str) -> (Self, Arc<Swapper>) {
        let mut text = String::new();
        for (name, row) in backends {
            text.push_str(&format!(
                "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"vllm\"\n{row}\nmodel = \"{name}\"\n\
                 load = {{ slug = \"{name}\", time = \"100s\" }}\n[[model]]\nname = \"only-{name}\"\nbackends = [\"{name}\"]\n"
            ));
        }
        let names: Vec<String> = backends.iter().map(|(name, _)| format!("{name:?}")).collect();
        let all = format!("[[model]]\nname = \"m\"\nbackends = [{}]\n", names.join(", "));
        let text =
            format!("{text}{all}[loader]\ndriver = \"model-switch\"\nurl = \"http://swapper\"\n{more}");
        let backend = |(name, _): &(&str, &str)| ((*name).to_owned(), Backend::new(name));
        let hosts: HashMap<String, Arc<Backend>> = backends.iter().map(backend).collect();
        let swapper = Swapper::new(hosts.clone());
        if let Some((first, _)) = backends.first() {
            swapper.has(first);
        }
        let pipes = Pipes { backends: Arc::new(hosts), swapper: Some(swapper.clone()), llama_swap: None };
        (Self::over(&text, pipes), swapper)
    }

    /// The same with all of them at one address, where the scripted backend `port` answers.
    pub(crate) fn on_one_port(backends: &[(&str, u64)]) -> (Self, Arc<Swapper>) {
        let mut text = "[loader]\ndriver = \"model-switch\"\nurl = \"http://swapper\"\n".to_owned();
        for (name, window) in backends {
            text.push_str(&format!(
                "[[backend]]\nname = \"{name}\"\nurl = \"http://port\"\nengine = \"vllm\"\nwindow = {window}\nmodel = \"{name}\"\n\
                 load = {{ slug = \"{name}\" }}\n"
            ));
        }
        let names: Vec<String> = backends.iter().map(|(name, _)| format!("{name:?}")).collect();
        text.push_str(&format!("[[model]]\nname = \"m\"\nbackends = [{}]\n", names.join(", ")));
        let port = Backend::new("port");
        let slugs = backends.iter().map(|(name, _)| ((*name).to_owned(), Backend::new(name)));
        let swapper = Swapper::new(slugs.collect());
        let hosts = HashMap::from([("port".to_owned(), port)]);
        let pipes = Pipes { backends: Arc::new(hosts), swapper: Some(swapper.clone()), llama_swap: None };
        (Self::over(&text, pipes), swapper)
    }

    /// Models behind a llama-swap, each a backend, a model of its own (`only-NAME`), and in the model `m`.
    pub(crate) fn behind_llama_swap(models: &[&str], more: &str) -> (Self, Arc<LlamaSwap>) {
        let mut text = more.to_owned();
        for model in models {
            let name = model.replace(['/', ':'], "-");
            text.push_str(&format!(
                "[[backend]]\nname = \"{name}\"\nurl = \"http://swap\"\nload = {{ model = \"{model}\", time = \"40s\" }}\n\
                 [[model]]\nname = \"only-{model}\"\nbackends = [\"{name}\"]\n"
            ));
        }
        text.push_str("[[model]]\nname = \"m\"\n");
        let swap = LlamaSwap::new(models);
        let pipes = Pipes { backends: Arc::default(), swapper: None, llama_swap: Some(swap.clone()) };
        (Self::over(&text, pipes), swap)
    }

    /// Changes the configuration.
    pub(crate) fn reload(&self, text: &str) {
        self.service.reload(Config::parse(text, Path::new(".")).expect("a configuration that makes sense"));
    }

    /// Changes the configuration by what is appended to it.
    pub(crate) fn reload_with(&self, more: &str) {
        self.reload(&format!("{}{more}", self.text));
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
#[derive(Clone, Debug)]
struct Pipes {
    backends: Arc<HashMap<String, Arc<Backend>>>,
    /// Under the name `swapper`.
    swapper: Option<Arc<Swapper>>,
    /// Under the name `swap`.
    llama_swap: Option<Arc<LlamaSwap>>,
}

impl Connect for Pipes {
    fn connect(&self, to: &Authority) -> Connecting {
        let backend = self.backends.get(to.host()).cloned();
        let llama_swap = self.llama_swap.clone().filter(|_| to.host() == "swap");
        let swapper = self.swapper.clone().filter(|_| to.host() == "swapper");
        Box::pin(async move {
            let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            if let Some(swap) = llama_swap {
                return Ok(swap.accept());
            }
            if let Some(swapper) = swapper {
                return swapper.accept().ok_or_else(refused);
            }
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
