//! How fast answers are read: text without a marker, dense calls, floods of what looks like markers, long arguments.
//!
//! Beside each figure stands its share of the speed at which the same text is copied, in the same run, so that figures of
//! different machines can be compared. `cargo bench -p switchback-parsers`; it asserts nothing about time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use switchback_parsers::event::Event;
use switchback_parsers::tool_call::{Options, TextParser};

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"]}}},
    {"type": "function", "function": {"name": "write", "parameters": {"type": "object",
        "properties": {"path": {"type": "string"}, "body": {"type": "string"}}, "required": ["path", "body"]}}}]"#;
/// A figure is the best of so many runs.
const RUNS: usize = 5;
/// Sizes of the pieces: as a proxy reads them from a fast backend, and as models stream them.
const PIECES: [usize; 2] = [64 << 10, 16];

fn texts() -> Vec<(&'static str, String)> {
    let prose = "The harbour is quiet in the morning, and the boats leave with the tide at six o'clock sharp.\n\
                 A second line of prose follows, with some `code` in it, a [link](x) and a number 42.\n\n";
    let code = "    if a < b && b > c { return vec![a, b]; } // as <T> wants it\n";
    let line = r#"let s = a + b; // a comment <b> \n here \"quoted\" \ud83d\ude00\n"#;
    let arguments = line.repeat((1 << 20) / line.len());
    let lines = arguments.replace("\\n", "\n");
    let json = r#"{"name": "bash", "arguments": {"command": "ls -la"}}"#;
    vec![
        ("prose", prose.repeat((8 << 20) / prose.len())),
        ("code", code.repeat((8 << 20) / code.len())),
        ("flood of <", "<".repeat(2 << 20)),
        ("flood of <tool_", "<tool_".repeat(300_000)),
        ("flood of <tool_call>", "<tool_call>".repeat(100_000)),
        ("flood of <function=bash>", "<function=bash>".repeat(50_000)),
        ("flood of [", "[".repeat(2 << 20)),
        ("flood of {", "{\n".repeat(1 << 20)),
        ("flood of backticks", "`".repeat(2 << 20)),
        ("dense calls, JSON", format!("<tool_call>\n{json}\n</tool_call>\n").repeat(20_000)),
        (
            "dense calls, XML",
            "<tool_call>\n<function=bash>\n<parameter=command>\nls -la\n</parameter>\n</function>\n</tool_call>\n"
                .repeat(20_000),
        ),
        (
            "1 MiB argument, JSON",
            format!(
                "<tool_call>\n{{\"name\": \"write\", \"arguments\": {{\"path\": \"a\", \"body\": \"{arguments}\"}}}}\n</tool_call>"
            ),
        ),
        (
            "1 MiB argument, XML",
            format!(
                "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=body>\n{lines}\n</parameter>\n\
                 </function>\n</tool_call>"
            ),
        ),
    ]
}

/// Reads the text in pieces of so many bytes; how many calls it holds.
fn read(text: &str, piece: usize) -> usize {
    let mut parser = TextParser::new(Options::from_json(TOOLS, "{}"));
    let (mut calls, mut at) = (0, 0);
    let mut count = |events: Vec<Event>| {
        calls += events.iter().filter(|event| matches!(event, Event::CallStart { .. })).count();
        black_box(events);
    };
    while at < text.len() {
        let end = (at + piece..).find(|end| *end >= text.len() || text.is_char_boundary(*end));
        let end = end.map_or(text.len(), |end| end.min(text.len()));
        count(parser.push(&text[at..end]));
        at = end;
    }
    count(parser.finish("stop").0);
    calls
}

fn best(mut run: impl FnMut()) -> Duration {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}

#[expect(clippy::print_stdout, reason = "a bench prints its figures")]
fn main() {
    println!("{:26} {:>8} {:>8} {:>10} {:>12}", "text", "piece", "calls", "MB/s", "of a copy");
    for (name, text) in texts() {
        let copy = best(|| {
            black_box(black_box(text.as_str()).to_owned());
        });
        for piece in PIECES {
            let mut calls = 0;
            let time = best(|| calls = read(&text, piece));
            let speed = text.len() as f64 / time.as_secs_f64() / 1e6;
            let share = copy.as_secs_f64() / time.as_secs_f64();
            println!("{name:26} {piece:>8} {calls:>8} {speed:>10.1} {:>11.2}%", share * 100.0);
        }
    }
}
