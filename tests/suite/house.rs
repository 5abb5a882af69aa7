//! The house itself: what its manifests promise, and that its examples make sense.

use std::path::{Path, PathBuf};

use switchback::Config;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_leaves_depend_on_no_runtime_no_http_and_not_on_each_other() {
    for (leaf, never) in [
        ("parsers", &["tokio", "hyper", "http", "axum", "switchback-policies", "tracing"][..]),
        (
            "policies",
            &["tokio", "hyper", "http", "axum", "serde_json", "serde", "switchback-parsers", "tracing"],
        ),
    ] {
        let manifest = std::fs::read_to_string(root().join(leaf).join("Cargo.toml")).expect("a manifest");
        let table: toml::Table = manifest.parse().expect("toml");
        let dependencies =
            table.get("dependencies").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        for name in never {
            assert!(!dependencies.contains_key(*name), "{leaf} depends on {name}");
        }
    }
}

#[test]
fn every_example_configuration_makes_sense() {
    let mut checked = 0;
    for entry in std::fs::read_dir(root().join("examples")).expect("examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).expect("readable");
            // Keys come from the environment of whoever uses the example.
            let text = text
                .replace("api_keys_env = ", "# ")
                .replace("api_key_env = ", "# ")
                .replace("listen = \"0.0.0.0", "listen = \"127.0.0.1");
            Config::parse(&text, &root()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            checked += 1;
        }
    }
    assert!(checked >= 3, "{checked} examples");
}

#[test]
fn all_complaints_of_a_configuration_are_told_at_once_with_the_way_out() {
    let text = r#"
        [server]
        listen = "0.0.0.0:4000"
        allowed_origins = ["example.com/path"]
        [[backend]]
        name = "dual"
        url = "https://127.0.0.1:8010"
        [[backend]]
        name = "single"
        url = "http://127.0.0.1:8020/v1/"
        engine = "vlm"
        format = "qwen-xml"
        window = 1000
        limit = { single = 2000 }
        [[model]]
        name = "m"
        backends = ["singel"]
        [admission]
        large_prefill_wait = "5m"
        [[client]]
        name = "nightly"
        max_running = 0
        token_budget = { tokens = 0, within = "1h" }
        [failover]
        attempts = 0
    "#;
    let error = Config::parse(text, Path::new(".")).expect_err("a bad configuration").to_string();
    insta::assert_snapshot!(error);
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_the_nearest_known_one() {
    let text = "[[backend]]\nname = \"a\"\nurl = \"http://a\"\nwindows = 5\n";
    let error = Config::parse(text, Path::new(".")).expect_err("a bad configuration");
    insta::assert_snapshot!(error.to_string());
}

#[test]
fn a_configuration_without_backends_says_what_to_add() {
    let error = Config::parse("", Path::new(".")).expect_err("no backends").to_string();
    assert!(error.contains("[[backend]]"), "{error}");
}

#[test]
fn every_wrong_key_and_value_is_told_at_once_with_its_line_also_beside_what_makes_no_sense() {
    let text = "\
[servr]
listen = \"127.0.0.1:4000\"

[[backend]]
name = \"a\"
ulr = \"http://127.0.0.1:8010\"
window = \"many\"
limit = { single = 0, accumulatd = 5 }

[[backend]]
name = \"a\"
url = \"http://127.0.0.1:8020\"
engine = \"vlm\"

[[client]]
name = \"family\"
backends = [\"b\"]
sampling = { temperature = \"hot\" }

[failover]
first_token = \"0s\"
stall = \"long\"
";
    let error = Config::parse(text, Path::new(".")).expect_err("a bad configuration").to_string();
    insta::assert_snapshot!(error);
}

#[test]
fn a_loader_that_cannot_load_is_told_at_once_with_the_lines_and_the_way_out() {
    let complaints = |text: &str| Config::parse(text, Path::new(".")).expect_err("a bad one").to_string();
    let model_switch = "\
[loader]
driver = \"model-switch\"
url = \"https://127.0.0.1:8099\"
wait = \"0s\"
[[backend]]
name = \"a\"
url = \"http://127.0.0.1:8010\"
gpus = [0]
[[backend]]
name = \"b\"
url = \"http://127.0.0.1:8020\"
load = { slug = \"b\", start = [\"b\"] }
[[backend]]
name = \"o\"
url = \"http://127.0.0.1:11434\"
engine = \"ollama\"
load = { slug = \"o\" }
";
    let command = "\
[loader]
driver = \"command\"
[[backend]]
name = \"a\"
url = \"http://127.0.0.1:8010\"
load = { start = [], check = [\"true\"] }
[[backend]]
name = \"b\"
url = \"http://127.0.0.1:8010\"
load = { start = [\"b\"] }
[[backend]]
name = \"c\"
url = \"http://127.0.0.1:8030\"
load = { stop = [\"c\"] }
";
    let llama_swap = "\
[loader]
driver = \"llama-swap\"
url = \"http://127.0.0.1:8080\"
[[backend]]
name = \"a\"
url = \"http://127.0.0.1:8010\"
load = { model = \"a\" }
[[backend]]
name = \"b\"
url = \"http://127.0.0.1:8080\"
gpus = [0]
";
    let nobody = "[loader]\ndriver = \"command\"\n[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n";
    let no_loader = "[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\nload = { slug = \"a\" }\n\
                     [[backend]]\nname = \"b\"\nurl = \"http://127.0.0.1:2\"\ngpus = [0]\n";
    let unknown = "[loader]\ndriver = \"docker\"\n";
    let all = [model_switch, command, llama_swap, nobody, no_loader, unknown].map(complaints);
    insta::assert_snapshot!(all.join("\n---\n"));
}

#[test]
fn what_is_no_toml_is_shown_with_its_place() {
    let error = Config::parse("[[backend]]\nname = \n[server\n", Path::new(".")).expect_err("no toml");
    insta::assert_snapshot!(error.to_string());
}

#[test]
fn what_would_surprise_is_a_complaint_entries_for_everybody_ports_that_are_none_presets_misspelt() {
    let text = "\
[[backend]]
preset = \"vllm/DUAL\"
[[backend]]
name = \"a\"
url = \"http://localhost:70000\"
[[backend]]
name = \"b\"
url = \"http://localhost:8000\"
[[client]]
name = \"opencode\"
max_prompt = 0
[[client]]
name = \"family\"
when = { header = { \"x family\" = \"1\" } }
sampling = { top_p = nan }
";
    let error = Config::parse(text, Path::new(".")).expect_err("a bad configuration").to_string();
    insta::assert_snapshot!(error);
}
