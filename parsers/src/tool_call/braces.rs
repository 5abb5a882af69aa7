//! Gemma's own notation: `call:NAME{k:<|"|>text<|"|>,n:1,o:{…},a:[…]}`, and FunctionGemma's with `<escape>`.
//!
//! A delimited string is verbatim. What stands bare is typed by the schema, so `00777` for a string keeps its zeros.

use super::grammar::{Context, Step, blanks, name_length, starts_with_any};
use super::json_block::{self, Body};
use super::normalise::{self, quoted};
use super::pythonic::Stop;
use super::values::{DEPTH, Values};

/// Reads `call:NAME{…}` from `at` on, then one of the closers.
pub(crate) fn call(text: &str, at: usize, quote: &str, closers: &[&str], ctx: Context<'_>) -> Step {
    let start = at + blanks(&text[at..]);
    let Some(rest) = text[start..].strip_prefix("call:") else {
        return if "call:".starts_with(&text[start..]) { Step::More } else { Step::Not(at) };
    };
    let length = name_length(rest);
    if length == rest.len() {
        return Step::More;
    }
    let (name, body) = rest.split_at(length);
    if name.is_empty() || !body.starts_with('{') {
        return Step::Not(at);
    }
    let from = text.len() - body.len();
    let inside = body[1..].trim_start();
    let (call, end) = if inside.is_empty() {
        return Step::More;
    } else if inside.starts_with('"') {
        match json_block::arguments(body, closers, ctx) {
            Body::More => return Step::More,
            Body::Bad => return Step::Broken(Vec::new(), from),
            Body::Object(json, notes, used) => {
                let mut call = normalise::call(name, &json, ctx.tools);
                call.notes.splice(0..0, notes);
                (call, from + used)
            }
        }
    } else {
        let mut reader = Reader { text, at: from + 1, quote, depth: 1 };
        let mut values = Values::new(name, ctx.tools);
        match reader.members(Some(&mut values)) {
            Ok(_) => (values.call(), reader.at),
            Err(Stop::Short) => return Step::More,
            Err(Stop::Bad) => return Step::Broken(Vec::new(), from),
        }
    };
    let after = end + blanks(&text[end..]);
    match starts_with_any(&text[after..], closers) {
        Ok(closer) => Step::Calls(vec![call], after + closer.len()),
        Err(true) if !ctx.end.is_end() => Step::More,
        Err(true) => Step::Calls(vec![call], text.len()),
        Err(false) => Step::Calls(vec![call], end),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    quote: &'t str,
    /// Containers that are open.
    depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        self.at += blanks(self.rest());
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    /// The members of an object behind its brace: into `values`, or as JSON.
    fn members(&mut self, mut values: Option<&mut Values<'_>>) -> Result<String, Stop> {
        let mut members = Vec::new();
        loop {
            self.skip();
            if self.eat("}") {
                return Ok(format!("{{{}}}", members.join(", ")));
            }
            let colon = self.rest().find(':').ok_or(Stop::Short)?;
            let key = self.rest()[..colon].trim();
            let key = key.strip_prefix(self.quote).unwrap_or(key);
            let key = key.strip_suffix(self.quote).unwrap_or(key).trim_matches('"').to_owned();
            if key.is_empty() || key.contains(['{', '}', '[', ']', ',']) {
                return Err(Stop::Bad);
            }
            self.at += colon + 1;
            self.skip();
            let value = self.value()?;
            match values.as_deref_mut() {
                Some(values) => match value {
                    Value::Text(text) => values.push(&key, &text),
                    Value::Bare(text) => values.push_loose(&key, &text),
                    Value::Json(json) => values.push_json(&key, json),
                },
                None => members.push(format!("{}: {}", quoted(&key), value.json())),
            }
            self.skip();
            if !self.eat(",") && !self.rest().starts_with('}') {
                return Err(if self.rest().is_empty() { Stop::Short } else { Stop::Bad });
            }
        }
    }

    fn value(&mut self) -> Result<Value, Stop> {
        if self.eat(self.quote) {
            let end = self.rest().find(self.quote).ok_or(Stop::Short)?;
            let text = self.rest()[..end].to_owned();
            self.at += end + self.quote.len();
            return Ok(Value::Text(text));
        }
        if self.rest().starts_with('"') {
            return self.string();
        }
        if self.rest().starts_with(['{', '[']) {
            if self.depth >= DEPTH {
                return Err(Stop::Bad);
            }
            self.depth += 1;
            let json = if self.eat("{") { self.members(None) } else { self.items() }?;
            self.depth -= 1;
            return Ok(Value::Json(json));
        }
        let end = self.rest().find([',', '}', ']']).ok_or(Stop::Short)?;
        let bare = &self.rest()[..end];
        if bare.trim().is_empty() || bare.contains('<') {
            return Err(Stop::Bad);
        }
        let bare = bare.trim().to_owned();
        self.at += end;
        Ok(Value::Bare(bare))
    }

    /// A string in JSON's quotes.
    fn string(&mut self) -> Result<Value, Stop> {
        let end = json_block::string_end(self.rest().as_bytes(), 0).ok_or(Stop::Short)?;
        let text = serde_json::from_str(&self.rest()[..end]).map_err(|_| Stop::Bad)?;
        self.at += end;
        Ok(Value::Text(text))
    }

    /// An array from its bracket on, as JSON.
    fn items(&mut self) -> Result<String, Stop> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip();
            if self.eat("]") {
                return Ok(format!("[{}]", items.join(", ")));
            }
            items.push(self.value()?.json());
            self.skip();
            if !self.eat(",") && !self.rest().starts_with(']') {
                return Err(if self.rest().is_empty() { Stop::Short } else { Stop::Bad });
            }
        }
    }
}

enum Value {
    /// A delimited string, or one in JSON's quotes.
    Text(String),
    /// Undelimited text.
    Bare(String),
    Json(String),
}

impl Value {
    fn json(self) -> String {
        match self {
            Self::Text(text) => quoted(&text),
            Self::Bare(text) if crate::json::Value::parse(&text).is_ok() => text,
            Self::Bare(text) => quoted(&text),
            Self::Json(json) => json,
        }
    }
}
