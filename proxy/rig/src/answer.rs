//! Answers: what a simulated model says, token by token, before any engine or wire has a part in it.
//!
//! An answer is a function of (seed, prompt, script step): the same always gives the same tokens. Prose says
//! something about its prompt (how long it is, how it begins), so that a reader can see which request an answer
//! belongs to. A trailing assistant message is continued with the rest of the answer that the prompt before it gives.
//! It must never know how fast it will be said, or in which API's words.

use serde_json::Value;

use crate::{
    Flaw, Format, Spec, Step,
    arguments::{fitting, pick},
    inference::{Inference, ToolChoice},
    markup::written,
    prose::{prose, sentence},
    random::Random,
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

/// A tool parser holds text back that may be a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hold {
    /// The first token that is held.
    pub(crate) from: usize,
    /// Seconds of silence, at least.
    pub(crate) seconds: f64,
    /// Whether what was held never comes.
    pub(crate) lost: bool,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<Token>,
    pub(crate) ending: Ending,
    pub(crate) hold: Option<Hold>,
    /// Chance for everything that concerns it.
    pub(crate) seed: u64,
}

impl Answer {
    /// The answer of this backend to `asked`, of at most `limit` tokens.
    pub(crate) fn new(spec: &Spec, asked: &Inference, step: &Step, limit: usize) -> Self {
        let seed = spec.seed ^ asked.subject.hash;
        let mut saying = Saying {
            spec,
            asked,
            random: Random::new(seed),
            tokens: Vec::new(),
            finish: "stop",
            wrote_call: false,
        };
        let empties = *step == Step::Ok && Random::of(seed, "empty").happens(spec.faults.empties);
        let step = if empties { &Step::Empty } else { step };
        let chat_begun =
            asked.begun.as_deref().filter(|_| asked.continues || spec.engine.repeats_beginnings());
        if asked.thinking.unwrap_or(spec.thinks) && *step != Step::Empty && chat_begun.is_none() {
            saying.think();
        }
        saying.say(step);
        if let Some(begun) = chat_begun {
            saying.go_on(begun);
        }
        let Saying { mut random, mut tokens, finish, wrote_call, .. } = saying;
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
        let mut silence = Random::of(seed, "stall");
        let (after, cut) = match *step {
            Step::Stall(after) => (after, Ending::Stall),
            Step::Cut(after) => (after, Ending::Break),
            Step::Ok if silence.happens(spec.faults.stalls) => (silence.below(tokens.len()), Ending::Stall),
            _ => (tokens.len(), ending),
        };
        tokens.truncate(after);
        ending = cut;
        let hold = if wrote_call { None } else { held_back(spec, asked, &tokens, seed) };
        Self { tokens, ending, hold, seed }
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

impl Token {
    /// Its text; empty for the end.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Reasoning(text) | Self::Text(text) | Self::Arguments(text) => text,
            Self::Call { name } => name,
            Self::End => "",
        }
    }
}

/// An answer in the making.
struct Saying<'a> {
    spec: &'a Spec,
    asked: &'a Inference,
    random: Random,
    tokens: Vec<Token>,
    finish: &'static str,
    /// A call stands in the text.
    wrote_call: bool,
}

impl Saying<'_> {
    fn think(&mut self) {
        let thought =
            format!("The prompt has {} tokens.{}", self.asked.subject.tokens, sentence(&mut self.random));
        if self.spec.reasoning_parser {
            self.tokens.extend(pieces(&thought).map(|piece| Token::Reasoning(piece.to_owned())));
        } else {
            self.text(&tagged(&thought));
        }
    }

    fn say(&mut self, step: &Step) {
        let parses = self.spec.tool_parser && self.asked.takes_calls();
        match step {
            Step::Say(said) => self.text(said),
            Step::Think(thought) => {
                self.text(&tagged(thought));
                self.prose();
            }
            Step::Call { name, arguments } if parses => self.call(name, arguments),
            Step::Call { name, arguments } => self.text(&written(Format::Hermes, None, name, arguments)),
            Step::Fit => self.fit(None),
            Step::Write { format, flaw, name, arguments } => {
                self.write(*format, *flaw, name.as_deref(), arguments.as_deref());
            }
            Step::Empty => {}
            Step::Ok | Step::Http(_) | Step::Dead | Step::Stall(_) | Step::Cut(_) => self.answer(parses),
        }
    }

    /// What the model does by itself.
    fn answer(&mut self, parses: bool) {
        let (asked, spec) = (self.asked, self.spec);
        let mut chance = Random::of(self.random.next(), "calls");
        match asked.forced_tool() {
            Some(tool) if parses => {
                let drops = asked.stream && asked.tool_choice == ToolChoice::Required;
                if drops && chance.happens(spec.faults.drops_required) {
                    if chance.happens(0.5) {
                        self.write(Format::QwenXml, None, Some(&tool.name), None);
                    }
                } else {
                    self.call(&tool.name, &fitting(&tool.parameters).to_string());
                }
            }
            // Without a parser `none` changes nothing for the model: the tools are in its prompt all the same.
            None if (asked.takes_calls() || !spec.tool_parser && !asked.tools.is_empty())
                && !asked.after_tool
                && chance.happens(spec.calls.share) =>
            {
                match spec.calls.format {
                    Some(format) => {
                        let flaws: Vec<Flaw> = format.flaws().collect();
                        let flawed = chance.happens(spec.calls.flawed);
                        let flaw = flaws.get(chance.below(flaws.len())).copied().filter(|_| flawed);
                        self.write(format, flaw, None, None);
                    }
                    None => self.fit(Some(parses)),
                }
            }
            _ => self.prose(),
        }
    }

    /// A call of a tool that the request declares, or prose.
    fn fit(&mut self, parses: Option<bool>) {
        let parses = parses.unwrap_or(self.spec.tool_parser && self.asked.takes_calls());
        match self.asked.forced_tool().or_else(|| pick(&self.asked.tools)) {
            Some(tool) if parses => self.call(&tool.name, &fitting(&tool.parameters).to_string()),
            Some(tool) => self.write(Format::Hermes, None, Some(&tool.name), None),
            None => self.prose(),
        }
    }

    /// A call as text; what is not given comes from the request's tools.
    fn write(&mut self, format: Format, flaw: Option<Flaw>, name: Option<&str>, arguments: Option<&str>) {
        let tools = &self.asked.tools;
        let tool = match name {
            Some(name) => tools.iter().find(|tool| tool.name == name),
            None => self.asked.forced_tool().or_else(|| pick(tools)),
        };
        let name = name.or(tool.map(|tool| tool.name.as_str())).unwrap_or("lookup");
        let fitted = fitting(tool.map_or(&Value::Null, |tool| &tool.parameters)).to_string();
        self.wrote_call = flaw != Some(Flaw::InProse);
        self.text(&written(format, flaw, name, arguments.unwrap_or(&fitted)));
    }

    fn call(&mut self, name: &str, arguments: &str) {
        self.tokens.push(Token::Call { name: name.to_owned() });
        self.tokens.extend(pieces(arguments).map(|piece| Token::Arguments(piece.to_owned())));
        // OpenAI and vLLM: the call of a named choice ends in `stop`
        let named = matches!(self.asked.tool_choice, ToolChoice::Named(_));
        self.finish = if named { "stop" } else { "tool_calls" };
    }

    fn prose(&mut self) {
        let (tokens, words) = (self.asked.subject.tokens, &self.asked.first_words);
        let mut said = format!("Your prompt has {tokens} tokens and begins \"{words}\".");
        for _ in 0..4 + self.random.below(12) {
            said.push_str(sentence(&mut self.random));
        }
        self.text(&said);
    }

    fn text(&mut self, said: &str) {
        self.tokens.extend(pieces(said).map(|piece| Token::Text(piece.to_owned())));
    }

    /// Only the rest of what was begun, if it was begun like this; llama.cpp says the beginning again.
    fn go_on(&mut self, begun: &str) {
        let whole: String = self.tokens.iter().map(Token::text).collect();
        if self.tokens.iter().all(|token| matches!(token, Token::Text(_)))
            && let Some(rest) = whole.strip_prefix(begun)
        {
            self.tokens.clear();
            self.text(rest);
        }
        if self.spec.engine.repeats_beginnings()
            && let Some(Token::Text(first)) = self.tokens.first_mut()
        {
            first.insert_str(0, begun);
        }
    }
}

/// A thought in the content.
fn tagged(thought: &str) -> String {
    format!("<think>\n{thought}\n</think>\n\n")
}

/// What a tool parser holds back of a stream of prose: everything from an opening tag on, if it is in there.
fn held_back(spec: &Spec, asked: &Inference, tokens: &[Token], seed: u64) -> Option<Hold> {
    let [least, most] = spec.faults.tag_silence.filter(|_| spec.tool_parser && asked.takes_calls())?;
    let text = |token: &Token| if let Token::Text(text) = token { text.len() } else { 0 };
    let content: String =
        tokens.iter().filter(|token| matches!(token, Token::Text(_))).map(Token::text).collect();
    let tag = content.find("<tool_call>")?;
    let mut end = 0;
    let from = tokens.iter().position(|token| {
        end += text(token);
        end > tag
    })?;
    let mut random = Random::of(seed, "tag");
    Some(Hold { from, seconds: least + (most - least) * random.unit(), lost: random.happens(0.5) })
}

#[cfg(test)]
mod tests;
