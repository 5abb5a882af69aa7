//! What stands around calls and text and is neither: leaked tokens, surplus closers, turns that a model invents, shells.
//!
//! A model's template ends turns with tokens that a backend should eat and often does not. Where such a token counts depends on its
//! place (`look.rs`); nothing here may be something that an answer is likely to say.

/// Special tokens and closers that leak; gone behind a call and at the end of an answer.
pub(crate) const LEAKS: &[&str] = &[
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "</s>",
    "<｜end▁of▁sentence｜>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<|return|>",
    "<|call|>",
    "<|end|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|message_sep|>",
    "<|plamo:tag|>",
    "<SPECIAL_12>",
    "<|role_sep|>",
    "<|end_message|>",
    "<|observation|>",
    "<|user|>",
    "[/INST]",
];

/// Closers that may stand behind a call although it is closed.
pub(crate) const SURPLUS: &[&str] = &["</function>", "</parameter>", "</invoke>", "</think>"];

/// A new turn, or a result, that the model invented: behind a call all from here on is left out.
pub(crate) const INVENTED: &[&str] = &[
    "<tool_response>",
    "<|im_start|>",
    "<|observation|>",
    "<|user|>",
    "<|start_header_id|>",
    "<|start|>functions.",
    "<|start|>user",
    "<function_response>",
    "<tool_result>",
    "<function_results>",
    "<|tool_response>",
    "<|im_system|>",
    "<｜User｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁output▁begin｜>",
    "[TOOL_RESULTS]",
];

/// Shells around text that a client should not see: opener and closers.
pub(crate) const SHELLS: &[(&str, &[&str])] = &[
    ("<|START_RESPONSE|>", &["<|END_RESPONSE|>"]),
    ("<|START_TEXT|>", &["<|END_TEXT|>"]),
    ("<|open|>response<|sep|>", &["<|close|>response<|sep|>"]),
    ("<response>", &["</response>"]),
];

/// Thoughts behind a call: opener and closers. Harmony's and Inkling's are messages of their own.
pub(crate) const THOUGHTS: &[(&str, &[&str])] = &[
    ("<think>", &["</think>"]),
    ("<seed:think>", &["</seed:think>"]),
    ("<mm:think>", &["</mm:think>"]),
    ("[THINK]", &["[/THINK]"]),
    ("◁think▷", &["◁/think▷"]),
    ("<|channel>thought", &["<channel|>"]),
    ("<|START_THINKING|>", &["<|END_THINKING|>"]),
];
