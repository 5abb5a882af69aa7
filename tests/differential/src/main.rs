//! The corpus of tool calls, read by this parser and by those of other engines: a table in Markdown on standard output.
//!
//! Each peer gets the parser that an operator who knows the model would choose; ours always has to find out itself. The peers see
//! the whole text, which is their strong side. Their reasoning is split by Dynamo's splitters, since `tool-parser` has none. What
//! a peer gets right and we do not is listed case by case: the list is to be empty, or argued in `CASES.md`.

use std::collections::BTreeMap;

use dynamo_parsers::reasoning::{ReasoningParser as _, ReasoningParserType};
use dynamo_parsers::tool_calling::ToolDefinition;
use dynamo_parsers::tool_calling::harmony::harmony_parser::get_harmony_encoding;
use dynamo_parsers::tool_calling::parsers::detect_and_parse_tool_call_with_recovery;
use openai_protocol::common::Tool;
use switchback_parsers::event::{Folded, FoldedCall};
use tool_parser::ParserFactory;

#[path = "../../../parsers/tests/tool_call/corpus.rs"]
#[expect(dead_code, reason = "the parser's own tests use more of it")]
mod corpus;

use corpus::{Case, cases};

/// The corpus's format; the parser of Dynamo, that of `tool-parser`, and Dynamo's splitter of reasoning.
const OPERATOR: &[(&str, Option<&str>, Option<&str>, &str)] = &[
    ("apertus", None, None, "qwen3"),
    ("bare_json", Some("llama3_json"), Some("json"), "qwen3"),
    ("command_a", None, Some("cohere"), "qwen3"),
    ("command_r", None, None, "qwen3"),
    ("deepseek_r1", Some("deepseek_v3"), Some("deepseek"), "deepseek_r1"),
    ("deepseek_v3", Some("deepseek_v3"), Some("deepseek"), "deepseek_r1"),
    ("deepseek_v31", Some("deepseek_v3_1"), Some("deepseek31"), "deepseek_r1"),
    ("deepseek_v32", Some("deepseek_v3_2"), Some("deepseek32"), "deepseek_v4"),
    ("deepseek_v4", Some("deepseek_v4"), Some("deepseek_v4"), "deepseek_v4"),
    ("deepseek_v41", None, Some("deepseek_v41"), "deepseek_v4"),
    ("fenced_json", Some("hermes"), Some("json"), "qwen3"),
    ("functiongemma", None, None, "qwen3"),
    ("functionary_v32", None, None, "qwen3"),
    ("gemma3", None, None, "qwen3"),
    ("gemma4", Some("gemma4"), Some("gemma4"), "gemma4"),
    ("gigachat3", None, None, "qwen3"),
    ("glm45", Some("glm47"), Some("glm45_moe"), "glm45"),
    ("glm47", Some("glm47"), Some("glm47_moe"), "glm45"),
    ("harmony", Some("harmony"), None, "gpt_oss"),
    ("hermes", Some("hermes"), Some("qwen"), "qwen3"),
    ("hunyuan_v3", None, None, "qwen3"),
    ("inkling", Some("inkling"), Some("inkling"), "inkling"),
    ("jamba", Some("jamba"), None, "qwen3"),
    ("kimi_k2", Some("kimi_k2"), Some("kimik2"), "kimi_k25"),
    ("kimi_k3", Some("kimi_k3"), Some("kimi_k3"), "kimi_k3"),
    ("llama3_json", Some("llama3_json"), Some("llama"), "qwen3"),
    ("llama4", Some("pythonic"), Some("pythonic"), "qwen3"),
    ("minimax_m2", Some("minimax_m2"), Some("minimax_m2"), "minimax_m2"),
    ("minimax_m3", Some("minimax_m3"), Some("minimax_m3"), "minimax_m3"),
    ("mistral", Some("mistral"), Some("mistral"), "mistral"),
    ("nemotron", Some("nemotron_deci"), None, "nemotron_deci"),
    ("phi4", Some("phi4"), None, "qwen3"),
    ("pythonic", Some("pythonic"), Some("pythonic"), "qwen3"),
    ("qwen_xml", Some("qwen3_coder"), Some("qwen_xml"), "qwen3"),
    ("step3", None, Some("step3"), "step3"),
    ("xlam", None, Some("json"), "qwen3"),
];

/// What a text is written in, by its markers.
const MARKED: &[(&str, &str)] = &[
    ("<function", "qwen_xml"),
    ("<arg_key>", "glm47"),
    ("<|tool_call_begin|>", "kimi_k2"),
    ("DSML", "deepseek_v4"),
    ("tool▁call", "deepseek_v31"),
    ("[TOOL_CALLS]", "mistral"),
    ("<minimax:", "minimax_m2"),
    ("<|channel|>", "harmony"),
    ("<|tool_call>", "gemma4"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passes,
    Fails,
    /// The peer has no parser for the format.
    Unsupported,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut rows: BTreeMap<String, [[usize; 3]; 2]> = BTreeMap::new();
    let mut sizes: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let mut unsupported = [0; 2];
    let mut behind = Vec::new();
    for case in cases() {
        let ours = outcome(&case, &case.run([case.text().as_bytes()]));
        let (dynamo, smg) = (dynamo(&case).await, smg(&case).await);
        let format = case.line["format"].as_str().unwrap_or_default().to_owned();
        let level = usize::from(!case.must());
        sizes.entry(format.clone()).or_default()[level] += 1;
        for (engine, passed) in [ours, dynamo, smg].into_iter().enumerate() {
            rows.entry(format.clone()).or_default()[level][engine] += usize::from(passed == Outcome::Passes);
        }
        for (peer, passed) in [dynamo, smg].into_iter().enumerate() {
            unsupported[peer] += usize::from(passed == Outcome::Unsupported);
        }
        if ours != Outcome::Passes && [dynamo, smg].contains(&Outcome::Passes) {
            behind.push(case.id().to_owned());
        }
    }
    println!(
        "| format | cases, must + should | switchback | dynamo-parsers | tool-parser |\n|---|---|---|---|---|"
    );
    let mut all = ([0; 2], [[0; 3]; 2]);
    for (format, row) in &rows {
        let size = sizes[format];
        line(format, size, row);
        for level in 0..2 {
            all.0[level] += size[level];
            for engine in 0..3 {
                all.1[level][engine] += row[level][engine];
            }
        }
    }
    line("**all**", all.0, &all.1);
    if get_harmony_encoding().await.is_err() {
        println!("\nDynamo's harmony lines could not run: its parser needs a vocabulary, which was not there.");
    }
    println!(
        "\nWithout a parser for the format: dynamo-parsers {}, tool-parser {} cases.",
        unsupported[0], unsupported[1]
    );
    let behind = if behind.is_empty() { "none".to_owned() } else { behind.join(", ") };
    println!("\nCases that a peer gets right and Switchback does not: {behind}.");
}

fn line(format: &str, size: [usize; 2], row: &[[usize; 3]; 2]) {
    let engines: Vec<_> = (0..3).map(|engine| format!("{} + {}", row[0][engine], row[1][engine])).collect();
    println!("| {format} | {} + {} | {} |", size[0], size[1], engines.join(" | "));
}

fn outcome(case: &Case, answer: &Folded) -> Outcome {
    if case.complaints(answer).is_empty() { Outcome::Passes } else { Outcome::Fails }
}

fn parsers(case: &Case) -> (Option<&'static str>, Option<&'static str>, &'static str) {
    let written = case.line["format"].as_str().unwrap_or_default();
    // Lines that are about something else than a format: what they are written in.
    let marked =
        MARKED.iter().find(|(marker, _)| case.text().contains(marker)).map_or("hermes", |(_, format)| format);
    let other = matches!(
        written,
        "truncated" | "reasoning" | "prose" | "cline_xml" | "no_tools" | "tool_choice_none"
    );
    let format = if other { marked } else { written };
    let row = OPERATOR.iter().find(|(known, ..)| *known == format);
    row.map_or((None, None, "qwen3"), |(_, dynamo, smg, reasoning)| (*dynamo, *smg, *reasoning))
}

/// Reasoning and the rest, as Dynamo splits them, where there is anything to split.
fn split(case: &Case, splitter: &str) -> (String, String) {
    let upstream = case.request("upstream_reasoning").as_str().unwrap_or_default();
    let open = case.request("thinking_open") == true;
    let tags = ["think>", "THINK]", "think▷", "thought", "START_THINKING", "analysis", "content_thinking"];
    if !open && !tags.iter().any(|tag| case.text().contains(tag)) {
        return (upstream.to_owned(), case.text().to_owned());
    }
    let mut parser = ReasoningParserType::get_reasoning_parser_from_name(splitter);
    parser.set_in_reasoning(open);
    let parts = parser.detect_and_parse_reasoning(case.text(), &[]);
    (upstream.to_owned() + &parts.reasoning_text, parts.normal_text)
}

/// What the parser of calls may get: the text behind the reasoning; the whole text.
fn orders(case: &Case, splitter: &str) -> [(String, String); 2] {
    let (reasoning, text) = split(case, splitter);
    [(reasoning.clone(), text), (reasoning, case.text().to_owned())]
}

fn folded(case: &Case, reasoning: String, content: String, calls: Vec<(String, String)>) -> Folded {
    let finish = case.request("upstream_finish").as_str().unwrap_or("stop");
    let finish_reason = if calls.is_empty() || finish == "length" { finish } else { "tool_calls" }.to_owned();
    let call = |(name, arguments)| FoldedCall { id: None, name, arguments, closed: true };
    let calls = calls.into_iter().map(call).collect();
    Folded { content, reasoning, calls, finish_reason, notes: Vec::new() }
}

/// No engine parses calls that the request does not allow.
fn allows_calls(case: &Case) -> bool {
    case.line["tools"].as_array().is_some_and(|tools| !tools.is_empty())
        && case.request("tool_choice") != "none"
}

async fn dynamo(case: &Case) -> Outcome {
    let (Some(parser), _, splitter) = parsers(case) else { return Outcome::Unsupported };
    if parser == "harmony" && get_harmony_encoding().await.is_err() {
        return Outcome::Unsupported;
    }
    if !allows_calls(case) {
        return outcome(case, &folded(case, String::new(), case.text().to_owned(), Vec::new()));
    }
    let tool = |tool: &serde_json::Value| ToolDefinition {
        name: tool["function"]["name"].as_str().unwrap_or_default().to_owned(),
        parameters: tool["function"].get("parameters").cloned(),
        strict: None,
    };
    let tools: Vec<_> = case.line["tools"].as_array().into_iter().flatten().map(tool).collect();
    // Harmony's parser reads the channels itself; whichever order is right counts.
    for (reasoning, text) in orders(case, splitter) {
        let parsed = detect_and_parse_tool_call_with_recovery(&text, Some(parser), Some(&tools)).await;
        let Ok((calls, content)) = parsed else { continue };
        let calls = calls.into_iter().map(|call| (call.function.name, call.function.arguments)).collect();
        if outcome(case, &folded(case, reasoning, content.unwrap_or_default(), calls)) == Outcome::Passes {
            return Outcome::Passes;
        }
    }
    Outcome::Fails
}

async fn smg(case: &Case) -> Outcome {
    let (_, Some(parser), splitter) = parsers(case) else { return Outcome::Unsupported };
    if !allows_calls(case) {
        return outcome(case, &folded(case, String::new(), case.text().to_owned(), Vec::new()));
    }
    let factory = ParserFactory::new();
    let Some(parser) = factory.registry().create_parser(parser) else { return Outcome::Unsupported };
    let tools: Vec<Tool> = serde_json::from_value(case.line["tools"].clone()).unwrap_or_default();
    for (reasoning, text) in orders(case, splitter) {
        let Ok((content, calls)) = parser.parse_complete_with_tools(&text, &tools).await else { continue };
        let calls = calls.into_iter().map(|call| (call.function.name, call.function.arguments)).collect();
        if outcome(case, &folded(case, reasoning, content, calls)) == Outcome::Passes {
            return Outcome::Passes;
        }
    }
    Outcome::Fails
}
