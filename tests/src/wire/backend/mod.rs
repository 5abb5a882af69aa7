//! The scripted backends of a case: listeners that answer inference requests from one common script, in its order.
//!
//! Everything else that a proxy may ask (health, models, counts) is answered by `service` and is no attempt. A
//! request that the script does not expect is noted as a fault and refused, so that it fails the case and the run ends.

mod play;
mod service;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::case::{Backend, Case, Scripted};
use super::http1::{Head, Wire};
use super::observed::{Attempt, Clock};
use play::After;

/// The backends of one case, listening. Dropping them closes everything.
#[derive(Debug)]
pub struct Stage {
    script: Arc<Script>,
    addresses: Vec<SocketAddr>,
    /// Bound and never listening: a port that refuses and that nobody else can take.
    _refusing: Vec<TcpSocket>,
    _listening: JoinSet<()>,
}

/// What all backends of a case share.
#[derive(Debug)]
struct Script {
    case: Arc<Case>,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The next answer's place in the script.
    next: usize,
    attempts: Vec<Attempt>,
    faults: Vec<String>,
    /// Backends whose first scripted answer has begun.
    begun: Vec<usize>,
    /// Service requests answered so far, with the backend and the time.
    asked: Vec<(usize, Duration)>,
}

impl Stage {
    /// Begins to listen for every backend of the case.
    ///
    /// # Errors
    /// No port could be had.
    pub async fn raise(case: &Arc<Case>, clock: Clock) -> io::Result<Self> {
        let script = Arc::new(Script { case: Arc::clone(case), clock, state: Mutex::default() });
        let (mut addresses, mut refusing, mut listening) = (Vec::new(), Vec::new(), JoinSet::new());
        for (number, backend) in case.backends.iter().enumerate() {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            if script.refuses(backend) {
                let socket = TcpSocket::new_v4()?;
                socket.bind(any)?;
                addresses.push(socket.local_addr()?);
                refusing.push(socket);
            } else {
                let listener = TcpListener::bind(any).await?;
                addresses.push(listener.local_addr()?);
                listening.spawn(listen(listener, number, Arc::clone(&script)));
            }
        }
        Ok(Self { script, addresses, _refusing: refusing, _listening: listening })
    }

    /// Where the backends listen, in the order of the policy.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits until every backend has been looked at and the looking has paused, at most `patience`: a proxy that has
    /// run for a moment knows its backends. One that never probes only costs this time.
    pub async fn probed(&self, patience: Duration) {
        const QUIET: Duration = Duration::from_millis(30);
        let deadline = self.script.clock.now() + patience;
        loop {
            let now = self.script.clock.now();
            let ready = {
                let state = self.script.state.lock();
                let looked_at = |number: usize| state.asked.iter().any(|(asked, _)| *asked == number);
                let listening =
                    self.script.case.backends.iter().enumerate().filter(|(_, it)| !self.script.refuses(it));
                let quiet = state.asked.last().is_some_and(|(_, at)| *at + QUIET <= now);
                quiet && listening.map(|(number, _)| number).all(looked_at)
            };
            if ready || now >= deadline {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until every answer that was under way at `since` has ended or was closed by the proxy, or until `deadline`.
    pub async fn settled(&self, since: Duration, deadline: Duration) {
        let open =
            |attempt: &Attempt| attempt.closed.is_none() && attempt.ended.is_none_or(|ended| ended > since);
        while self.script.state.lock().attempts.iter().any(open) && self.script.clock.now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The attempts and faults up to now.
    pub fn seen(&self) -> (Vec<Attempt>, Vec<String>) {
        let state = self.script.state.lock();
        (state.attempts.clone(), state.faults.clone())
    }
}

impl Script {
    /// Whether nothing listens at a backend: an entry says so of it, or of no backend in particular.
    fn refuses(&self, backend: &Backend) -> bool {
        let of_it = |answer: &&Scripted| answer.backend.as_ref().is_none_or(|name| *name == backend.name);
        self.case.answers.iter().filter(|answer| answer.refuse_connection).any(|answer| of_it(&answer))
    }

    /// Takes the next answer for an attempt that has arrived. Gives the attempt's number and the answer.
    fn turn(&self, attempt: Attempt) -> (usize, Option<&Scripted>) {
        let mut state = self.state.lock();
        let place = state.attempts.len();
        let answer = self.case.answers.iter().filter(|answer| !answer.refuse_connection).nth(state.next);
        state.next += 1;
        match answer.map(|answer| &answer.backend) {
            None => state
                .faults
                .push(format!("request {place} arrived at {} and has no scripted answer", attempt.backend)),
            Some(Some(owner)) if *owner != attempt.backend => {
                state
                    .faults
                    .push(format!("request {place} arrived at {}, its answer is {owner}'s", attempt.backend));
            }
            Some(_) => {}
        }
        state.attempts.push(attempt);
        (place, answer)
    }

    /// The status of a backend's health now.
    fn health(&self, number: usize) -> u16 {
        let backend = &self.case.backends[number];
        let scripted = self.case.health_answers.get(&backend.name).and_then(serde_json::Value::as_u64);
        let begun = self.state.lock().begun.contains(&number);
        scripted.filter(|_| begun).and_then(|status| u16::try_from(status).ok()).unwrap_or(200)
    }
}

async fn listen(listener: TcpListener, number: usize, script: Arc<Script>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let script = Arc::clone(&script);
        connections.spawn(async move {
            // A connection that breaks has told what it could, the attempts say the rest; but what is no HTTP is a fault.
            if let Err(error) = serve(stream, number, &script).await
                && error.kind() == io::ErrorKind::InvalidData
            {
                let name = &script.case.backends[number].name;
                script.state.lock().faults.push(format!("what arrived at {name} is no HTTP: {error}"));
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one connection's requests, one after the other.
async fn serve(stream: TcpStream, number: usize, script: &Script) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let mut wire = Wire::new(read);
    while let Some(head) = wire.head().await? {
        let arrived = script.clock.now();
        let body = wire.body(head.request_body()?).await?;
        let mut line = head.first.split(' ');
        let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        let closes = head.headers.closes();
        let asked = service::Question { method, path, body: &body };
        if let Some(answer) =
            asked.answer(&script.case.backends[number], &script.served(number), script.health(number))
        {
            script.state.lock().asked.push((number, arrived));
            return write.write_all(&answer).await;
        }
        if answer(script, number, &head, body, arrived, &mut wire, &mut write).await? == After::Close {
            return Ok(());
        }
        if closes {
            return Ok(());
        }
    }
    Ok(())
}

/// Plays the next answer, and watches meanwhile whether the proxy closes.
async fn answer(
    script: &Script,
    number: usize,
    head: &Head,
    body: Vec<u8>,
    arrived: Duration,
    wire: &mut Wire<OwnedReadHalf>,
    write: &mut OwnedWriteHalf,
) -> io::Result<After> {
    let attempt = Attempt {
        backend: script.case.backends[number].name.clone(),
        path: head.first.split(' ').nth(1).unwrap_or_default().to_owned(),
        headers: head.headers.clone(),
        body: body.into(),
        arrived,
        ended: None,
        closed: None,
    };
    let (place, scripted) = script.turn(attempt);
    let ending = || script.state.lock().attempts[place].ended = Some(script.clock.now());
    let unexpected = Scripted {
        status: Some(500),
        body: Some(serde_json::json!({"error": {"message": "the script has no answer for this request"}})),
        ..Scripted::default()
    };
    let answer = scripted.unwrap_or(&unexpected);
    let play = async {
        sleep(Duration::from_millis(answer.delay_headers_ms)).await;
        script.state.lock().begun.push(number);
        play::answer(answer, write, ending).await
    };
    let played = tokio::select! {
        played = play => played,
        () = wire.closed() => Err(io::ErrorKind::ConnectionReset.into()),
    };
    if played.is_err() {
        script.state.lock().attempts[place].closed = Some(script.clock.now());
    }
    played
}

impl Script {
    /// The model name that a backend serves: its own, or the first one that is asked for.
    fn served(&self, number: usize) -> String {
        let asked_for = || self.case.requests.iter().find_map(|request| request.body.get("model")?.as_str());
        self.case.backends[number].serves.as_deref().or_else(asked_for).unwrap_or("model").to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::case::parse;
    use super::*;

    /// What a whole exchange looks like: status line and body, pieces apart.
    async fn ask(address: SocketAddr, request: &str) -> (String, Vec<String>) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut wire = Wire::new(stream);
        let head = wire.head().await.unwrap().unwrap();
        let mut framing = head.response_body(200, false).unwrap();
        let mut pieces = Vec::new();
        while let Some(piece) = wire.piece(&mut framing).await.unwrap() {
            pieces.push(String::from_utf8(piece).unwrap());
        }
        (head.first, pieces)
    }

    fn stage_of(answers: &Value, more: &Value) -> Arc<Case> {
        let backend =
            |name: &str| json!({"name": name, "kind": "vllm", "window_tokens": 9, "safe_prompt_tokens": 9});
        let mut settings = json!({"backends": [backend("a"), backend("b")]});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let case = json!({"id": "1-x", "category": "c", "expect": {}, "policy": {"settings": settings},
            "client_request": {"method": "POST", "path": "/"}, "backend_behaviour": answers});
        Arc::new(parse(&case.to_string()).unwrap())
    }

    const POST: &str = "POST /v1/chat/completions?x=1 HTTP/1.1\r\nX-A: 1\r\ncontent-length: 2\r\n\r\n{}";
    const HEALTH: &str = "GET /health HTTP/1.1\r\n\r\n";

    #[tokio::test]
    async fn answers_are_taken_in_order_over_all_backends_and_health_turns_with_the_first() {
        let answers = json!([{"body_raw": "one", "backend": "b"}, {"status": 503, "body": {"x": 1}}]);
        let case = stage_of(&answers, &json!({"health_answers": {"b": 500}}));
        let stage = Stage::raise(&case, Clock::start()).await.unwrap();
        let [a, b] = stage.addresses() else { panic!("two backends") };
        assert_eq!(ask(*b, HEALTH).await.0, "HTTP/1.1 200 OK");
        assert_eq!(ask(*b, POST).await, ("HTTP/1.1 200 OK".to_owned(), vec!["one".to_owned()]));
        assert_eq!(ask(*b, HEALTH).await.0, "HTTP/1.1 500 Internal Server Error");
        assert_eq!(ask(*a, HEALTH).await.0, "HTTP/1.1 200 OK");
        assert_eq!(
            ask(*a, POST).await,
            ("HTTP/1.1 503 Service Unavailable".to_owned(), vec!["{\"x\":1}".to_owned()])
        );
        let (attempts, faults) = stage.seen();
        assert_eq!(attempts.iter().map(|attempt| attempt.backend.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(
            (attempts[0].path.as_str(), &attempts[0].body[..]),
            ("/v1/chat/completions?x=1", &b"{}"[..])
        );
        assert_eq!(attempts[0].headers.get("x-a").as_deref(), Some("1"));
        assert_eq!(faults, [""; 0]);
        assert_eq!(ask(*a, POST).await.0, "HTTP/1.1 500 Internal Server Error");
        assert_eq!(stage.seen().1.len(), 1);
    }

    #[tokio::test]
    async fn where_nothing_listens_the_connection_is_refused_and_no_turn_is_taken() {
        let answers = json!([{"refuse_connection": true, "backend": "a"}, {"body_raw": "one"}]);
        let stage = Stage::raise(&stage_of(&answers, &json!({})), Clock::start()).await.unwrap();
        let [a, b] = stage.addresses() else { panic!("two backends") };
        assert_eq!(TcpStream::connect(a).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(ask(*b, POST).await.1, ["one"]);
    }
}
