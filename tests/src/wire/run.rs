//! One case from its file to its findings: backends up, proxy up, client played, everything compared.
//!
//! Nothing here may hang: each case has an end by the clock, computed from its scripted waiting.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::adapter;
use super::backend::Stage;
use super::case::Case;
use super::client;
use super::compare::compare;
use super::observed::{Clock, End, Observed, Reply};
use super::proxy::{Subject, Up};

/// Beyond its scripted waiting a case may take so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy is given so long to look at its backends before the first request.
const PROBING: Duration = Duration::from_millis(1000);

/// After the last answer it is watched for so long whether something more is sent upstream.
const AFTERMATH: Duration = Duration::from_millis(50);

/// What came of a case.
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong.
    pub findings: Vec<String>,
    /// Words of its policy that the configuration cannot say.
    pub unmapped: Vec<String>,
}

/// Runs a case against a subject.
pub async fn run(case: &Arc<Case>, subject: &impl Subject) -> Outcome {
    let clock = Clock::start();
    match Stage::raise(case, clock).await {
        Ok(stage) => with_backends(case, &stage, clock, subject).await,
        Err(error) => {
            Outcome { findings: vec![format!("no backend could be raised: {error}")], unmapped: Vec::new() }
        }
    }
}

async fn with_backends(case: &Arc<Case>, stage: &Stage, clock: Clock, subject: &impl Subject) -> Outcome {
    let configuration = adapter::configuration(case, stage.addresses());
    let up = match subject.start(&configuration, stage.addresses()).await {
        Ok(up) => up,
        Err(error) => {
            return Outcome { findings: vec![format!("{error:#}")], unmapped: configuration.unmapped };
        }
    };
    let address = up.address();
    stage.probed(PROBING).await;
    let scripted: u64 = case.answers.iter().map(|answer| answer.waiting_ms()).sum();
    let latest_start = case.requests.iter().filter_map(|request| request.start_at_ms).max().unwrap_or(0);
    let limit = PATIENCE + Duration::from_millis(scripted + latest_start);
    let played = timeout(limit, async {
        let replies = client::play(case, address, clock).await;
        aftermath(case, stage, &replies).await;
        replies
    })
    .await;
    let (attempts, faults) = stage.seen();
    let ended = up.stop().await;
    let mut findings: Vec<String> = ended.into_iter().collect();
    match played {
        Ok(replies) => findings.extend(compare(case, &Observed { replies, attempts, faults })),
        Err(_) => {
            let arrived: Vec<&str> = attempts.iter().map(|attempt| attempt.backend.as_str()).collect();
            findings.push(format!("not over within {} s; requests arrived at {arrived:?}", limit.as_secs()));
            findings.extend(faults);
        }
    }
    Outcome { findings, unmapped: configuration.unmapped }
}

/// Waits for what may still come after the last answer.
async fn aftermath(case: &Case, stage: &Stage, replies: &[Reply]) {
    let hung_up = replies.iter().filter(|reply| reply.end == End::HungUp).map(|reply| reply.ended).min();
    if let (Some(since), Some(within)) = (hung_up, case.expect.upstream.connection_closed_by_proxy_within_ms)
    {
        stage.settled(since, since + Duration::from_millis(within)).await;
    }
    sleep(AFTERMATH).await;
}
