//! vLLM: version, pool, tool parser and load, from `/version` and `/metrics`; how it schedules from `/server_info`.
//!
//! All are pages of the API server itself, which answers them beside a running prefill. Sources: vLLM 0.32
//! (`config/cache.py`, `entrypoints/serve/instrumentator/server_info.py`, `parser/metrics.py`, `entrypoints/launchers/api_server/app_state.py`), and the names of older ones.

use super::ask::{Answer, Ask};
use super::found::{Found, Load, ReasoningField};
use super::list::text;
use super::prometheus::{Sample, samples};

/// Fills in what vLLM tells of itself, and says how busy it is.
pub(super) async fn describe(ask: &mut Ask<'_>, found: &mut Found) -> Option<Load> {
    let page = ask.json("/version").await;
    found.version = page.as_ref().and_then(|page| text(page, "version")).map(str::to_owned);
    let release = found.version.as_deref().and_then(release);
    // Renamed in 0.12, both names until 0.15.
    let renamed = release.is_none_or(|release| release >= (0, 12));
    found.reasoning =
        Some(if renamed { ReasoningField::Reasoning } else { ReasoningField::ReasoningContent });
    found.pool_shared = Some(true);
    scheduler(ask, found).await;
    let metrics = Metrics::ask(ask).await?;
    found.pool = metrics.pool;
    // The counter of a parser's calls is registered at the start if one was named. Listed since 0.24; that it is listed
    // before the first call, so that its absence tells too, was read in 0.32.
    let absence_tells = release.is_some_and(|release| release >= (0, 32));
    found.tool_parser = (metrics.has_parser || absence_tells).then_some(metrics.has_parser);
    Some(metrics.load)
}

/// How it schedules, which it tells with `VLLM_SERVER_DEV_MODE=1` only; others answer 404. The page holds its whole
/// configuration, of which nothing else is kept.
async fn scheduler(ask: &mut Ask<'_>, found: &mut Found) {
    let Some(page) = ask.json("/server_info?config_format=json").await else { return };
    let number = |name: &str| page.pointer("/vllm_config/scheduler_config")?.get(name)?.as_u64();
    found.slots = number("max_num_seqs").filter(|slots| *slots > 0);
    // A step reads no more than this of anything.
    let step = number("max_num_batched_tokens").filter(|tokens| *tokens > 0);
    found.long_prefill = number("long_prefill_token_threshold")
        .map(|tokens| if tokens > 0 { step.map_or(tokens, |step| tokens.min(step)) } else { 0 });
}

/// How busy it is.
pub(super) async fn load(ask: &mut Ask<'_>) -> Option<Load> {
    Some(Metrics::ask(ask).await?.load)
}

/// Major and minor of a version.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut number = || parts.next()?.parse().ok();
    Some((number()?, number()?))
}

/// What a metrics page tells.
#[derive(Debug)]
struct Metrics {
    load: Load,
    pool: Option<u64>,
    has_parser: bool,
}

impl Metrics {
    async fn ask(ask: &mut Ask<'_>) -> Option<Self> {
        let Answer::Said(said) = ask.get("/metrics").await else { return None };
        Self::read(said.text())
    }

    /// `None` if it is no metrics page of vLLM. With several engines (data parallel) numbers are added up.
    fn read(page: &str) -> Option<Self> {
        let (mut running, mut waiting, mut steps) = (None, None, None);
        let (mut kv_usage, mut pool, mut has_parser) = (None, None, false);
        for sample in samples(page) {
            match sample.name {
                "vllm:num_requests_running" => running = Some(running.unwrap_or(0) + sample.count()),
                "vllm:num_requests_waiting" => waiting = Some(waiting.unwrap_or(0) + sample.count()),
                "vllm:iteration_tokens_total_sum" => steps = Some(steps.unwrap_or(0) + sample.count()),
                "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" => {
                    kv_usage = Some(sample.value.max(kv_usage.unwrap_or(0.0))).filter(|usage| *usage <= 1.0);
                }
                "vllm:cache_config_info" => {
                    pool = pool_of(&sample).map(|tokens| tokens + pool.unwrap_or(0)).or(pool);
                }
                name => has_parser |= name == "vllm:tool_call_parser_invocations_total",
            }
        }
        // Tokens count when they are out, memory when a piece of a prompt is begun (captured, 0.32: in a prefill only the second
        // moves). So the two together change with each step.
        let steps = steps.zip(kv_usage).map(|(tokens, memory): (u64, f64)| tokens ^ memory.to_bits());
        let load = Load { running: running?, waiting: waiting?, kv_usage, steps };
        Some(Self { load, pool, has_parser })
    }
}

/// The size of one engine's pool, tokens. Older releases tell only blocks.
fn pool_of(config: &Sample<'_>) -> Option<u64> {
    let label = |name| config.label(name)?.parse::<u64>().ok();
    let blocks = || label("num_gpu_blocks")?.checked_mul(label("block_size")?);
    label("kv_cache_size_tokens").or_else(blocks).filter(|tokens| *tokens > 0)
}
