//! The relay of one streamed answer: waits for the engine's progress and has a pen write what is new.
//!
//! The tokens of one step leave in one frame, as the real servers flush them. It must never wait for anything but
//! the engine, the comment clock and the client.

use std::{future::pending, sync::Arc};

use super::{Accepted, Broken, body::Writer};
use crate::{
    Clock,
    answer::{Answer, Ending, Token},
    backend::Backend,
    gpu::{End, Progress},
};

/// Writes an engine's events, with their frames around them.
pub(crate) trait Pen: Send {
    /// Prefill went on.
    fn prefill(&mut self, progress: &Progress) -> String;
    /// Token number `at` of the answer is out; it is the last one if `finish` says why.
    fn token(
        &mut self,
        at: usize,
        token: &Token,
        finish: Option<&'static str>,
        progress: &Progress,
    ) -> String;
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
    let finish_at = match answer.ending {
        Ending::Finish(reason) => answer.tokens.len().checked_sub(1).map(|last| (last, reason)),
        Ending::Stall | Ending::Break => None,
    };
    let mut sent = 0;
    let mut progress = ticket.now();
    loop {
        let mut text = pen.prefill(&progress);
        for (at, token) in answer.tokens.iter().enumerate().take(progress.decoded).skip(sent) {
            let finish = finish_at.and_then(|(last, reason)| (last == at).then_some(reason));
            text.push_str(&pen.token(at, token, finish, &progress));
        }
        sent = progress.decoded;
        if !text.is_empty() {
            silence.begins();
        }
        match (progress.end, answer.ending) {
            (None, _) => out.write(text).await,
            (Some(End::Died), _) => {
                let Some(error) = pen.death() else { return pending().await };
                out.write(text + &error).await;
                return Ok(());
            }
            (Some(End::Complete), Ending::Finish(_)) => {
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
                progress = ticket.next() => break progress,
                comment = silence.over() => {
                    out.write(comment.to_owned()).await;
                    silence.begins();
                }
            }
        };
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
