//! `undisturbed TOKENIZER`: what a first count of ten megabytes does to the streams beside it.
//!
//! A hundred clients stream through the real binary from a backend in this process; then others send ten megabytes that nobody has
//! counted before, one after the other, and each of them a second time, when they are known: what the ten megabytes cost on their way is
//! in both, the count in the first. Every chunk carries the time at which the backend wrote it, so what is measured is the way through the
//! proxy, and not how late the backend was. Compare the rows of one run, and look at the machine before you look at the worst.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde_json::json;
use std::io::Write as _;
use switchback_tests::wire::adapter::Configuration;
use switchback_tests::wire::http1::Wire;
use switchback_tests::wire::proxy::{Binary, Subject as _, Up as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug, clap::Parser)]
struct Args {
    /// A model's folder or GGUF file
    tokenizer: PathBuf,
    /// The program
    #[arg(long, default_value = "target/release/switchback")]
    binary: PathBuf,
    /// Streams
    #[arg(long, default_value_t = 100)]
    streams: usize,
    /// Large prompts, one after the other
    #[arg(long, default_value_t = 10)]
    prompts: usize,
    /// Their size in bytes
    #[arg(long, default_value_t = 10_000_000)]
    bytes: usize,
}

/// How often each stream has a chunk.
const EVERY: Duration = Duration::from_millis(50);
/// Between two large prompts, in which the undisturbed way is measured.
const PAUSE: Duration = Duration::from_secs(2);
/// The end of a stream.
const DONE: &[u8] = b"[DONE]";
/// A body from here on gets a short answer at once.
const LARGE: usize = 1_000_000;

/// What goes on beside the streams.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// A large prompt that nobody has seen.
    Counted,
    /// The same again.
    Known,
}

impl Beside {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "streams alone",
            Self::Counted => "beside a first count",
            Self::Known => "beside the same, known",
        }
    }
}

/// A chunk's arrival: when, and how long it had taken.
type Arrivals = Arc<Mutex<Vec<(Instant, Duration)>>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let args = <Args as clap::Parser>::parse();
    let tokenizer = std::fs::canonicalize(&args.tokenizer).context("no such tokenizer")?;
    let start = Instant::now();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let backend = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer(socket, start));
        }
    });
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[[backend]]\nname = \"b\"\nurl = \"http://{backend}\"\nengine = \"vllm\"\nwindow = 100_000_000\n\
         [[model]]\nname = \"m\"\nbackends = [\"b\"]\ntokenizer = {}\n[admission]\nenabled = false\n",
        serde_json::to_string(&tokenizer)?
    );
    let path = std::fs::canonicalize(&args.binary).context("no such binary")?;
    let process =
        Binary { path }.start(&Configuration { toml, ..Configuration::default() }, &[backend]).await?;
    let proxy = process.address();

    let arrivals = Arrivals::default();
    for _ in 0..args.streams {
        tokio::spawn(stream(proxy, start, arrivals.clone()));
    }
    // The vocabulary loads meanwhile.
    let bodies: Vec<String> = (0..args.prompts).map(|number| large(number, args.bytes)).collect();
    tokio::time::sleep(Duration::from_secs(8)).await;
    arrivals.lock().clear();
    let mut windows = Vec::new();
    for body in &bodies {
        for beside in [Beside::Counted, Beside::Known] {
            tokio::time::sleep(PAUSE).await;
            let sent = Instant::now();
            let mut socket = post(proxy, body).await?;
            let mut answer = Vec::new();
            let is_done = |answer: &[u8]| answer.windows(DONE.len()).any(|piece| piece == DONE);
            while !is_done(&answer) && socket.read_buf(&mut answer).await? > 0 {}
            let said = String::from_utf8(answer).context("the answer to a large prompt is no text")?;
            anyhow::ensure!(said.starts_with("HTTP/1.1 200"), "the large prompt was refused: {said}");
            // A head that came before its backend was known would tell of a wait, not of a count.
            anyhow::ensure!(!said.contains("backend: pending"), "the large prompt waited: {said}");
            windows.push((beside, sent, Instant::now()));
        }
    }
    let alive = process.stop().await;
    anyhow::ensure!(alive.is_none(), "{}", alive.unwrap_or_default());
    tell(&arrivals.lock(), &windows)
}

fn tell(arrivals: &[(Instant, Duration)], windows: &[(Beside, Instant, Instant)]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| chunks | how many | p50 ms | p99 ms | longest ms | lasted ms |\n|---|---|---|---|---|---|"
    )?;
    let mut told = serde_json::Map::new();
    for beside in [Beside::Nothing, Beside::Counted, Beside::Known] {
        let within = |at: &Instant| windows.iter().find(|(_, from, to)| from <= at && at <= to);
        let is_asked = |at: &Instant| within(at).map_or(Beside::Nothing, |(beside, _, _)| *beside) == beside;
        let mut delays: Vec<Duration> =
            arrivals.iter().filter(|(at, _)| is_asked(at)).map(|(_, delay)| *delay).collect();
        delays.sort();
        let mut lasted: Vec<Duration> =
            windows.iter().filter(|(kind, _, _)| *kind == beside).map(|(_, from, to)| *to - *from).collect();
        lasted.sort();
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| at(&delays, share));
        let (name, count, lasted) = (beside.name(), delays.len(), at(&lasted, 0.5));
        writeln!(out, "| {name} | {count} | {p50:.2} | {p99:.2} | {most:.2} | {lasted:.0} |")?;
        told.insert(
            name.into(),
            json!({"chunks": count, "p50_ms": p50, "p99_ms": p99, "longest_ms": most, "lasted_ms": lasted}),
        );
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    told.insert("load".into(), load.split_whitespace().next().into());
    writeln!(out, "{}", serde_json::Value::from(told))?;
    Ok(())
}

/// What a share of sorted times stays below, in ms.
fn at(sorted: &[Duration], share: f64) -> f64 {
    let place = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

/// Text that repeats no line of another prompt.
fn large(number: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 100);
    let mut line = number * 1_000_000;
    while text.len() < bytes {
        line += 1;
        text.push_str(&format!("{} some words, fn x{line}() {{ return {line}; }}\n", line * 7919 % 104_729));
    }
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": text}]}).to_string()
}

async fn post(to: std::net::SocketAddr, body: &str) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(to).await?;
    socket.set_nodelay(true)?;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body.as_bytes()).await?;
    Ok(socket)
}

/// A client that notes when each chunk comes, for as long as the program runs.
async fn stream(proxy: std::net::SocketAddr, start: Instant, arrivals: Arrivals) -> Result<()> {
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let mut socket = post(proxy, &body).await?;
    let mut unread = Vec::new();
    loop {
        if socket.read_buf(&mut unread).await? == 0 {
            return Ok(());
        }
        let now = Instant::now();
        let Some(end) = unread.iter().rposition(|byte| *byte == b'\n') else { continue };
        let lines: Vec<u8> = unread.drain(..=end).collect();
        let text = std::str::from_utf8(&lines).context("a chunk is no text")?;
        for written in text.split("\"content\":\"@").skip(1) {
            if let Some(micros) = written.split_once('@').and_then(|(micros, _)| micros.parse().ok()) {
                let sent = start + Duration::from_micros(micros);
                arrivals.lock().push((now, now.saturating_duration_since(sent)));
            }
        }
    }
}

/// The backend: for a short prompt a stream without an end, for a long one a word.
async fn answer(socket: TcpStream, start: Instant) -> Result<()> {
    socket.set_nodelay(true)?;
    let (reader, mut writer) = socket.into_split();
    let mut wire = Wire::new(reader);
    let Some(head) = wire.head().await? else { return Ok(()) };
    let body = wire.body(head.request_body()?).await?;
    if !head.first.contains("/chat/completions") {
        writer.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await?;
        return Ok(());
    }
    writer
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        .await?;
    let mut clock = tokio::time::interval(EVERY);
    loop {
        clock.tick().await;
        let chunk = |delta: serde_json::Value, finish: Option<&str>| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            format!(
                "data: {}\n\n",
                json!({"id": "x", "object": "chat.completion.chunk", "choices": [choice]})
            )
        };
        let said = format!("@{}@ ", start.elapsed().as_micros());
        writer.write_all(chunk(json!({"content": said}), None).as_bytes()).await?;
        if body.len() > LARGE {
            let end = chunk(json!({}), Some("stop")) + "data: [DONE]\n\n";
            writer.write_all(end.as_bytes()).await?;
            return Ok(());
        }
    }
}
