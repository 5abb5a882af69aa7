//! How many tokens a request has at least and at most, from one scan of its body, without a vocabulary.
//!
//! Why it holds. *Low*: a pre-tokenizer never merges two words, so each run of letters and each run of digits is a token at least; and
//! the longest token of a vocabulary in use has 128 bytes. Only text that reaches the prompt is looked at: contents, prompts,
//! instructions, results of tools; not the arguments of past calls, and not what stands before `</think>`, which templates leave out.
//! (A template without tool support leaves the results out as well: for a model that is shown results which it cannot see, the bound
//! is too high.) *High*: a token has a byte at least, and JSON's escapes only lengthen; what a template adds is bounded by the
//! allowances below. Base64 of images and sounds is no prompt text and counts on neither side.
//!
//! The scan follows the JSON once, allocates nothing, and must never read a body that was not checked.

use super::count::TokenCount;
use super::words::{CLASSES, Class, STEPS, State, nfc_growth};
use crate::request::ChatRequest;

/// The most tokens that an image, sound, video or file is taken to have: Qwen3-VL's largest image.
pub const PER_IMAGE: u64 = 16_384;
/// For what a template puts at the front: markers, a date, tool preambles (Qwen3.5's has 290 tokens), fixed instructions (GigaChat3's
/// have 1,100 tokens).
const PER_REQUEST: u64 = 1_536;
/// For the system prompt that a template brings itself when the request has none (Devstral's has 1,400 tokens).
const WITHOUT_SYSTEM: u64 = 1_024;
/// For each key of an object: what a template writes around a message, a tool, a parameter or an argument, each of which has keys. The
/// most is written by templates that print schemas as XML, about 14 tokens a key.
const PER_KEY: u64 = 16;
/// The longest token, in bytes.
const LONGEST_TOKEN: u64 = 128;

/// Bounds of the prompt of a chat, completions, responses or messages request.
pub fn bounds(request: &ChatRequest) -> TokenCount {
    let mut scan = Scan { text: request.root().raw().as_bytes(), ..Scan::default() };
    scan.value(Place::Top);
    let bytes = request.body().len() as u64 - scan.media_bytes.min(request.body().len() as u64);
    let system = if scan.has_system { 0 } else { WITHOUT_SYSTEM };
    let high =
        bytes + scan.grown + scan.keys * PER_KEY + scan.media * PER_IMAGE + scan.extra + PER_REQUEST + system;
    TokenCount::Between { low: scan.low.min(high), high }
}

/// Members whose words count: `messages`, `input`, `prompt`, `instructions` and `system` at the top, the others inside.
const COUNTED: [&[u8]; 8] =
    [b"messages", b"input", b"prompt", b"instructions", b"system", b"content", b"output", b"text"];

/// Where in the request a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    /// `messages`, `input`
    Messages,
    Message,
    /// `content`, `system`, `instructions`, `output`: text, or parts
    Content,
    Part,
    /// `prompt`: text, texts, or token ids
    Prompt,
    /// An image: its base64 is not text
    Image,
    /// A sound, a video, a file: nor is theirs
    Stream,
    /// What may reach the prompt, or not
    Other,
}

#[derive(Default)]
struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    low: u64,
    /// Bytes by which NFC may lengthen the text.
    grown: u64,
    keys: u64,
    media: u64,
    media_bytes: u64,
    /// Tokens that stand in the request as ids have fewer bytes than a token may need.
    extra: u64,
    has_system: bool,
}

impl Scan<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or_default()
    }

    /// The next byte that is no white space, comma or colon.
    fn next(&mut self) -> u8 {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t' | b',' | b':') {
            self.at += 1;
        }
        self.peek()
    }

    fn value(&mut self, place: Place) {
        match self.next() {
            b'{' => self.object(place),
            b'[' => self.array(place),
            b'"' => self.string(place),
            _ => {
                if place == Place::Prompt {
                    self.low += 1;
                    self.extra += 1;
                }
                let ends = |b: &u8| matches!(b, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t');
                let rest = self.text.get(self.at..).unwrap_or_default();
                self.at += rest.iter().position(ends).unwrap_or(rest.len()).max(1);
            }
        }
    }

    fn array(&mut self, place: Place) {
        self.at += 1;
        let element = match place {
            Place::Messages => Place::Message,
            Place::Content => Place::Part,
            Place::Prompt => Place::Prompt,
            Place::Image | Place::Stream => place,
            _ => Place::Other,
        };
        while !matches!(self.next(), b']' | 0) {
            self.value(element);
        }
        self.at += 1;
    }

    fn object(&mut self, place: Place) {
        let mut lows = [0; COUNTED.len()];
        self.at += 1;
        while !matches!(self.next(), b'}' | 0) {
            let start = self.at;
            self.skip_string();
            let key = self.text.get(start + 1..self.at.saturating_sub(1)).unwrap_or_default();
            self.keys += 1;
            let inner = place.inside(key);
            self.next();
            self.has_system |= match place {
                Place::Top => matches!(key, b"system" | b"instructions"),
                Place::Message => key == b"role" && self.is_system_role(),
                _ => false,
            };
            self.media += u64::from(inner.is_media() && !place.is_media());
            let before = std::mem::take(&mut self.low);
            self.value(inner);
            let own = std::mem::replace(&mut self.low, before);
            // Of a member that is there twice, engines take the last.
            if let Some(at) = COUNTED.iter().position(|name| *name == key) {
                lows[at] = own;
            }
        }
        self.at += 1;
        self.low += match (place, lows) {
            // One dialect at a time: what the others would read, this one ignores.
            (Place::Top, [messages, .., system, _, _, _]) if messages > 0 => messages + system,
            (Place::Top, [_, input, _, instructions, ..]) if input > 0 => input + instructions,
            _ => lows.iter().sum(),
        };
    }

    fn is_system_role(&self) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        rest.starts_with(b"\"system\"") || rest.starts_with(b"\"developer\"")
    }

    /// Jumps behind a string.
    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            self.at += match byte {
                b'\\' => 2,
                b'"' => break,
                _ => 1,
            };
        }
        self.at += 1;
    }

    fn string(&mut self, place: Place) {
        let start = self.at;
        let is_text = matches!(place, Place::Content | Place::Prompt | Place::Messages | Place::Part);
        let words = self.words();
        let length = (self.at - start) as u64;
        let inner = self.text.get(start + 1..).unwrap_or_default();
        // A line that vLLM leaves out of system messages.
        if is_text && !inner.starts_with(b"x-anthropic-billing-header") {
            self.low += words;
        }
        if place.is_media() && (length > 512 || inner.starts_with(b"data:")) {
            self.media_bytes += length;
            // A sound may be of any length: a token for each 32 bytes, at the lowest bit rates in use.
            self.extra += if place == Place::Stream { length / 32 } else { 0 };
        }
    }

    /// Reads a string: the words in it that are a token at least. Adds up what NFC may add to it.
    fn words(&mut self) -> u64 {
        let mut words = 0;
        // Where the text begins that no template leaves out.
        let mut kept = self.at + 1;
        let mut state = State::Out;
        self.at += 1;
        while let Some(&byte) = self.text.get(self.at) {
            let (class, width) = match CLASSES[usize::from(byte)] {
                Class::End => break,
                Class::Escape => self.escape(),
                Class::Close => {
                    if self.text[..=self.at].ends_with(b"/think>") {
                        (words, kept) = (0, self.at + 1);
                    }
                    (Class::Nothing, 1)
                }
                Class::Mark => {
                    let second = self.text.get(self.at + 1).copied().unwrap_or_default();
                    self.grown += nfc_growth(byte, second);
                    (Class::Mark, 1)
                }
                class => (class, 1),
            };
            let (next, counts) = STEPS[state as usize][class as usize];
            state = next;
            words += counts;
            self.at += width;
        }
        let length = self.at.saturating_sub(kept) as u64;
        self.at += 1;
        // An escape of six bytes may stand for one.
        words.max(length / (6 * LONGEST_TOKEN))
    }

    /// The class and the width of an escape. Of a doubled backslash the next character is a part: text in text is escaped twice.
    fn escape(&self) -> (Class, usize) {
        match self.text.get(self.at + 1) {
            Some(b'u') => {
                let hex =
                    self.text.get(self.at + 2..self.at + 6).and_then(|hex| std::str::from_utf8(hex).ok());
                let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or_default();
                let class = match u8::try_from(code).map(char::from) {
                    Ok(c) if c.is_ascii_alphabetic() => Class::Letter,
                    Ok(c) if c.is_ascii_digit() => Class::Digit,
                    Ok(c) if c.is_ascii() => Class::Nothing,
                    _ => Class::Mark,
                };
                (class, 6)
            }
            Some(b'\\') => match self.text.get(self.at + 2) {
                Some(b'u') => {
                    let hex = self.text.get(self.at + 3..self.at + 7).unwrap_or_default();
                    (Class::Mark, 3 + hex.iter().take_while(|c| c.is_ascii_hexdigit()).count())
                }
                Some(c) if c.is_ascii_alphabetic() => (Class::Nothing, 3),
                _ => (Class::Nothing, 2),
            },
            _ => (Class::Nothing, 2),
        }
    }
}

impl Place {
    fn is_media(self) -> bool {
        matches!(self, Self::Image | Self::Stream)
    }

    /// Where the value under `key` stands.
    fn inside(self, key: &[u8]) -> Self {
        match (self, key) {
            (Self::Top, b"messages" | b"input") => Self::Messages,
            (Self::Top, b"system" | b"instructions") => Self::Content,
            (Self::Top, b"prompt") => Self::Prompt,
            (Self::Message, b"content" | b"output") | (Self::Part, b"content" | b"text") => Self::Content,
            (Self::Message | Self::Part, b"image_url" | b"image" | b"source") => Self::Image,
            (Self::Message | Self::Part, b"input_audio" | b"audio_url" | b"video_url" | b"input_video") => {
                Self::Stream
            }
            (Self::Message | Self::Part, b"file" | b"file_data" | b"data") => Self::Stream,
            (Self::Image | Self::Stream, _) => self,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::{PER_IMAGE, bounds};
    use crate::request::ChatRequest;

    fn of(body: &serde_json::Value) -> (u64, u64) {
        let request = ChatRequest::parse(Bytes::from(body.to_string())).unwrap();
        let bounds = bounds(&request);
        (bounds.low(), bounds.high())
    }

    fn low(text: &str) -> u64 {
        of(&json!({"messages": [{"role": "user", "content": text}]})).0
    }

    #[test]
    fn words_and_numbers_are_tokens_at_least() {
        for (text, words) in [
            ("", 0),
            ("hello world", 2),
            ("  hello,\n\tworld!  ", 2),
            ("abc123 4", 3),
            ("don't", 1),
            ("it's 5 o'clock", 3),
            ("5\u{b2}5 a\u{301}b \u{201c}a\u{201d}", 3),
            ("naïve café", 2),
            ("你好世界", 0),
            ("a你b", 1),
            ("«a» — b", 2),
            ("\\n \\u00e4", 0),
            ("</think>yes", 1),
            ("no no</think>\nyes", 1),
        ] {
            assert_eq!(low(text), words, "{text}");
        }
        assert_eq!(low(&"x".repeat(7680)), 10);
    }

    #[test]
    fn every_dialect_has_its_text_where_it_keeps_it() {
        for body in [
            json!({"messages": [{"role": "user", "content": "one two"}, {"role": "tool", "content": "three"}]}),
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "one two three"}]}]}),
            json!({"prompt": "one two three"}),
            json!({"prompt": ["one", "two three"]}),
            json!({"prompt": [1, 22, 333]}),
            json!({"instructions": "one", "input": "two three"}),
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "one two"}]},
                             {"type": "function_call_output", "call_id": "x", "output": "three"}]}),
            json!({"system": [{"type": "text", "text": "one"}], "messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "two three"}]}]}]}),
        ] {
            assert_eq!(of(&body).0, 3, "{body}");
        }
    }

    #[test]
    fn what_may_stay_out_of_the_prompt_is_not_counted_from_below() {
        let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"b c d\"}"}});
        let body = json!({"model": "a model", "metadata": {"content": "x y z"}, "tools": [{"type": "function"}],
            "messages": [{"role": "assistant", "content": null, "tool_calls": [call], "reasoning_content": "a b"},
                         {"role": "system", "content": "x-anthropic-billing-header: a b c"}]});
        assert_eq!(of(&body).0, 0);
        let stray = json!({"messages": [{"role": "user", "content": "a b"}], "prompt": "c d", "input": "e", "instructions": "f"});
        assert_eq!(of(&stray).0, 2);
        let twice = br#"{"messages":[{"content":"a b c","content":"d"}],"messages":[{"content":"a b c d","content":"e f"}]}"#;
        assert_eq!(bounds(&ChatRequest::parse(Bytes::from_static(twice)).unwrap()).low(), 2);
    }

    #[test]
    fn base64_is_no_prompt_text() {
        let data = "QUJD".repeat(100_000);
        for part in [
            json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}}),
            json!({"type": "input_image", "image_url": format!("data:image/png;base64,{data}")}),
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}),
        ] {
            let body = json!({"messages": [{"role": "user", "content": [part, {"type": "text", "text": "what is it"}]}]});
            let (low, high) = of(&body);
            assert_eq!(low, 3);
            assert!(high > PER_IMAGE && high < PER_IMAGE + 4_000, "{high}");
        }
        let sound = json!({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}});
        let (_, high) = of(&json!({"messages": [{"role": "user", "content": [sound]}]}));
        assert!(high < PER_IMAGE + 20_000, "{high}");
        let (_, without) = of(&json!({"messages": [{"role": "user", "content": data}]}));
        assert!(without > 400_000);
    }

    #[test]
    fn the_upper_bound_grows_with_text_messages_and_tools() {
        let plain = of(&json!({"messages": [{"role": "user", "content": "hi"}]})).1;
        let longer = of(&json!({"messages": [{"role": "user", "content": "hi".repeat(500)}]})).1;
        assert_eq!(longer - plain, 998);
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        let with_tool = of(&json!({"messages": [{"role": "user", "content": "hi"}], "tools": [tool]})).1;
        assert!(with_tool > plain + 200);
    }

    #[test]
    fn escaped_bodies_have_the_same_words() {
        let body = br#"{"messages":[{"role":"user","content":"\u0061b\u00e9c \u0031\t\"d\"\\e"}]}"#;
        let request = ChatRequest::parse(Bytes::from_static(body)).unwrap();
        // abéc, 1, d; the letter behind a backslash may be half of an escape.
        assert_eq!(bounds(&request).low(), 3);
    }
}
