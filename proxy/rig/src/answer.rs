//! Answers: what a simulated model says, token by token, before any engine or wire has a part in it.
//!
//! An answer is a function of (seed, prompt, script step): the same always gives the same tokens. Prose says
//! something about its prompt (how long it is, how it begins), so that a reader can see which request an answer
//! belongs to. It must never know how fast it will be said, or in which API's words.

use serde_json::{Map, Value, json};

use crate::{
    Step,
    inference::{Inference, ToolChoice},
    tokens::pieces,
};

/// One token of an answer. The texts of the tokens in order are the answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Reasoning(String),
    Text(String),
    /// A tool call opens; there is at most one in an answer.
    Call {
        name: String,
    },
    /// A piece of its arguments.
    Arguments(String),
    /// The end-of-text token: costs a token, has no text.
    End,
}

/// What becomes of an answer when its tokens are out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    /// It ends with this finish reason.
    Finish(&'static str),
    /// Silence on an open socket.
    Stall,
    /// The connection breaks.
    Break,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<Token>,
    pub(crate) ending: Ending,
}

impl Answer {
    /// The answer to `asked`, of at most `limit` tokens. `thinks` and `parses_tools` are the backend's own ways.
    pub(crate) fn new(
        seed: u64,
        asked: &Inference,
        step: &Step,
        limit: usize,
        thinks: bool,
        parses_tools: bool,
    ) -> Self {
        let mut random = Random::new(seed ^ hash(asked.text.as_bytes()));
        let mut tokens = Vec::new();
        if asked.thinking.unwrap_or(thinks) && !matches!(step, Step::Empty) {
            let thought = format!("The prompt has {} tokens.{}", asked.prompt_tokens, random.sentence());
            tokens.extend(pieces(&thought).map(|piece| Token::Reasoning(piece.to_owned())));
        }
        let parses_tools = parses_tools && asked.takes_calls();
        let mut finish = "stop";
        match step {
            Step::Say(said) => tokens.extend(text(said)),
            Step::Call { name, arguments } if parses_tools => {
                tokens.extend(call(name, arguments));
                finish = call_finish(asked);
            }
            Step::Call { name, arguments } => {
                let markup = format!(
                    "<tool_call>\n{{\"name\": {}, \"arguments\": {arguments}}}\n</tool_call>",
                    Value::from(name.as_str())
                );
                tokens.extend(text(&markup));
            }
            Step::Empty => {}
            _ => match asked.forced_tool() {
                Some(tool) if parses_tools => {
                    tokens.extend(call(&tool.name, &arguments_for(&tool.parameters).to_string()));
                    finish = call_finish(asked);
                }
                _ => tokens.extend(text(&prose_about(asked, &mut random))),
            },
        }
        if asked.ignore_eos {
            let more = prose(random.next()).flat_map(pieces).map(|piece| Token::Text(piece.to_owned()));
            let missing = limit.saturating_sub(tokens.len());
            tokens.extend(more.take(missing));
        } else {
            tokens.push(Token::End);
        }
        let mut ending =
            Ending::Finish(if tokens.len() > limit || asked.ignore_eos { "length" } else { finish });
        tokens.truncate(limit);
        match *step {
            Step::Stall(after) => {
                tokens.truncate(after);
                ending = Ending::Stall;
            }
            Step::Cut(after) => {
                tokens.truncate(after);
                ending = Ending::Break;
            }
            _ => {}
        }
        Self { tokens, ending }
    }

    /// The texts of the tokens that `pick` picks, put together; none if it picks none.
    pub(crate) fn joined<'a>(&'a self, pick: impl Fn(&'a Token) -> Option<&'a str>) -> Option<String> {
        let mut picked = self.tokens.iter().filter_map(pick).peekable();
        picked.peek()?;
        Some(picked.collect())
    }

    /// The content; none if it has none.
    pub(crate) fn content(&self) -> Option<String> {
        self.joined(|token| if let Token::Text(text) = token { Some(text) } else { None })
    }

    /// The thought; none if it has none.
    pub(crate) fn reasoning(&self) -> Option<String> {
        self.joined(|token| if let Token::Reasoning(text) = token { Some(text) } else { None })
    }

    /// The tool call, as name and arguments.
    pub(crate) fn call(&self) -> Option<(&str, String)> {
        let name = self.tokens.iter().find_map(|token| match token {
            Token::Call { name } => Some(name.as_str()),
            _ => None,
        })?;
        let arguments =
            self.joined(|token| if let Token::Arguments(text) = token { Some(text) } else { None });
        Some((name, arguments.unwrap_or_default()))
    }

    /// The finish reason, if it comes to one.
    pub(crate) fn finish(&self) -> &'static str {
        match self.ending {
            Ending::Finish(reason) => reason,
            Ending::Stall | Ending::Break => "",
        }
    }
}

fn text(said: &str) -> impl Iterator<Item = Token> + '_ {
    pieces(said).map(|piece| Token::Text(piece.to_owned()))
}

fn call<'a>(name: &str, arguments: &'a str) -> impl Iterator<Item = Token> + use<'a> {
    let open = Token::Call { name: name.to_owned() };
    std::iter::once(open).chain(pieces(arguments).map(|piece| Token::Arguments(piece.to_owned())))
}

fn prose_about(asked: &Inference, random: &mut Random) -> String {
    let mut said =
        format!("Your prompt has {} tokens and begins \"{}\".", asked.prompt_tokens, asked.first_words);
    for _ in 0..4 + random.next() % 12 {
        said.push_str(random.sentence());
    }
    said
}

/// The smallest arguments that satisfy a schema's required members.
fn arguments_for(parameters: &Value) -> Value {
    let required: Vec<&str> =
        parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let value = |schema: &Value| match (&schema["enum"][0], schema["type"].as_str()) {
        (Value::Null, Some("integer" | "number")) => json!(1),
        (Value::Null, Some("boolean")) => json!(true),
        (Value::Null, Some("array")) => json!([]),
        (Value::Null, Some("object")) => json!({}),
        (Value::Null, _) => json!("switchback"),
        (first, _) => first.clone(),
    };
    Value::Object(
        required
            .into_iter()
            .map(|name| (name.to_owned(), value(&parameters["properties"][name])))
            .collect::<Map<_, _>>(),
    )
}

/// Endless prose in sentences, each with a space before it.
pub(crate) fn prose(seed: u64) -> impl Iterator<Item = &'static str> {
    let mut random = Random::new(seed);
    std::iter::from_fn(move || Some(random.sentence()))
}

const SENTENCES: [&str; 16] = [
    " The road climbs in short legs, and each turn gains a little height.",
    " A long prompt takes the long way round.",
    " The first card reads while the second one remembers.",
    " Nothing is lost between two turns.",
    " The valley is wide, the window is not.",
    " What was read once need not be read again.",
    " Every step costs a moment, every moment is counted.",
    " A queue forms quietly at the foot of the pass.",
    " The bridge carries what it was built to carry, and no more.",
    " Somewhere above, a light is on.",
    " The answer arrives in pieces, in their order.",
    " Rain fills the pool to its rim.",
    " One heavy cart can stop a whole column.",
    " The map shows the cliff, the sign shows the way round it.",
    " The second bend looks like the first one.",
    " At the top there is room for everybody.",
];

/// A small generator of numbers (splitmix64): the same seed, the same numbers, on every machine.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn sentence(&mut self) -> &'static str {
        SENTENCES[(self.next() % SENTENCES.len() as u64) as usize]
    }
}

/// FNV-1a: a number for a text, the same on every machine.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// OpenAI and vLLM: the call of a named choice ends in `stop`.
fn call_finish(asked: &Inference) -> &'static str {
    if matches!(asked.tool_choice, ToolChoice::Named(_)) { "stop" } else { "tool_calls" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(step: &str, limit: usize, body: &Value) -> Answer {
        Answer::new(7, &Inference::chat(body), &step.parse().unwrap(), limit, false, true)
    }

    #[test]
    fn prose_says_which_prompt_it_answers() {
        let body = json!({"messages": [{"role": "user", "content": "Where is the pass?"}]});
        let said = answer("ok", 1_000, &body).content().unwrap();
        assert!(said.starts_with("Your prompt has 12 tokens and begins \"Where is the pass?\"."), "{said}");
        assert_eq!(answer("ok", 1_000, &body), answer("ok", 1_000, &body));
    }

    #[test]
    fn a_limit_cuts_and_says_length() {
        let body = json!({"messages": [], "ignore_eos": false});
        let cut = answer("say one two three", 2, &body);
        assert_eq!((cut.content().unwrap().as_str(), cut.finish()), ("one two", "length"));
        let whole = answer("say one two three", 4, &body);
        assert_eq!((whole.tokens.last(), whole.finish()), (Some(&Token::End), "stop"));
        let endless = answer("say one", 50, &json!({"messages": [], "ignore_eos": true}));
        assert_eq!((endless.tokens.len(), endless.finish()), (50, "length"));
    }

    #[test]
    fn a_call_is_a_call_only_where_tools_are_parsed() {
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {
            "required": ["n", "s"], "properties": {"n": {"type": "integer"}, "s": {"enum": ["x", "y"]}}}}}]);
        let called = answer("call f {\"a\": 1}", 99, &json!({"messages": [], "tools": tools}));
        assert_eq!((called.call(), called.finish()), (Some(("f", "{\"a\": 1}".to_owned())), "tool_calls"));

        let shown = answer("call f {}", 99, &json!({"messages": [], "tools": tools, "tool_choice": "none"}));
        assert_eq!(
            shown.content().unwrap(),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"
        );

        let forced = answer("ok", 99, &json!({"messages": [], "tools": tools, "tool_choice": "required"}));
        assert_eq!(forced.call(), Some(("f", "{\"n\":1,\"s\":\"x\"}".to_owned())));
    }
}
