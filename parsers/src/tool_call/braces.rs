//! Gemma's own notation: `call:NAME{k:<|"|>text<|"|>,n:1,o:{…},a:[…]}`, and FunctionGemma's with `<escape>`.
//!
//! A delimited string is verbatim, and may show whole calls: their delimiters are counted. What stands bare is typed by the
//! schema, so `00777` for a string keeps its zeros.

use super::grammar::{Call, Context, End, Step, blanks, name_length, starts_with_any};
use super::json_block::{self, Body};
use super::normalise::{self, quoted};
use super::pythonic::Stop;
use super::values::{DEPTH, Values};

/// What stands around calls and strings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks<'m> {
    pub(crate) quote: &'m str,
    pub(crate) openers: &'m [&'m str],
    pub(crate) closers: &'m [&'m str],
}

/// Reads `call:NAME{…}` from `at` on, then one of the closers.
pub(crate) fn call(text: &str, at: usize, marks: Marks<'_>, ctx: Context<'_>) -> Step {
    let closers = marks.closers;
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
        match object(text, from, name, marks, ctx) {
            Ok(read) => read,
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

/// The call whose braces begin at `at`, and where they end. A call that a string shows is counted; where that leaves the string
/// open at the end of the answer, the opener was only mentioned, and the first delimiter ends the string.
fn object(
    text: &str,
    at: usize,
    name: &str,
    marks: Marks<'_>,
    ctx: Context<'_>,
) -> Result<(Call, usize), Stop> {
    let read = |counts| {
        let mut reader = Reader { text, at: at + 1, marks, counts, depth: 1 };
        let mut values = Values::new(name, ctx.tools);
        reader.members(Some(&mut values)).map(|_| (values.call(), reader.at))
    };
    match (read(true), ctx.end) {
        (Err(Stop::Short), End::Stop) => read(false),
        // Cut inside a string, or behind it: two readings, and none of them may run.
        (Err(Stop::Short), End::Cut) => read(false).and(Err(Stop::Short)),
        (found, _) => found,
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    marks: Marks<'t>,
    /// Calls that a string shows are counted.
    counts: bool,
    /// Containers that are open.
    depth: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
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
            let key = key.strip_prefix(self.marks.quote).unwrap_or(key);
            let key = key.strip_suffix(self.marks.quote).unwrap_or(key).trim_matches('"').to_owned();
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
        if self.eat(self.marks.quote) {
            let end = self.string_length().ok_or(Stop::Short)?;
            let text = self.rest()[..end].to_owned();
            self.at += end + self.marks.quote.len();
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

    /// Bytes of a delimited string: up to a delimiter outside of any call that it shows.
    fn string_length(&self) -> Option<usize> {
        let (rest, mut open) = (self.rest(), 0usize);
        if !self.counts {
            return rest.find(self.marks.quote);
        }
        memchr::memchr_iter(b'<', rest.as_bytes()).find(|at| {
            let here = &rest[*at..];
            if let Ok(opener) = starts_with_any(here, self.marks.openers) {
                open += usize::from(here[opener.len()..].starts_with("call:"));
            } else if starts_with_any(here, self.marks.closers).is_ok() {
                open = open.saturating_sub(1);
            }
            open == 0 && here.starts_with(self.marks.quote)
        })
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
