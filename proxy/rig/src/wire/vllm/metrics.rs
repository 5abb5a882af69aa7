//! vLLM's `/metrics`: the part that routers read, in Prometheus text.
//!
//! Names and labels as captured from 0.32.0. Counters restart with the process. It must only read.

use http::{Response, StatusCode};

use crate::{
    backend::Backend,
    wire::{Body, body},
};

pub(super) fn answer(backend: &Backend) -> Response<Body> {
    let (spec, load, totals) = (&backend.spec, backend.gpu.load(), backend.gpu.totals());
    let pool = spec.kv_pool();
    let labels = format!("engine=\"0\",model_name=\"{}\"", spec.model);
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, rows: &[(&str, f64)]| {
        text.push_str(&format!("# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}\n"));
        for (more, value) in rows {
            text.push_str(&format!("vllm:{name}{{{labels}{more}}} {value:?}\n"));
        }
    };
    let count = |number: usize| number as f64;
    add(
        "num_requests_running",
        "gauge",
        "Number of requests in model execution batches.",
        &[("", count(load.running))],
    );
    add(
        "num_requests_waiting",
        "gauge",
        "Number of requests waiting to be processed.",
        &[("", count(load.waiting))],
    );
    add(
        "num_requests_waiting_by_reason",
        "gauge",
        "Number of waiting requests by reason.",
        &[(",reason=\"capacity\"", count(load.waiting)), (",reason=\"deferred\"", 0.0)],
    );
    let old = spec.is_old_vllm();
    add(
        if old { "gpu_cache_usage_perc" } else { "kv_cache_usage_perc" },
        "gauge",
        "KV-cache usage. 1 means 100 percent usage.",
        &[("", (count(load.resident_tokens) / count(pool)).min(1.0))],
    );
    let config = format!(
        ",block_size=\"{}\",enable_prefix_caching=\"{}\",kv_cache_max_concurrency=\"{:.2}\",\
         kv_cache_size_tokens=\"{pool}\"",
        spec.block_tokens,
        if spec.prefix_cache.is_some() { "True" } else { "False" },
        count(pool) / count(spec.window)
    );
    add("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", &[(&config, 1.0)]);
    if spec.tool_parser {
        // Registered only with a parser named (vLLM 0.32).
        add(
            "tool_call_parser_invocations_total",
            "counter",
            "Number of tool parser invocations.",
            &[("", 0.0)],
        );
    }
    add(
        "num_preemptions_total",
        "counter",
        "Cumulative number of preemptions.",
        &[("", count(totals.preemptions))],
    );
    add(
        if old { "gpu_prefix_cache_queries_total" } else { "prefix_cache_queries_total" },
        "counter",
        "Prefix cache queries, in tokens.",
        &[("", count(totals.prompt_tokens))],
    );
    add(
        if old { "gpu_prefix_cache_hits_total" } else { "prefix_cache_hits_total" },
        "counter",
        "Prefix cache hits, in tokens.",
        &[("", count(totals.cached_tokens))],
    );
    add(
        "prompt_tokens_total",
        "counter",
        "Number of prefill tokens processed.",
        &[("", count(totals.prompt_tokens))],
    );
    add(
        "generation_tokens_total",
        "counter",
        "Number of generation tokens processed.",
        &[("", count(totals.output_tokens))],
    );
    add(
        "request_success_total",
        "counter",
        "Count of successfully processed requests.",
        &[
            (",finished_reason=\"stop\"", count(totals.stopped)),
            (",finished_reason=\"length\"", count(totals.cut_by_length)),
            (",finished_reason=\"abort\"", 0.0),
            (",finished_reason=\"error\"", 0.0),
        ],
    );
    body::whole(StatusCode::OK, "text/plain; version=1.0.0; charset=utf-8", text)
}
