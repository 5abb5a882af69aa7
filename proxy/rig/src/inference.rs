//! An inference request as the rig understands it: how long the prompt is, and what is wanted.
//!
//! Reading is lenient: what an engine refuses, its own wire has refused before. The prompt's length is the rig's
//! own sum: the tokens of all texts, plus a fixed cost a message for the template around it. It must never depend
//! on the engine, so that one prompt costs the same everywhere.

use serde_json::Value;

use crate::{
    prompt::{ANSWER_TOKENS, Prompt},
    random::hash,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Inference {
    /// A chat, or a plain completion?
    pub(crate) chat: bool,
    /// What is to be answered, as the engine gets it.
    pub(crate) prompt: Prompt,
    /// What is answered: the prompt without a trailing assistant message.
    pub(crate) subject: Subject,
    /// What a trailing assistant message has already said.
    pub(crate) begun: Option<String>,
    /// `continue_final_message`.
    pub(crate) continues: bool,
    /// Whether the last message is the result of a tool.
    pub(crate) after_tool: bool,
    /// How the last user message begins.
    pub(crate) first_words: String,
    pub(crate) images: usize,
    /// `max_completion_tokens` or `max_tokens`, if it is a number; negative: no limit.
    pub(crate) max_tokens: Option<i64>,
    pub(crate) ignore_eos: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) return_progress: bool,
    /// `sse_ping_interval`, in seconds.
    pub(crate) ping_interval: Option<f64>,
    /// `chat_template_kwargs.enable_thinking`.
    pub(crate) thinking: Option<bool>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) tool_choice: ToolChoice,
}

/// What an answer is a function of, besides the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) hash: u64,
    pub(crate) tokens: usize,
}

impl Subject {
    fn of(prompt: &Prompt, template: usize) -> Self {
        Self { hash: hash(prompt.text.as_bytes()), tokens: prompt.tokens() + template }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) parameters: Value,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Named(String),
}

impl Inference {
    /// Reads a chat request.
    pub(crate) fn chat(body: &Value) -> Self {
        let mut asked = Self { chat: true, ..Self::common(body) };
        if let Some(tools) = body["tools"].as_array().filter(|tools| !tools.is_empty()) {
            asked.prompt.add_tools(&body["tools"]);
            asked.tools = tools.iter().map(|tool| Tool::read(&tool["function"])).collect();
        }
        let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        asked.after_tool = messages.last().is_some_and(|last| last["role"] == "tool");
        let begun =
            messages.last().filter(|last| last["role"] == "assistant" && last["tool_calls"].is_null());
        asked.begun = begun.and_then(|last| last["content"].as_str()).map(str::to_owned);
        let answered = messages.len() - usize::from(asked.begun.is_some());
        for message in &messages[..answered] {
            asked.add_message(message);
        }
        asked.subject = Subject::of(&asked.prompt, ANSWER_TOKENS);
        messages[answered..].iter().for_each(|message| asked.add_message(message));
        asked.prompt.open_answer();
        asked.tool_choice = match &body["tool_choice"] {
            Value::String(choice) if choice == "none" => ToolChoice::None,
            Value::String(choice) if choice == "required" => ToolChoice::Required,
            Value::Object(choice) => choice
                .get("function")
                .and_then(|function| function["name"].as_str())
                .map_or(ToolChoice::Auto, |name| ToolChoice::Named(name.to_owned())),
            _ => ToolChoice::Auto,
        };
        asked
    }

    /// Reads a plain completion: a text, or the first of several, or token numbers.
    pub(crate) fn completion(body: &Value) -> Self {
        let mut asked = Self::common(body);
        match &body["prompt"] {
            Value::Array(numbers) if numbers.first().is_some_and(Value::is_number) => {
                asked.prompt.add_numbers(numbers);
            }
            // Several prompts are read one after the other: usage is that of all of them.
            Value::Array(prompts) => {
                for prompt in prompts {
                    match prompt {
                        Value::Array(numbers) => asked.prompt.add_numbers(numbers),
                        prompt => asked.prompt.add(prompt.as_str().unwrap_or_default()),
                    }
                }
            }
            prompt => asked.prompt.add(prompt.as_str().unwrap_or_default()),
        }
        asked.first_words = first_words(&asked.prompt.text);
        asked.subject = Subject::of(&asked.prompt, 0);
        asked
    }

    fn common(body: &Value) -> Self {
        let options = &body["stream_options"];
        let max_tokens = [&body["max_completion_tokens"], &body["max_tokens"], &body["n_predict"]];
        Self {
            max_tokens: max_tokens.into_iter().find_map(Value::as_i64),
            ignore_eos: is_true(&body["ignore_eos"]),
            stream: is_true(&body["stream"]),
            include_usage: is_true(&options["include_usage"]),
            continuous_usage: is_true(&options["include_usage"])
                && is_true(&options["continuous_usage_stats"]),
            return_progress: is_true(&body["return_progress"]),
            ping_interval: body["sse_ping_interval"].as_f64(),
            continues: is_true(&body["continue_final_message"]),
            thinking: body["chat_template_kwargs"]["enable_thinking"].as_bool(),
            ..Self::default()
        }
    }

    fn add_message(&mut self, message: &Value) {
        self.prompt.open_message(message["role"].as_str().unwrap_or_default());
        let before = self.prompt.text.len();
        match &message["content"] {
            Value::String(text) => self.prompt.add(text),
            Value::Array(parts) => {
                for part in parts {
                    if let Some(text) = part["text"].as_str() {
                        self.prompt.add(text);
                    } else if part["type"].as_str().is_some_and(|kind| kind.contains("image")) {
                        self.images += 1;
                        self.prompt.add_image(part);
                    }
                }
            }
            _ => {}
        }
        if message["role"] == "user" {
            self.first_words = first_words(&self.prompt.text[before..]);
        }
        if message["tool_calls"].is_array() {
            self.prompt.add(&message["tool_calls"].to_string());
        }
        self.prompt.close_message();
        if message["role"] == "user" {
            self.prompt.name_conversation();
        }
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompt.tokens().max(1)
    }

    /// The most tokens that an answer may have in a window; the prompt fits it.
    pub(crate) fn output_limit(&self, window: usize) -> usize {
        let room = window.saturating_sub(self.prompt_tokens());
        let wanted = self.max_tokens.and_then(|tokens| usize::try_from(tokens).ok());
        wanted.map_or(room, |wanted| wanted.min(room))
    }

    /// The tool that must be called.
    pub(crate) fn forced_tool(&self) -> Option<&Tool> {
        match &self.tool_choice {
            ToolChoice::Named(name) => self.tools.iter().find(|tool| tool.name == *name),
            ToolChoice::Required => self.tools.first(),
            ToolChoice::Auto | ToolChoice::None => None,
        }
    }

    /// Whether calls are wanted as calls.
    pub(crate) fn takes_calls(&self) -> bool {
        !self.tools.is_empty() && self.tool_choice != ToolChoice::None
    }
}

impl Tool {
    fn read(function: &Value) -> Self {
        Self {
            name: function["name"].as_str().unwrap_or_default().to_owned(),
            parameters: function["parameters"].clone(),
        }
    }
}

fn is_true(value: &Value) -> bool {
    value.as_bool() == Some(true)
}

/// Up to eight words.
fn first_words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(8).collect();
    words.join(" ").chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_costs_its_texts_and_its_template() {
        let asked = Inference::chat(&json!({"messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello, world!"}, {"type": "image_url"}]},
        ]}));
        assert_eq!(asked.prompt_tokens(), 3 + (4 + 3) + (4 + 4 + 256));
        assert_eq!((asked.first_words.as_str(), asked.images), ("Hello, world!", 1));
    }

    #[test]
    fn an_answer_is_limited_by_what_was_asked_and_by_the_window() {
        let asked = |max_tokens: Value| {
            Inference::completion(&json!({"prompt": "a b c d", "max_tokens": max_tokens}))
        };
        assert_eq!(asked(json!(5)).output_limit(100), 5);
        assert_eq!(asked(json!(500)).output_limit(100), 96);
        assert_eq!(asked(json!(-1)).output_limit(100), 96);
        assert_eq!(asked(Value::Null).output_limit(4), 0);
    }
}
