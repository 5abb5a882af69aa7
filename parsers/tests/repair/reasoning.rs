//! Thoughts and answers, at any cut.

use proptest::prelude::*;
use switchback_parsers::reasoning::{Piece, ReasoningSplitter};

/// Text and reasoning, each joined.
fn split(open: bool, pieces: &[&str]) -> (String, String) {
    let mut splitter = ReasoningSplitter::new(open);
    let mut all: Vec<Piece> = pieces.iter().flat_map(|piece| splitter.push(piece)).collect();
    all.extend(splitter.finish());
    assert_eq!(splitter.held(), 0);
    let mut said = (String::new(), String::new());
    for piece in all {
        match piece {
            Piece::Text(text) => said.0.push_str(&text),
            Piece::Reasoning(text) => said.1.push_str(&text),
        }
    }
    said
}

const TABLE: &[(bool, &str, &str, &str)] = &[
    (false, "<think>\nThe port.\n</think>\n\n<tool_call>", "<tool_call>", "The port."),
    (true, "The port.\n</think>\n\nHello!", "Hello!", "The port."),
    (true, "<think>\nThe port.\n</think>\n\nHello!", "Hello!", "The port."),
    (false, "<think>\nplan\n</think>\nOK.\n</think>\n<tool_call>", "OK.\n\n<tool_call>", "plan"),
    (false, "<think>a</think></think>b", "b", "a"),
    (false, "<think>\n\n</think>\n\nHello!", "Hello!", ""),
    (false, "<think>\nStill thinking", "", "Still thinking"),
    (false, "Use <think> tags; close with </think>.", "Use <think> tags; close with </think>.", ""),
    (false, "◁think▷Look.◁/think▷x", "x", "Look."),
    (false, "<seed:think>Check.</seed:think>x", "x", "Check."),
    (false, "[THINK]Need </think> it.[/THINK][TOOL_CALLS]", "[TOOL_CALLS]", "Need </think> it."),
    (false, "<|channel>thought\nTides.<channel|><|tool_call>", "<|tool_call>", "Tides."),
    (false, "<|START_THINKING|>I.<|END_THINKING|><|START_ACTION|>[", "<|START_ACTION|>[", "I."),
    (false, "<thinking>\nsmall\n</thinking>\nx", "<thinking>\nsmall\n</thinking>\nx", ""),
    (false, "</think>\n\nHello", "Hello", ""),
    (false, "  <thin", "  <thin", ""),
    (false, " \n plain\n", " \n plain\n", ""),
    (true, "a < b [1] </thin", "", "a < b [1] </thin"),
    (false, "", "", ""),
];

#[test]
fn thoughts_are_split_by_their_tags() {
    for (open, text, answer, thought) in TABLE {
        assert_eq!(split(*open, &[text]), (answer.to_string(), thought.to_string()), "{text:?}");
    }
}

#[test]
fn a_cut_anywhere_changes_nothing() {
    for (open, text, ..) in TABLE {
        let whole = split(*open, &[text]);
        for (at, _) in text.char_indices() {
            assert_eq!(split(*open, &[&text[..at], &text[at..]]), whole, "{text:?} at {at}");
        }
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        assert_eq!(split(*open, &chars), whole, "{text:?} by characters");
    }
}

#[test]
fn plain_text_passes_at_once() {
    let mut splitter = ReasoningSplitter::new(false);
    assert_eq!(splitter.push("Hello, <b"), [Piece::Text("Hello, <b".into())]);
    let mut thinking = ReasoningSplitter::new(true);
    assert_eq!(thinking.push("if a < b then"), [Piece::Reasoning("if a < b then".into())]);
    assert_eq!((thinking.held(), thinking.push("</thi").len(), thinking.held()), (0, 0, 5));
}

#[test]
fn a_million_tags_take_linear_time() {
    let text = "<think></think>".repeat(200_000);
    assert_eq!(split(false, &[&text]), (String::new(), String::new()));
    let text = "<think>".to_owned() + &"</thin<".repeat(200_000);
    assert_eq!(split(false, &[&text]).1.len(), 1_400_000);
}

fn pieces() -> impl Strategy<Value = Vec<&'static str>> {
    let words = [
        "<think>",
        "</think>",
        "<thi",
        "nk>",
        "</",
        "[THINK]",
        "[/THINK]",
        "◁think▷",
        "◁",
        "a",
        "b c",
        "\n",
        "  ",
        "<",
        "[",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..14)
}

proptest! {
    #[test]
    fn pieces_and_their_sum_say_the_same(pieces in pieces(), open: bool) {
        let whole = pieces.concat();
        prop_assert_eq!(split(open, &pieces), split(open, &[&whole]));
    }

    #[test]
    fn nothing_but_tags_and_blanks_is_lost(pieces in pieces(), open: bool) {
        let whole = pieces.concat();
        let (text, thought) = split(open, &pieces);
        let letters = |text: &str| text.matches(['a', 'b', 'c']).count();
        prop_assert_eq!(letters(&whole), letters(&text) + letters(&thought));
        if !open && !whole.contains("think") && !whole.contains("THINK") {
            prop_assert_eq!(text, whole);
        }
    }
}
