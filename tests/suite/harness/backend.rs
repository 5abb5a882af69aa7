//! A scripted backend: answers probes as a healthy engine does, and inference requests from a list.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use switchback::Io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;

/// What a scripted answer does next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Bytes of the body.
    Send(String),
    /// Silence.
    Pause(Duration),
    /// Silence until the proxy hangs up.
    Hang,
    /// The connection ends without a proper end of the body.
    Cut,
}

/// A scripted answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    head: String,
    steps: Vec<Step>,
    chunked: bool,
}

impl Reply {
    /// A JSON answer.
    pub(crate) fn json(status: u16, body: &str) -> Self {
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self { head, steps: vec![Step::Send(body.to_owned())], chunked: false }
    }

    /// A whole chat answer that does not say how long the prompt was.
    pub(crate) fn says(text: &str) -> Self {
        Self::json(200, &format!("{}}}", answer(text)))
    }

    /// The same by a backend that counted so many prompt tokens.
    pub(crate) fn counted(text: &str, tokens: u64) -> Self {
        let usage = format!(
            r#""usage":{{"prompt_tokens":{tokens},"completion_tokens":1,"total_tokens":{}}}"#,
            tokens + 1
        );
        Self::json(200, &format!("{},{usage}}}", answer(text)))
    }

    /// An event stream.
    pub(crate) fn stream(steps: Vec<Step>) -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_owned();
        Self { head, steps, chunked: true }
    }

    /// A whole streamed chat answer, one word a chunk.
    pub(crate) fn streams(words: &[&str]) -> Self {
        let mut steps = vec![role()];
        steps.extend(words.iter().map(|word| delta(word)));
        steps.extend([finish("stop"), Step::Send("data: [DONE]\n\n".to_owned())]);
        Self::stream(steps)
    }

    /// Silence before the head.
    pub(crate) fn never() -> Self {
        Self { head: String::new(), steps: vec![Step::Hang], chunked: false }
    }

    /// The connection closes before any byte.
    pub(crate) fn closes() -> Self {
        Self { head: String::new(), steps: vec![Step::Cut], chunked: false }
    }
}

/// A chat answer without its closing brace.
fn answer(text: &str) -> String {
    format!(
        r#"{{"id":"c","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":{}}},"finish_reason":"stop"}}]"#,
        Value::from(text)
    )
}

/// The chunk that comes first.
pub(crate) fn role() -> Step {
    chunk(r#"{"role":"assistant","content":""}"#, "null")
}

/// A chunk of text.
pub(crate) fn delta(text: &str) -> Step {
    chunk(&format!(r#"{{"content":{}}}"#, Value::from(text)), "null")
}

/// A chunk of reasoning.
pub(crate) fn reasoning(text: &str) -> Step {
    chunk(&format!(r#"{{"reasoning_content":{}}}"#, Value::from(text)), "null")
}

/// The chunk with the finish reason.
pub(crate) fn finish(reason: &str) -> Step {
    chunk("{}", &format!("\"{reason}\""))
}

fn chunk(delta: &str, finish: &str) -> Step {
    Step::Send(format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    ))
}

/// A request as the backend got it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a json body")
    }
}

#[derive(Debug, Default)]
struct Script {
    replies: VecDeque<Reply>,
    /// Answers to the counting endpoint; absent: 404.
    counts: Option<u64>,
    /// Answers to the proxy's own question for a token; absent: one that says so.
    token: Option<Reply>,
    /// What it makes of every chat, if it tells: each character is a token, `<think>` is one.
    prompt: Option<String>,
    /// And to its question for a call; absent: one without a call.
    call: Option<Reply>,
    listening: bool,
}

/// A scripted backend.
#[derive(Debug)]
pub(crate) struct Backend {
    name: String,
    script: Mutex<Script>,
    seen: watch::Sender<Vec<Seen>>,
    hung_up: watch::Sender<usize>,
}

impl Backend {
    pub(super) fn new(name: &str) -> Arc<Self> {
        let script = Script { listening: true, ..Script::default() };
        Arc::new(Self {
            name: name.to_owned(),
            script: Mutex::new(script),
            seen: watch::Sender::default(),
            hung_up: watch::Sender::default(),
        })
    }

    /// Answers the next inference request so.
    pub(crate) fn then(&self, reply: Reply) -> &Self {
        self.script.lock().replies.push_back(reply);
        self
    }

    /// Counts every prompt as so many tokens.
    pub(crate) fn counts(&self, tokens: u64) -> &Self {
        self.script.lock().counts = Some(tokens);
        self
    }

    /// Answers so when the proxy itself asks for a token.
    pub(crate) fn token(&self, reply: Reply) -> &Self {
        self.script.lock().token = Some(reply);
        self
    }

    /// Renders every chat so, and says it when it is asked.
    pub(crate) fn renders(&self, prompt: &str) -> &Self {
        self.script.lock().prompt = Some(prompt.to_owned());
        self
    }

    /// Answers so when the proxy itself asks for a call.
    pub(crate) fn proves_itself(&self, reply: Reply) -> &Self {
        self.script.lock().call = Some(reply);
        self
    }

    /// Refuses connections from now on, or accepts them again.
    pub(crate) fn listens(&self, listening: bool) -> &Self {
        self.script.lock().listening = listening;
        self
    }

    /// The inference requests that arrived so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// Waits until so many inference requests have arrived.
    pub(crate) async fn until_seen(&self, count: usize) {
        self.seen.subscribe().wait_for(|seen| seen.len() >= count).await.expect("the backend lives");
    }

    /// Waits until the proxy has hung up on so many answers before their end.
    pub(crate) async fn until_hung_up(&self, count: usize) {
        self.hung_up.subscribe().wait_for(|hung_up| *hung_up >= count).await.expect("the backend lives");
    }

    pub(super) fn accept(self: &Arc<Self>) -> Option<Box<dyn Io>> {
        if !self.script.lock().listening {
            return None;
        }
        let (near, far) = tokio::io::duplex(64 << 10);
        let backend = self.clone();
        tokio::spawn(async move { backend.serve(far).await });
        Some(Box::new(near))
    }

    async fn serve(&self, mut pipe: DuplexStream) {
        let Some(request) = read_request(&mut pipe).await else { return };
        let reply = self.reply_to(&request);
        let whole = play(&mut pipe, &reply).await;
        if !whole {
            self.hung_up.send_modify(|hung_up| *hung_up += 1);
        }
    }

    fn reply_to(&self, request: &Seen) -> Reply {
        let mut script = self.script.lock();
        match request.path.as_str() {
            "/health" => Reply::json(200, ""),
            "/v1/models" => Reply::json(200, r#"{"object":"list","data":[]}"#),
            "/apply-template" => match &script.prompt {
                Some(prompt) => Reply::json(200, &serde_json::json!({ "prompt": prompt }).to_string()),
                None => Reply::json(404, r#"{"detail":"Not Found"}"#),
            },
            "/tokenize" | "/detokenize" if script.prompt.is_some() => Reply::json(
                200,
                &in_tokens(&request.json(), script.prompt.as_deref().unwrap_or_default()).to_string(),
            ),
            "/tokenize" => match script.counts {
                Some(tokens) => Reply::json(200, &format!(r#"{{"count":{tokens}}}"#)),
                None => Reply::json(404, r#"{"detail":"Not Found"}"#),
            },
            _ if request.body.contains(r#""messages":[{"role":"user","content":"."}]"#) => {
                script.token.clone().unwrap_or_else(|| Reply::says("."))
            }
            _ if request.body.contains("Call the tool report with") => {
                script.call.clone().unwrap_or_else(|| Reply::says("well"))
            }
            _ => {
                self.seen.send_modify(|seen| seen.push(request.clone()));
                script
                    .replies
                    .pop_front()
                    .unwrap_or_else(|| Reply::json(500, &format!("{}: nothing scripted", self.name)))
            }
        }
    }
}

/// One token for `<think>`, one for each character of all else.
fn in_tokens(asked: &Value, prompt: &str) -> Value {
    let text = |tokens: &Value| {
        let token = |token: &Value| match token.as_u64().and_then(|token| u32::try_from(token).ok()) {
            Some(7) => "<think>".to_owned(),
            token => token.and_then(char::from_u32).map(String::from).unwrap_or_default(),
        };
        tokens.as_array().into_iter().flatten().map(token).collect::<String>()
    };
    if let Some(tokens) = asked.get("tokens") {
        return serde_json::json!({ "prompt": text(tokens) });
    }
    let text = asked.get("prompt").or_else(|| asked.get("content")).and_then(Value::as_str).unwrap_or(prompt);
    let tokens: Vec<u32> = text.replace("<think>", "\u{7}").chars().map(u32::from).collect();
    serde_json::json!({ "count": tokens.len(), "tokens": tokens })
}

pub(super) async fn read_request(pipe: &mut DuplexStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
            });
            let total = end + 4 + length.unwrap_or(0);
            if bytes.len() >= total {
                let path = head.split(' ').nth(1)?.to_owned();
                return Some(Seen {
                    path,
                    head,
                    body: String::from_utf8(bytes[end + 4..total].to_vec()).ok()?,
                });
            }
        }
        let mut piece = vec![0; 64 << 10];
        match pipe.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
    }
}

/// False: the proxy hung up before the end.
async fn play(pipe: &mut DuplexStream, reply: &Reply) -> bool {
    if pipe.write_all(reply.head.as_bytes()).await.is_err() {
        return false;
    }
    for step in &reply.steps {
        let bytes = match step {
            Step::Send(text) if reply.chunked => format!("{:x}\r\n{text}\r\n", text.len()),
            Step::Send(text) => text.clone(),
            Step::Cut => return true,
            Step::Pause(_) | Step::Hang => {
                let time = if let Step::Pause(time) = step { *time } else { Duration::from_secs(1 << 30) };
                let mut byte = [0];
                if tokio::time::timeout(time, pipe.read(&mut byte)).await.is_ok() {
                    return false;
                }
                continue;
            }
        };
        if pipe.write_all(bytes.as_bytes()).await.is_err() {
            return false;
        }
    }
    let end = if reply.chunked { "0\r\n\r\n" } else { "" };
    pipe.write_all(end.as_bytes()).await.is_ok()
}
