//! `tool_choice` of the type `allowed_tools`: of the declared tools only some may be called.
//!
//! Why: clients switch modes with it and leave their list of tools as it is. vLLM's chat refuses the whole request for it, llama.cpp
//! takes any choice that is no word for `auto` and offers every tool. So it is said in words that all servers know: the
//! allowed tools alone, and `auto` or `required`.
//!
//! It must never leave a tool in that is not allowed, and never demand a call that the client did not demand. The prompt's head
//! differs where the list does; a call of a forbidden tool would cost more.

use std::borrow::Cow;

use bytes::Bytes;

use super::NotChat;
use crate::edit::Edits;
use crate::json::{Kind, Value};
use crate::request::ChatRequest;

/// The tools that may be called, and whether one must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed<'a> {
    names: Vec<Cow<'a, str>>,
    /// Some call is demanded.
    pub required: bool,
}

impl<'a> Allowed<'a> {
    /// The choice, if it is one of this type: `{"type", "allowed_tools": {"mode", "tools"}}` as chat has it, or with both members in
    /// the choice itself, as the Responses API has it.
    pub fn of(choice: Value<'a>) -> Option<Self> {
        choice.get("type").filter(|kind| kind.is_text("allowed_tools"))?;
        let own = choice.get("allowed_tools").filter(|own| own.kind() == Kind::Object).unwrap_or(choice);
        let name = |tool: Value<'a>| {
            let places = ["/function/name", "/custom/name", "/name"];
            places.into_iter().find_map(|place| tool.at(place)).and_then(Value::as_str)
        };
        let names = own.get("tools").into_iter().flat_map(Value::elements).filter_map(name).collect();
        Some(Self { names, required: own.get("mode").is_some_and(|mode| mode.is_text("required")) })
    }

    /// Whether the tool of this name may be called.
    pub fn allows(&self, name: &str) -> bool {
        self.names.iter().any(|allowed| allowed == name)
    }
}

/// The body of a chat request with its allowed tools alone. `None`: all may be called.
///
/// # Errors
/// None of the allowed tools is declared, or a call is demanded and no tool allowed.
pub fn only_allowed(request: &ChatRequest) -> Result<Option<Bytes>, NotChat> {
    let root = request.root();
    let Some((choice, allowed)) =
        root.get("tool_choice").and_then(|choice| Some((choice, Allowed::of(choice)?)))
    else {
        return Ok(None);
    };
    let is_allowed = |tool: Value<'_>| {
        let name = tool.at("/function/name").and_then(Value::as_str);
        name.is_some_and(|name| allowed.allows(&name))
    };
    let mut edits = Edits::new();
    if request.tools().any(is_allowed) {
        edits.replace(choice, if allowed.required { "\"required\"" } else { "\"auto\"" });
        for (at, _) in request.tools().enumerate().filter(|(_, tool)| !is_allowed(*tool)) {
            root.get("tools").into_iter().for_each(|tools| edits.remove_element(tools, at));
        }
    } else if allowed.names.is_empty() && !allowed.required {
        edits.replace(choice, "\"none\"");
    } else {
        let problem = match allowed.names.as_slice() {
            [] => "demands a call and allows no tool: name one in its tools, or send \"none\"".to_owned(),
            names => format!("allows {}, and tools declares none of them", names.join(", ")),
        };
        return Err(NotChat { param: "tool_choice".to_owned(), problem });
    }
    Ok(Some(request.write(&edits, &Edits::new())))
}
