//! What Python's Jinja makes of short templates, held against our rendering.
//!
//! `tests/counting/recorded/jinja.jsonl.gz` keeps one request and, for each of some 1,190 templates of a line or two (operators, filters, tests,
//! methods, white space, scopes, escapes), the text that vLLM 0.32.0's own code rendered of it, or that it refused. Whatever is given as an exact
//! count must be that text: a template that renders otherwise must be bounds, or not be counted.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;
use serde_json::Value;
use switchback_parsers::prompt::{CountError, Normalisation, PromptCounter};
use switchback_parsers::request::ChatRequest;

const RECORDED: &[u8] = include_bytes!("../counting/recorded/jinja.jsonl.gz");
const TINY: &str = include_str!("../../parsers/tests/fixtures/tiny/tokenizer.json");

#[test]
fn a_template_is_rendered_as_python_does_or_its_count_is_none() {
    let mut text = String::new();
    GzDecoder::new(RECORDED).read_to_string(&mut text).expect("gzip");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("json"));
    let request = lines.next().expect("a request")["request"].to_string();
    let request = ChatRequest::parse(Bytes::from(request)).expect("a request");
    let folder = std::env::temp_dir().join(format!("switchback-{}-jinja", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tokenizer.json"), TINY).unwrap();
    std::fs::write(
        folder.join("tokenizer_config.json"),
        r#"{"bos_token":"<s>","eos_token":"</s>","pad_token":"<pad>"}"#,
    )
    .unwrap();
    let model = PromptCounter::load(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    let model = model.expect("a model");
    let (mut exact, mut bounded, mut wrong) = (0, 0, Vec::new());
    for line in lines {
        let template = line["template"].as_str().expect("a template");
        let Ok(counter) = model.with_template(template, None) else { continue };
        match counter.count_chat(&request, Normalisation::Vllm) {
            Ok(count) if count.is_exact() => {
                exact += 1;
                let rendered = counter.render_chat(&request, Normalisation::Vllm).unwrap();
                if line["text"].as_str() != Some(&rendered) {
                    wrong.push(format!("{template:?}: {rendered:?} and not {}", line["text"]));
                }
            }
            Ok(_) => bounded += 1,
            Err(CountError::Refused(_) | CountError::Raised(_)) if line["text"].is_string() => {
                wrong.push(format!("{template:?} is refused here"));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {exact} exact:\n{}", wrong.len(), wrong.join("\n"));
    assert!(exact > 500 && bounded > 100, "{exact} exact, {bounded} bounds");
}
