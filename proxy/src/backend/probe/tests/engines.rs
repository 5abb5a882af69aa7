//! What is found of each engine.

use switchback_parsers::diagnosis::Engine;
use switchback_parsers::needs::Need;
use switchback_policies::facts::BackendState;

use super::super::found::{ChatTemplate, Counting, Found, Load, ReasoningField, TemplateCaps};
use super::{Page, Site, TIMEOUT, ik_llama, llama_cpp, lm_studio, ollama, sglang, tgi, vllm};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn vllm_tells_its_aliases_window_pool_parser_and_load() {
    let backend = vllm().backend("");
    super::super::once(&backend, TIMEOUT).await;
    assert_eq!(backend.state(), BackendState::Up);
    assert_eq!(
        *backend.found.read(),
        Found {
            engine: Some(Engine::Vllm),
            version: Some("0.32.0".into()),
            // The adapter is listed, and its missing window is not the backend's.
            names: names(&["qwen3.6-27b", "qwen3.6-27b-autoround", "sql-lora"]),
            window: Some(262_144),
            pool: Some(622_000),
            pool_shared: Some(true),
            tool_parser: Some(true),
            reasoning: Some(ReasoningField::Reasoning),
            counting: Some(Counting::Tokenize),
            ..Found::default()
        }
    );
    assert_eq!(
        *backend.load.read(),
        Some(Load { running: 2, waiting: 1, kv_usage: Some(0.4375), steps: None })
    );
}

#[tokio::test(start_paused = true)]
async fn a_vllm_in_development_mode_tells_how_it_schedules() {
    let site = vllm();
    let page = |threshold: u64| {
        let scheduler = serde_json::json!({
            "max_num_seqs": 4, "max_num_batched_tokens": 8192, "long_prefill_token_threshold": threshold
        });
        serde_json::json!({ "vllm_config": { "scheduler_config": scheduler } }).to_string()
    };
    for (threshold, piece) in [(2048, Some(2048)), (100_000, Some(8192)), (0, None)] {
        site.page("/server_info?config_format=json", Page::Answer(200, "", page(threshold)));
        let backend = site.backend("preset = \"vllm/dual\"");
        super::super::once(&backend, TIMEOUT).await;
        let found = backend.found();
        assert_eq!((found.slots, found.long_prefill), (Some(4), Some(piece.unwrap_or(0))));
        assert_eq!(
            (backend.facts().slots, backend.facts().chunk),
            (Some(4), piece),
            "what it says wins over a preset"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_vllm_without_a_tool_parser_is_known_by_the_counter_that_it_lacks_where_that_is_certain() {
    let site = vllm();
    let page = include_str!("recorded/vllm-metrics.txt");
    let without: String =
        page.lines().filter(|line| !line.contains("parser")).map(|line| format!("{line}\n")).collect();
    site.page("/metrics", Page::Answer(200, "", without));
    assert_eq!(site.found("").await.1.tool_parser, Some(false));
    site.page("/version", Page::Answer(200, "", r#"{"version":"0.20.1"}"#.into()));
    assert_eq!(site.found("").await.1.tool_parser, None);
}

#[tokio::test(start_paused = true)]
async fn a_prefill_that_only_takes_memory_is_a_step_of_vllm() {
    let site = vllm();
    let page = |memory: &str| {
        format!(
            "vllm:num_requests_running 1.0\nvllm:num_requests_waiting 0.0\nvllm:iteration_tokens_total_sum 6687.0\n\
             vllm:kv_cache_usage_perc {memory}\n"
        )
    };
    let mut steps = Vec::new();
    // As captured in one prefill of vLLM 0.32: no token has come out.
    for memory in ["6.103701895199265e-05", "0.00018311105685597795", "0.00018311105685597795"] {
        site.page("/metrics", Page::Answer(200, "", page(memory)));
        let backend = site.backend("");
        super::super::once(&backend, TIMEOUT).await;
        let load = *backend.load.read();
        steps.push(load.and_then(|load| load.steps).expect("it tells"));
    }
    assert!(steps[0] != steps[1] && steps[1] == steps[2], "{steps:?}");
}

#[tokio::test(start_paused = true)]
async fn an_old_vllm_is_read_by_its_old_names() {
    let site = vllm();
    site.page("/version", Page::Answer(200, "", r#"{"version":"0.9.2"}"#.into()));
    let page = "vllm:num_requests_running{model_name=\"m\"} 1.0\nvllm:num_requests_waiting{model_name=\"m\"} 0.0\n\
                vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.25\nvllm:iteration_tokens_total_sum{model_name=\"m\"} 4096.0\n\
                vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1.0\n";
    site.page("/metrics", Page::Answer(200, "", page.into()));
    let backend = site.backend("");
    super::super::once(&backend, TIMEOUT).await;
    let found = backend.found.read().clone();
    assert_eq!((found.pool, found.reasoning), (Some(16_000), Some(ReasoningField::ReasoningContent)));
    assert_eq!(
        *backend.load.read(),
        Some(Load { running: 1, waiting: 0, kv_usage: Some(0.25), steps: Some(4096 ^ 0.25_f64.to_bits()) })
    );
}

#[tokio::test(start_paused = true)]
async fn llama_cpp_tells_the_window_of_a_slot_and_what_its_template_can() {
    let (state, found) = llama_cpp().found("").await;
    assert_eq!(state, BackendState::Up);
    let template =
        TemplateCaps { tools: false, tool_calls: false, parallel_tool_calls: false, system_role: true };
    let source = found.chat_template.as_ref().map(|template| template.source.clone()).unwrap_or_default();
    assert!(source.starts_with("{% for message in messages %}"), "{source}");
    assert_eq!(
        found,
        Found {
            engine: Some(Engine::LlamaCpp),
            version: Some("b0-unknown".into()),
            names: names(&["small"]),
            window: Some(1024),
            slots: Some(2),
            pool: Some(1024),
            tool_parser: Some(false),
            template: Some(template),
            chat_template: Some(ChatTemplate { source, with_tools: None }),
            reasoning: Some(ReasoningField::ReasoningContent),
            images: Some(false),
            counting: Some(Counting::InputTokens),
            ..Found::default()
        }
    );
}

#[tokio::test(start_paused = true)]
async fn an_older_llama_cpp_tells_its_window_in_its_properties_and_never_by_its_training() {
    let site = llama_cpp();
    let list = r#"{"data":[{"id":"m.gguf","owned_by":"llamacpp","meta":{"n_ctx_train":8192}}]}"#;
    site.page("/v1/models", Page::Answer(200, "", list.into()));
    assert_eq!(site.found("").await.1.window, Some(1024));
    site.page("/props", Page::Answer(401, "", String::new()));
    let (state, found) = site.found("").await;
    assert_eq!((state, found.window), (BackendState::Up, None));
}

#[tokio::test(start_paused = true)]
async fn a_router_of_llama_cpp_puts_what_is_loaded_first() {
    let site = llama_cpp();
    let list = r#"{"data":[{"id":"a","aliases":["a2"],"owned_by":"llamacpp","status":{"value":"unloaded"}},
        {"id":"b","owned_by":"llamacpp","status":{"value":"loaded"},"meta":{"n_ctx":4096}}]}"#;
    site.page("/v1/models", Page::Answer(200, "", list.into()));
    let props =
        r#"{"role":"router","default_generation_settings":{"params":null,"n_ctx":0},"build_info":"b11434"}"#;
    site.page("/props", Page::Answer(200, "", props.into()));
    let found = site.found("").await.1;
    assert_eq!((found.names, found.window, found.slots), (names(&["b", "a", "a2"]), Some(4096), None));
}

#[tokio::test(start_paused = true)]
async fn an_ik_llamas_total_is_divided_among_its_slots() {
    let (state, found) = ik_llama().found("").await;
    assert_eq!((state, found.engine), (BackendState::Up, Some(Engine::IkLlama)));
    assert_eq!(
        (found.window, found.slots, found.pool, found.pool_shared),
        (Some(32_768), Some(4), Some(131_072), Some(false))
    );
    assert_eq!((found.window_at_most, found.counting), (None, Some(Counting::CountTokens)));
}

#[tokio::test(start_paused = true)]
async fn without_its_slots_an_ik_llamas_total_is_only_a_bound() {
    let site = ik_llama();
    site.page("/props", Page::Answer(404, "", String::new()));
    let found = site.found("").await.1;
    assert_eq!((found.window, found.window_at_most), (None, Some(131_072)));
}

#[tokio::test(start_paused = true)]
async fn an_ik_llama_that_lists_its_model_while_it_loads_is_not_up() {
    let site = ik_llama();
    let loading = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
    site.page("/health", Page::Answer(503, "", loading.into()));
    assert_eq!(site.found("").await, (BackendState::Loading, Found::default()));
}

#[tokio::test(start_paused = true)]
async fn an_ik_llama_whose_health_waits_behind_a_prefill_is_up_and_known() {
    let site = ik_llama();
    site.page("/health", Page::Hangs);
    let (state, found) = site.found("").await;
    assert_eq!((state, found.window), (BackendState::Up, Some(32_768)));
}

#[tokio::test(start_paused = true)]
async fn sglang_tells_its_parser_and_pool_and_is_never_asked_to_compute() {
    let site = sglang();
    let (state, found) = site.found("").await;
    assert_eq!(
        (state, found),
        (
            BackendState::Up,
            Found {
                engine: Some(Engine::Sglang),
                version: Some("0.5.23".into()),
                names: names(&["qwen3-32b"]),
                window: Some(40_960),
                slots: Some(64),
                pool: Some(116_256),
                pool_shared: Some(true),
                tool_parser: Some(true),
                family: Some("hermes"),
                reasoning: Some(ReasoningField::ReasoningContent),
                images: Some(false),
                counting: Some(Counting::Tokenize),
                ..Found::default()
            }
        )
    );
    assert_eq!(site.asked(), ["GET /v1/models", "GET /model_info", "GET /server_info", "POST /tokenize"]);
}

#[tokio::test(start_paused = true)]
async fn an_sglang_whose_scheduler_is_busy_is_up_with_what_it_could_tell() {
    let site = sglang();
    site.page("/server_info", Page::Hangs);
    let (state, found) = site.found("").await;
    assert_eq!(
        (state, found.window, found.images, found.pool),
        (BackendState::Up, Some(40_960), Some(false), None)
    );
}

#[tokio::test(start_paused = true)]
async fn ollamas_window_is_that_of_the_loaded_model_and_its_maximum_only_a_bound() {
    let (state, found) = ollama().found("").await;
    assert_eq!(
        (state, found),
        (
            BackendState::Up,
            Found {
                engine: Some(Engine::Ollama),
                version: Some("0.12.6".into()),
                names: names(&["qwen3:8b", "nomic-embed-text:latest"]),
                loaded: Some(1),
                window: Some(8192),
                window_at_most: Some(40_960),
                tool_parser: Some(true),
                reasoning: Some(ReasoningField::Reasoning),
                images: Some(false),
                ..Found::default()
            }
        )
    );
    let empty = ollama();
    empty.page("/api/ps", Page::Answer(200, "", r#"{"models":[]}"#.into()));
    let found = empty.found("model = \"qwen3:8b\"\n").await.1;
    assert_eq!((found.window, found.window_at_most), (None, Some(40_960)));
}

#[tokio::test(start_paused = true)]
async fn lm_studios_window_is_that_of_the_loaded_instance() {
    let found = lm_studio().found("").await.1;
    assert_eq!(
        found,
        Found {
            engine: Some(Engine::LmStudio),
            // Loaded first, and no model that only embeds.
            names: names(&["qwen3.6-35b-a3b", "gemma-4-12b"]),
            loaded: Some(1),
            window: Some(65_536),
            window_at_most: Some(262_144),
            slots: Some(4),
            images: Some(false),
            ..Found::default()
        }
    );
    let other = lm_studio().found("model = \"gemma-4-12b\"\n").await.1;
    assert_eq!((other.window, other.window_at_most, other.images), (None, Some(131_072), Some(true)));
}

#[tokio::test(start_paused = true)]
async fn an_older_lm_studio_is_read_by_its_older_page() {
    let site = lm_studio();
    site.page(
        "/api/v1/models",
        Page::Answer(200, "", r#"{"error":"Unexpected endpoint or method."}"#.into()),
    );
    site.page("/api/v0/models", Page::Answer(200, "", include_str!("recorded/lm-studio-api-v0.json").into()));
    let list = r#"{"data":[{"id":"qwen2-vl-7b-instruct"},{"id":"text-embedding-nomic"}]}"#;
    site.page("/v1/models", Page::Answer(200, "", list.into()));
    let found = site.found("").await.1;
    assert_eq!(
        (found.engine, found.window, found.images),
        (Some(Engine::LmStudio), Some(16_384), Some(true))
    );
    assert_eq!(found.names, ["qwen2-vl-7b-instruct"]);
}

#[tokio::test(start_paused = true)]
async fn tgi_tells_its_window_and_a_smaller_limit_of_prompts() {
    let site = tgi();
    let found = site.found("").await.1;
    assert_eq!((found.engine, found.version.as_deref()), (Some(Engine::Tgi), Some("3.3.6")));
    assert_eq!((found.window, found.prompt_limit), (Some(32_768), Some(30_000)));
    assert_eq!(found.counting, Some(Counting::ChatTokenize));
    assert!(!site.asked().contains(&"GET /health".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_server_that_lists_models_is_other_unless_the_operator_names_its_engine() {
    let site = Site::new(&[
        ("/v1/models", r#"{"data":[{"id":"gpt-oss","owned_by":"openai"}]}"#),
        ("/props", include_str!("recorded/llama-props.json")),
    ]);
    let (state, found) = site.found("").await;
    assert_eq!((state, found.engine, found.window), (BackendState::Up, Some(Engine::Other), None));
    assert_eq!(found.names, ["gpt-oss"]);
    let found = site.found("engine = \"llama-cpp\"\n").await.1;
    assert_eq!((found.window, found.slots), (Some(1024), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn what_a_template_cannot_read_is_found_by_letting_the_engine_render_it() {
    let refused: &[&str] = &["\"developer\"", "},{\"role\":\"system\"", "call_0123456789"];
    let site = vllm();
    site.page("/tokenize", Page::Refuses(refused));
    let (_, found) = site.found("").await;
    assert_eq!(found.needs, Some(vec![Need::NineCharacterIds, Need::NoDeveloper, Need::LateSystemAsUser]));
    let site = llama_cpp();
    site.page("/apply-template", Page::Refuses(&[]));
    assert_eq!(site.found("").await.1.needs, Some(vec![]));
    site.page("/apply-template", Page::Refuses(&["role"]));
    assert_eq!(site.found("").await.1.needs, None);
    assert_eq!(vllm().found("").await.1.needs, None);
    let site = vllm();
    site.page("/tokenize", Page::Refuses(refused));
    let backend = site.backend("needs = [\"user-turn\"]");
    super::super::once(&backend, TIMEOUT).await;
    assert_eq!(backend.needs(), [Need::UserTurn], "what the operator says wins");
}
