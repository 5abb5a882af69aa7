//! The relay of one streamed answer: waits for the engine's progress and has a pen write what is new.
//!
//! The tokens of one step leave in one frame, as the real servers flush them; vLLM makes one chunk of those of a kind.
//! Which tokens came together follows from the answer's own seed, not from when they are read. It must never wait for
//! anything but the engine, the comment clock, a tool parser that holds text back, and the client.

use std::{future::pending, sync::Arc};

use http::StatusCode;

use super::{
    Accepted, Answered, Broken,
    body::{self, Writer},
};
use crate::{
    Clock, Phase,
    answer::{Answer, Ending, Token},
    backend::Backend,
    ticket::{End, Progress},
    timing::Bursts,
};

/// Tokens of one kind that leave in one chunk.
pub(crate) struct Piece {
    /// The number of its first token in the answer.
    pub(crate) at: usize,
    /// How many tokens it is.
    pub(crate) count: usize,
    /// Their texts, put together.
    pub(crate) token: Token,
}

/// Writes an engine's events, with their frames around them.
pub(crate) trait Pen: Send {
    /// Prefill went on.
    fn prefill(&mut self, progress: &Progress) -> String;
    /// This is out; it is the last of the answer if `finish` says why.
    fn piece(&mut self, piece: &Piece, finish: Option<&'static str>) -> String;
    /// Whether tokens of one step and kind leave in one chunk.
    fn merges(&self) -> bool;
    /// The answer is complete.
    fn end(&mut self, answer: &Answer, progress: &Progress) -> String;
    /// The engine died; none if its whole process did.
    fn death(&self) -> Option<String>;
    /// Seconds of silence between comments, and the comment.
    fn comment(&self) -> Option<(f64, &'static str)>;
}

/// Writes an accepted request's stream to its end.
pub(crate) async fn relay(
    backend: Arc<Backend>,
    accepted: Accepted,
    mut pen: impl Pen,
    out: Writer,
) -> Result<(), Broken> {
    let Accepted { answer, mut ticket, boot, .. } = accepted;
    let mut silence = Silence { clock: backend.clock, from: backend.clock.now(), comment: pen.comment() };
    let mut steps = Steps::new(&backend, &answer);
    let mut progress = ticket.now();
    loop {
        let mut text = pen.prefill(&progress);
        let held = answer.hold.map_or(usize::MAX, |hold| hold.from);
        steps.say(progress.decoded.min(held), &mut pen, &mut text);
        if !text.is_empty() {
            silence.begins();
        }
        match (progress.end, answer.ending) {
            (None, _) => out.write(text).await,
            (Some(End::Died), _) => {
                let Some(error) = pen.death().filter(|_| !backend.spec.aborts()) else {
                    return pending().await;
                };
                out.write(text + &error).await;
                return Ok(());
            }
            (Some(End::Complete), Ending::Finish(_)) => {
                if let Some(hold) = answer.hold {
                    out.write(std::mem::take(&mut text)).await;
                    let over = silence.from.max(progress.at) + hold.seconds;
                    wait_out(over, &mut silence, &out).await;
                    if hold.lost {
                        steps.skip();
                    }
                    steps.say(progress.decoded, &mut pen, &mut text);
                }
                text.push_str(&pen.end(&answer, &progress));
                out.write(text).await;
                return Ok(());
            }
            (Some(End::Complete), Ending::Break) => {
                out.write(text).await;
                return Err(Broken);
            }
            (Some(End::Complete), Ending::Stall) => {
                out.write(text).await;
                return Err(stall(&backend, boot, silence, &out).await);
            }
        }
        progress = loop {
            tokio::select! {
                biased;
                progress = ticket.next() => break progress,
                comment = silence.over() => {
                    out.write(comment.to_owned()).await;
                    silence.begins();
                }
            }
        };
    }
}

/// The same, for an engine whose head leaves with the first token: none if it died before.
pub(crate) async fn from_decode(
    backend: &Arc<Backend>,
    mut accepted: Accepted,
    pen: impl Pen + 'static,
    content_type: &'static str,
) -> Answered {
    let begun = accepted.ticket.until(|progress| progress.phase == Phase::Decode).await;
    if begun.end == Some(End::Died) {
        return pending().await;
    }
    let backend = Arc::clone(backend);
    let stream = body::stream(|out| relay(backend, accepted, pen, out));
    Ok(body::typed(StatusCode::OK, content_type, stream))
}

/// How far an answer is said.
struct Steps<'a> {
    answer: &'a Answer,
    bursts: Bursts,
    sent: usize,
    /// Where the step that is said next ends.
    until: usize,
}

impl<'a> Steps<'a> {
    fn new(backend: &Backend, answer: &'a Answer) -> Self {
        let bursts = Bursts::new(&backend.spec.timing, answer.seed);
        Self { answer, bursts, sent: 0, until: 1 }
    }

    /// Says what is out up to `to` and not yet said, step by step.
    fn say(&mut self, to: usize, pen: &mut impl Pen, text: &mut String) {
        let tokens = &self.answer.tokens;
        while self.sent < to.min(tokens.len()) {
            let end = self.until.min(to);
            for piece in pieces(tokens, self.sent, end, pen.merges()) {
                let last = piece.at + piece.count == tokens.len();
                let finish = match self.answer.ending {
                    Ending::Finish(reason) if last => Some(reason),
                    _ => None,
                };
                text.push_str(&pen.piece(&piece, finish));
            }
            self.sent = end;
            if end == self.until {
                self.until += self.bursts.next();
            }
        }
    }

    /// Says nothing of the rest but its end.
    fn skip(&mut self) {
        let last = self.answer.tokens.len().saturating_sub(1);
        while self.until <= last {
            self.until += self.bursts.next();
        }
        self.sent = self.sent.max(last);
    }
}

/// The tokens from `from` to `to`, those of a kind together if they merge. The end goes with what stands before it.
fn pieces(tokens: &[Token], from: usize, to: usize, merges: bool) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (at, token) in tokens.iter().enumerate().take(to).skip(from) {
        if merges && let Some(before) = pieces.last_mut() {
            match (&mut before.token, token) {
                (Token::Text(text), Token::Text(more))
                | (Token::Reasoning(text), Token::Reasoning(more))
                | (Token::Arguments(text), Token::Arguments(more)) => text.push_str(more),
                (_, Token::End) => {}
                _ => {
                    pieces.push(Piece { at, count: 1, token: token.clone() });
                    continue;
                }
            }
            before.count += 1;
        } else {
            pieces.push(Piece { at, count: 1, token: token.clone() });
        }
    }
    pieces
}

/// Says nothing until then but comments.
async fn wait_out(over: f64, silence: &mut Silence, out: &Writer) {
    let clock = silence.clock;
    loop {
        tokio::select! {
            biased;
            () = clock.sleep_until(over) => return,
            comment = silence.over() => out.write(comment.to_owned()).await,
        }
        silence.begins();
    }
}

/// The time since the last byte, and what to say when it gets long.
struct Silence {
    clock: Clock,
    from: f64,
    comment: Option<(f64, &'static str)>,
}

impl Silence {
    fn begins(&mut self) {
        self.from = self.clock.now();
    }

    /// Waits until a comment is due.
    async fn over(&self) -> &'static str {
        match self.comment {
            Some((seconds, comment)) => {
                self.clock.sleep_until(self.from + seconds).await;
                comment
            }
            None => pending().await,
        }
    }
}

/// Says nothing more (comments flow on) until the process is gone.
async fn stall(backend: &Backend, boot: u64, mut silence: Silence, out: &Writer) -> Broken {
    loop {
        tokio::select! {
            biased;
            () = backend.gone(boot) => return Broken,
            comment = silence.over() => out.write(comment.to_owned()).await,
        }
        silence.begins();
    }
}

/// Waits for the whole answer; `Ok(None)` if the engine died.
pub(crate) async fn whole(backend: &Backend, accepted: &mut Accepted) -> Result<Option<Progress>, Broken> {
    let progress = accepted.ticket.until(|progress| progress.end.is_some()).await;
    match (progress.end, accepted.answer.ending) {
        (Some(End::Died), _) => Ok(None),
        (_, Ending::Break) => Err(Broken),
        (_, Ending::Stall) => {
            backend.gone(accepted.boot).await;
            Err(Broken)
        }
        (_, Ending::Finish(_)) => Ok(Some(progress)),
    }
}
