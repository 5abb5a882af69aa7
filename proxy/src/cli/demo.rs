//! `switchback demo`: what a long prompt does to one card without the proxy, and with it.
//!
//! Two simulated machines with published figures and the proxy on free ports; nothing is installed, nothing leaves the
//! machine. The same two requests run twice, first straight to the single card, then through the proxy. Afterwards
//! everything stays up to play with. What is printed was measured in this run.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::Full;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::sse::SseDecoder;
use switchback_rig::{Clock, Event, EventKind, Rig, Spec, text_of_tokens};

use super::{Failed, asked_to_stop, rig::sentence, say};
use crate::backend::client::{self, Tcp};
use crate::config::Config;
use crate::server::Proxy;

/// The prompt of a coding agent that has read a few files: above what one card survives, well within its window.
const LONG: usize = 62_000;

#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// How much faster than the real machines
    #[arg(long, value_name = "FACTOR", default_value_t = 25.0)]
    speed: f64,
    /// Where the proxy listens; port 0: any free one
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    listen: SocketAddr,
    /// End after the scenario
    #[arg(long)]
    once: bool,
}

pub(super) async fn run(args: DemoArgs) -> Result<(), Failed> {
    let clock = Clock::new(args.speed)?;
    let mut single = Spec::preset("vllm/long-text")?;
    "single".clone_into(&mut single.name);
    "qwen3.6-27b".clone_into(&mut single.model);
    single.slots = 2;
    let mut dual = Spec::preset("vllm/dual")?;
    "dual".clone_into(&mut dual.name);
    let survives = single.dies_above.context("the single card has a cliff")?;
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let single = Rig::start(single, any_port, clock)?;
    let dual = Rig::start(dual, any_port, clock)?;
    let config = format!(
        "[server]\nlisten = \"{}\"\n\
         [[backend]]\nname = \"single\"\nurl = \"{}\"\nlimit = {{ single = {survives} }}\n\
         [[backend]]\nname = \"dual\"\nurl = \"{}\"\n\
         [[model]]\nname = \"qwen3.6-27b\"\naliases = [\"auto\"]\nbackends = [\"single\", \"dual\"]\n",
        args.listen,
        single.url(),
        dual.url()
    );
    let proxy =
        Proxy::start(Config::parse(&config, Path::new("."))?).await.context("cannot start the proxy")?;

    say(format_args!(
        "Two simulated machines with the published figures, {} times as fast as the real ones:",
        args.speed
    ));
    for (rig, what) in [(&single, "one 24 GB card, vLLM"), (&dual, "two 24 GB cards, vLLM")] {
        let dies = rig
            .spec()
            .dies_above
            .map(|tokens| format!(", dies of prompts above {tokens}"))
            .unwrap_or_default();
        say(format_args!("  {:7} {what:22} window {}{dies}", rig.spec().name, rig.spec().window));
    }
    say("Two requests: a chat that streams, and a coding agent's prompt of about 62000 tokens.\n");

    say("1. Without Switchback, both sent to the single card");
    let without = scenario(&clock, &authority(&single.url())?, &[&single]).await;
    report(&without);
    say("   … the card restarts and loads its model again");
    let back = single.event(|event| event.number > 0 && matches!(event.kind, EventKind::Ready)).await;
    let died = single.events().into_iter().find(|event| matches!(event.kind, EventKind::Died { .. }));
    let outage = died.map_or(0.0, |died| back.at - died.at);
    say(format_args!("{:>9.1} s  single     serves again: an outage of {outage:.0} s\n", back.at));
    // The proxy has noticed both: it probes once a second while a backend is away.
    wait_until_up(proxy.address()).await?;

    say("2. With Switchback in front of both, the same two requests");
    let with = scenario(&clock, &authority(&format!("http://{}", proxy.address()))?, &[&single, &dual]).await;
    report(&with);

    let answered =
        |results: &[Result<Told, String>; 2]| results.iter().filter(|result| result.is_ok()).count();
    say(format_args!(
        "\nWithout: {} of 2 answered, and nobody served for {outage:.0} s. With: {} of 2 answered.\n",
        answered(&without),
        answered(&with)
    ));
    if args.once {
        return if answered(&with) == 2 && answered(&without) == 0 {
            Ok(())
        } else {
            Err(Failed::Other(anyhow::anyhow!("the scenario did not make its point")))
        };
    }
    let base = format!("http://{}/v1", proxy.address());
    say(format_args!("Everything stays up until Ctrl-C. Base URL for any client (any key): {base}\n"));
    say(format_args!(
        "  curl -i {base}/chat/completions -H 'content-type: application/json' \\\n       -d '{{\"model\":\"auto\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
    ));
    asked_to_stop().await?;
    Ok(())
}

/// What a client got to see.
struct Told {
    backend: String,
    tokens: usize,
    first: f64,
}

type Results = [Result<Told, String>; 2];

/// Runs the chat, then the long prompt beside it; prints what happens to the machines meanwhile.
async fn scenario(clock: &Clock, to: &Authority, rigs: &[&Rig]) -> Results {
    let logs: Vec<Log<'_>> = rigs.iter().map(|rig| Log::from_now_on(rig)).collect();
    let (streams, long_may_start) = tokio::sync::oneshot::channel();
    let chat = async {
        let body = r#"{"model":"qwen3.6-27b","stream":true,"max_tokens":600,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me about mountain roads."}]}"#;
        ask(clock, to, body.into(), Some(streams)).await
    };
    let agent = async {
        // A chat that failed at once starts it, too.
        let _ = long_may_start.await;
        let prompt = serde_json::Value::from(text_of_tokens(LONG, 7));
        let body = format!(
            r#"{{"model":"qwen3.6-27b","stream":true,"max_tokens":120,"messages":[{{"role":"user","content":{prompt}}}]}}"#
        );
        ask(clock, to, body.into(), None).await
    };
    let both = async { tokio::join!(chat, agent) };
    let mut both = std::pin::pin!(both);
    let (chat, agent) = loop {
        let happened = logs.iter().map(Log::print_next);
        tokio::select! {
            ended = &mut both => break ended,
            () = any_of(happened) => {}
        }
    };
    logs.iter().for_each(Log::print_rest);
    [chat, agent]
}

/// Resolves with the first of them.
async fn any_of<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        let ready = futures.iter_mut().any(|future| future.as_mut().poll(cx).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// What happens to a machine, printed once each.
struct Log<'a> {
    rig: &'a Rig,
    next: Cell<u64>,
}

impl<'a> Log<'a> {
    fn from_now_on(rig: &'a Rig) -> Self {
        Self { rig, next: Cell::new(rig.events().last().map_or(0, |event| event.number + 1)) }
    }

    async fn print_next(&self) {
        self.print(&self.rig.event_since(self.next.get(), |_| true).await);
    }

    fn print_rest(&self) {
        self.rig.events_since(self.next.get()).iter().for_each(|event| self.print(event));
    }

    fn print(&self, event: &Event) {
        self.next.set(event.number + 1);
        say(format_args!("{:>9.1} s  {:10} {}", event.at, self.rig.spec().name, sentence(event)));
    }
}

fn report(results: &Results) {
    for (who, result) in ["chat", "agent"].iter().zip(results) {
        match result {
            Ok(told) => say(format_args!(
                "   {who:6} answered by {}: {} chunks, the first after {:.1} s",
                told.backend, told.tokens, told.first
            )),
            Err(why) => say(format_args!("   {who:6} FAILED: {why}")),
        }
    }
}

/// Sends a streamed chat and reads its answer to the end. `begun` is told of the first content.
async fn ask(
    clock: &Clock,
    to: &Authority,
    body: Bytes,
    mut begun: Option<tokio::sync::oneshot::Sender<()>>,
) -> Result<Told, String> {
    let sent = clock.now();
    let mut reply =
        send(to, Method::POST, "/v1/chat/completions", body).await.map_err(|error| error.to_string())?;
    let backend = reply.head.headers.get("x-switchback-backend").and_then(|name| name.to_str().ok());
    let backend = backend.unwrap_or("single").to_owned();
    let status = reply.head.status;
    let mut frames = SseDecoder::new();
    let mut told = Told { backend, tokens: 0, first: 0.0 };
    let mut finished = false;
    while let Some(piece) = reply.body.next().await {
        let piece =
            piece.map_err(|error| format!("connection lost after {} chunks: {error}", told.tokens))?;
        frames.push(piece).map_err(|error| error.to_string())?;
        while let Some(frame) = frames.next_frame() {
            let said = Dialect::Chat.read_frame(&frame);
            if said.error {
                return Err(format!(
                    "an error event after {} chunks under status {}",
                    told.tokens,
                    status.as_u16()
                ));
            }
            if said.content {
                if told.tokens == 0 {
                    told.first = clock.now() - sent;
                    if let Some(begun) = begun.take() {
                        // Nobody waits if the other request has already ended.
                        let _ = begun.send(());
                    }
                }
                told.tokens += 1;
            }
            finished |= said.choices.iter().any(|choice| choice.finish.is_some());
        }
    }
    if finished { Ok(told) } else { Err(format!("no finish reason, status {}", status.as_u16())) }
}

async fn send(
    to: &Authority,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<client::Reply, client::ClientError> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap_or_default();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(host) = HeaderValue::from_str(to.as_str()) {
        headers.insert(header::HOST, host);
    }
    *request.headers_mut() = headers;
    client::send(&Tcp, to, Duration::from_secs(2), request).await
}

async fn wait_until_up(proxy: SocketAddr) -> anyhow::Result<()> {
    let to: Authority = proxy.to_string().parse()?;
    for _ in 0..100 {
        let mut reply = send(&to, Method::GET, "/health", Bytes::new()).await?;
        let mut body = Vec::new();
        while let Some(Ok(piece)) = reply.body.next().await {
            body.extend_from_slice(&piece);
        }
        let health: serde_json::Value = serde_json::from_slice(&body)?;
        let backends = health.get("backends").and_then(serde_json::Value::as_object);
        if backends.is_some_and(|backends| backends.values().all(|state| state == "up")) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the proxy does not find both machines up")
}

fn authority(url: &str) -> anyhow::Result<Authority> {
    Ok(url.trim_start_matches("http://").parse()?)
}
