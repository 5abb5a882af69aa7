//! What llama.cpp shows of itself: model card, properties, slots, metrics.
//!
//! `n_ctx` is the context of one slot. `/slots` shows live prefill progress, which vLLM has nowhere. It must only
//! read.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::say;
use crate::{
    Engine, Spec,
    backend::Backend,
    wire::{Body, CREATED, body, milliseconds},
};

/// A chat template in the manner of ChatML: what the rig counts is near to it.
const TEMPLATE: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] \
                        + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ \
                        '<|im_start|>assistant\\n' }}{% endif %}";

pub(super) fn models(spec: &Spec) -> Value {
    let mut aliases = vec![&spec.model];
    aliases.extend(&spec.aliases);
    let input: &[&str] = if spec.vision { &["text", "image"] } else { &["text"] };
    let mut models = json!({
        "models": [{
            "name": spec.model, "model": spec.model, "modified_at": "", "size": "", "digest": "", "type": "model",
            "description": "", "tags": [""], "capabilities": ["completion"], "parameters": "",
            "details": {
                "parent_model": "", "format": "gguf", "family": "", "families": [""], "parameter_size": "",
                "quantization_level": "",
            },
        }],
        "object": "list",
        "data": [{
            "id": spec.model, "aliases": aliases, "tags": [], "object": "model",
            "architecture": {"input_modalities": input, "output_modalities": ["text"]}, "created": CREATED,
            "owned_by": "llamacpp",
            "meta": {
                "vocab_type": 2, "n_vocab": 151_643, "n_ctx": spec.window, "n_ctx_train": spec.window.max(262_144),
                "n_embd": 5_120, "n_params": 27_000_000_000_u64, "size": 16_000_000_000_u64, "ftype": "Q4_K - Medium",
            },
        }],
    });
    if spec.engine == Engine::IkLlama {
        // of all slots together
        let total = spec.window.saturating_mul(spec.slots);
        models["data"][0]["max_model_len"] = json!(total);
        models["models"] = json!([{
            "slug": spec.model, "context_window": total, "max_context_window": total,
            "auto_compact_token_limit": total / 10 * 9,
        }]);
    }
    models
}

/// ik_llama's health.
pub(super) fn ik_health(backend: &Backend) -> Value {
    let processing = backend.gpu.load().running;
    let idle = backend.spec.slots.saturating_sub(processing);
    let status = if idle > 0 { "ok" } else { "no slot available" };
    json!({"status": status, "slots_idle": idle, "slots_processing": processing})
}

pub(super) fn props(spec: &Spec) -> Value {
    json!({
        "default_generation_settings": {
            "params": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "max_tokens": -1, "n_predict": -1,
                "stream": false, "timings_per_token": false},
            "n_ctx": spec.window,
        },
        "total_slots": spec.slots, "model_alias": spec.model, "model_ftype": "Q4_K - Medium",
        "model_path": format!("/models/{}.gguf", spec.model),
        "modalities": {"vision": spec.vision, "video": false, "audio": false},
        "endpoint_slots": true, "endpoint_props": true, "endpoint_metrics": true, "ui": false, "ui_settings": {},
        "chat_template": TEMPLATE,
        "chat_template_caps": {
            "supports_object_arguments": spec.tool_parser, "supports_parallel_tool_calls": false,
            "supports_preserve_reasoning": false, "supports_reasoning_effort": false, "supports_string_content": true,
            "supports_system_role": true, "supports_tool_calls": spec.tool_parser, "supports_tools": spec.tool_parser,
            "supports_typed_content": false,
        },
        "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "build_info": spec.version(), "is_sleeping": false,
        "cors_proxy_enabled": false,
    })
}

pub(super) fn slots(backend: &Backend, query: Option<&str>) -> Response<Body> {
    let (spec, running) = (&backend.spec, backend.gpu.slots());
    let asks = query.is_some_and(|query| query.split('&').any(|pair| pair == "fail_on_no_slot=1"));
    if asks && running.len() >= spec.slots {
        let error = json!({"code": 503, "message": "no slot available", "type": "unavailable_error"});
        return say(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": error}));
    }
    let slots: Vec<Value> = (0..spec.slots)
        .map(|id| {
            let mut slot =
                json!({"id": id, "n_ctx": spec.window, "speculative": false, "is_processing": false});
            if let Some(job) = running.iter().find(|job| job.slot == id) {
                slot["is_processing"] = json!(true);
                slot["id_task"] = json!(job.id);
                slot["n_prompt_tokens"] = json!(job.prompt);
                slot["n_prompt_tokens_processed"] = json!(job.prefilled());
                slot["n_prompt_tokens_cache"] = json!(job.cached);
                slot["next_token"] = json!([{
                    "has_next_token": true, "n_remain": job.output - job.decoded, "n_decoded": job.decoded,
                }]);
            }
            slot
        })
        .collect();
    say(StatusCode::OK, &Value::from(slots))
}

pub(super) fn metrics(backend: &Backend) -> Response<Body> {
    let (load, totals) = (backend.gpu.load(), backend.gpu.totals());
    let rate = |amount: usize, seconds: f64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let seconds = |seconds: f64| milliseconds(seconds) / 1e3;
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: f64| {
        text.push_str(&format!(
            "# HELP llamacpp:{name} {help}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}\n"
        ));
    };
    let count = |number: usize| number as f64;
    let prompts = "Number of prompt tokens processed, excluding cached tokens";
    add("prompt_tokens_total", "counter", prompts, count(totals.prompt_tokens - totals.cached_tokens));
    let reused = "Number of prompt tokens reused from the cache";
    add("prompt_tokens_cached_total", "counter", reused, count(totals.cached_tokens));
    let spent = "Total time spent processing prompts";
    add("prompt_seconds_total", "counter", spent, seconds(totals.prefill_seconds));
    add(
        "tokens_predicted_total",
        "counter",
        "Number of generation tokens processed",
        count(totals.output_tokens),
    );
    let spent = "Total time spent generating tokens";
    add("tokens_predicted_seconds_total", "counter", spent, seconds(totals.decode_seconds));
    add("n_decode_total", "counter", "Total number of llama_decode() calls", count(totals.steps));
    let longest = "Largest observed sequence length (prompt + generation)";
    add("n_tokens_max", "counter", longest, count(totals.longest));
    let prompt_rate = rate(totals.prompt_tokens - totals.cached_tokens, totals.prefill_seconds);
    add("prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s", prompt_rate);
    let output_rate = rate(totals.output_tokens, totals.decode_seconds);
    add("predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s", output_rate);
    add("requests_processing", "gauge", "Number of requests processing", count(load.running));
    add("requests_deferred", "gauge", "Number of requests deferred", count(load.waiting));
    let busy = "Average number of busy slots per llama_decode() call";
    add("n_busy_slots_per_decode", "gauge", busy, rate(totals.busy_slots, count(totals.steps)));
    if backend.spec.engine == Engine::IkLlama {
        let (resident, whole) =
            (count(load.resident_tokens), count(backend.spec.window) * count(backend.spec.slots));
        add("kv_cache_usage_ratio", "gauge", "KV-cache usage. 1 means 100 percent usage", resident / whole);
        add("kv_cache_tokens", "gauge", "KV-cache tokens", resident);
    }
    body::whole(StatusCode::OK, "text/plain; version=0.0.4", text)
}
