//! A prompt as an engine gets it: its texts, its length, and the hashes by which a cache knows its beginning again.
//!
//! The template around it is the rig's own: three tokens open a message, one closes it, and the answer's message is
//! open when the model begins. So the next turn of a conversation begins with this prompt and this answer, token by
//! token, as with real templates. It must never know an engine.

use serde_json::Value;

use crate::{
    cache::{Chain, GRAIN},
    random::{hash, hash_on},
    tokens::pieces,
};

/// What the template puts before the answer, before each message, and around a list of tools, in tokens.
pub(crate) const ANSWER_TOKENS: usize = OPENING;
const OPENING: usize = 3;
const TOOLS: usize = 8;
/// One image.
const IMAGE: usize = 256;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prompt {
    /// All its texts in order.
    pub(crate) text: String,
    /// The conversation that it belongs to: everything up to the first user message.
    pub(crate) conversation: Option<u64>,
    tokens: usize,
    so_far: u64,
    chain: Vec<u64>,
}

impl Prompt {
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    pub(crate) fn add(&mut self, text: &str) {
        self.text.push_str(text);
        self.hash_in(text);
    }

    pub(crate) fn add_numbers(&mut self, numbers: &[Value]) {
        for number in numbers {
            self.push(hash(number.to_string().as_bytes()));
        }
        self.text = Value::from(numbers).to_string();
    }

    pub(crate) fn add_tools(&mut self, tools: &Value) {
        self.mark("tools", TOOLS);
        self.add(&tools.to_string());
    }

    pub(crate) fn add_image(&mut self, part: &Value) {
        self.mark(&part.to_string(), IMAGE);
    }

    pub(crate) fn open_message(&mut self, role: &str) {
        self.mark(role, OPENING);
    }

    pub(crate) fn close_message(&mut self) {
        self.mark("end", 1);
    }

    pub(crate) fn open_answer(&mut self) {
        self.mark("assistant", OPENING);
    }

    /// Only its first `most` tokens count from now on.
    pub(crate) fn clip(&mut self, most: usize) {
        self.tokens = self.tokens.min(most);
        self.chain.truncate(most / GRAIN);
    }

    /// The conversation is named by what is there now, unless it has a name.
    pub(crate) fn name_conversation(&mut self) {
        self.conversation.get_or_insert(self.so_far);
    }

    /// The hashes of this prompt and of an answer made of these token texts; an empty one closes the message.
    pub(crate) fn chain<'a>(mut self, answer: impl Iterator<Item = &'a str>) -> Chain {
        for text in answer {
            if text.is_empty() {
                self.close_message();
            } else {
                self.push(hash(text.as_bytes()));
            }
        }
        self.chain.into()
    }

    fn hash_in(&mut self, text: &str) {
        for piece in pieces(text) {
            self.push(hash(piece.as_bytes()));
        }
    }

    fn mark(&mut self, what: &str, tokens: usize) {
        let mark = !hash(what.as_bytes());
        for _ in 0..tokens {
            self.push(mark);
        }
    }

    fn push(&mut self, token: u64) {
        self.tokens += 1;
        self.so_far = hash_on(self.so_far, &token.to_le_bytes());
        if self.tokens.is_multiple_of(GRAIN) {
            self.chain.push(self.so_far);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::inference::Inference;

    #[test]
    fn the_next_turn_begins_with_this_prompt_and_its_answer() {
        let question = "One two three four five six seven eight nine ten, and so on.";
        let asked = Inference::chat(&json!({"messages": [{"role": "user", "content": question}]}));
        let answer = "Here is an answer of some length, of more than sixteen tokens, to make a difference.";
        let next = Inference::chat(&json!({"messages": [
            {"role": "user", "content": question}, {"role": "assistant", "content": answer},
            {"role": "user", "content": "And then?"},
        ]}));
        let first = asked.prompt.clone().chain(crate::tokens::pieces(answer).chain([""]));
        let second = next.prompt.clone().chain(std::iter::empty());
        assert!(first.len() > asked.prompt.tokens() / 16, "the answer is in it");
        assert_eq!(first[..], second[..first.len()]);
        assert_eq!(asked.prompt.conversation, next.prompt.conversation);
        let other = Inference::chat(&json!({"messages": [{"role": "user", "content": "Else"}]}));
        assert_ne!(asked.prompt.conversation, other.prompt.conversation);
    }
}
