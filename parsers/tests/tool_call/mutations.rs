//! Damaged and spliced corpus texts: whatever they are, no cut changes the answer, no byte is lost, arguments are an object.

use serde_json::Value;
use switchback_parsers::event::{Event, Note};

use crate::corpus::{Case, cases};
use crate::score::same;

/// Small, steady and good enough: the texts must be the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }

    fn place(&mut self, text: &str) -> usize {
        let mut at = self.roll(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}

const SCRAPS: &[&str] = &[
    "\n",
    " ",
    "<",
    "`",
    "```",
    "```json\n",
    "{",
    "}",
    "]",
    "\"",
    "'",
    "\\",
    "\\n",
    ">",
    "> ",
    ">>>",
    "</tool_call>",
    "<tool_call>",
    "</function>",
    "</parameter>",
    "<function=",
    "<|im_end|>",
    "Then:",
    "\u{2581}",
    "｜",
    "[TOOL_CALLS]",
    "<tool_response>",
    ",",
    "<|channel|>",
    "<|end|>",
    "</think>",
    "<arg_value>",
    "    ",
    "\t",
    "+",
    "12:",
    "\n\n",
    "<pre>",
    "</code>",
    "\nUser: hi\nAssistant: ",
    "\n@@ -1 +1 @@\n ",
    "e.g.:\n",
    "<s>",
    "</s>",
    "\u{a0}",
];

fn mutated(dice: &mut Dice, all: &[Case]) -> String {
    let mut text = all[dice.roll(all.len())].text().to_owned();
    for _ in 0..1 + dice.roll(3) {
        let at = dice.place(&text);
        match dice.roll(5) {
            0 => text.insert_str(at, SCRAPS[dice.roll(SCRAPS.len())]),
            1 => text.truncate(at),
            2 => {
                let to = dice.place(&text);
                let (from, to) = (at.min(to), at.max(to));
                let to = text[from..to].char_indices().nth(12).map_or(to, |(at, _)| from + at);
                text.replace_range(from..to, "");
            }
            3 => text.push_str(all[dice.roll(all.len())].text()),
            _ => text.insert_str(at, all[dice.roll(all.len())].text()),
        }
    }
    text
}

fn random_pieces<'t>(dice: &mut Dice, bytes: &'t [u8]) -> Vec<&'t [u8]> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let end = (at + 1 + dice.roll(20)).min(bytes.len());
        pieces.push(&bytes[at..end]);
        at = end;
    }
    pieces
}

#[test]
fn damaged_texts_give_one_answer_whatever_the_cuts_and_lose_no_byte() {
    let rounds =
        std::env::var("SWITCHBACK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1500);
    let all = cases();
    let mut dice = Dice(0x5EED);
    let mut failures = Vec::new();
    for _ in 0..rounds {
        let text = mutated(&mut dice, &all);
        let mut case = Case { family: String::new(), line: all[dice.roll(all.len())].line.clone() };
        case.line["text"] = Value::from(text.clone());
        case.line["request"]["upstream_reasoning"] = Value::Null;
        if dice.roll(2) == 0 {
            case.line["request"]["upstream_finish"] = Value::from("length");
        }
        let (events, _) = case.events([text.as_bytes()]);
        let whole = case.run([text.as_bytes()]);
        if !same(&case.run(text.as_bytes().chunks(1)), &whole)
            || !same(&case.run(random_pieces(&mut dice, text.as_bytes())), &whole)
        {
            failures.push(format!("cuts change {} {text:?}", case.line["request"]));
        }
        for call in whole.calls.iter().filter(|call| call.closed) {
            let arguments = serde_json::from_str::<Value>(&call.arguments);
            if !arguments.is_ok_and(|arguments| arguments.is_object()) {
                failures.push(format!("arguments {} in {text:?}", call.arguments));
            }
        }
        // The splitter takes its tags, and the blanks beside them, without a trace.
        let thoughtful = ["think", "THINK", "channel>", "message_model"].iter().any(|tag| text.contains(tag));
        let rebuilt: String = events
            .iter()
            .map(|event| match event {
                Event::Text(text) | Event::Reasoning(text) | Event::Note(Note::Markup(text)) => text.as_str(),
                _ => "",
            })
            .collect();
        if rebuilt != text && !thoughtful && case.line["request"]["thinking_open"] != Value::Bool(true) {
            failures.push(format!("bytes lost of {text:?}: {rebuilt:?}"));
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures[..failures.len().min(8)].join("\n")
    );
}
