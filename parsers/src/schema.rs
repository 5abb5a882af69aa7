//! The tools that a request declares, and the types that their schemas give to arguments.
//!
//! Why: models write `"5"` where a number belongs and `00123` where text does, and XML formats have no types at all.
//! Only the schema decides; how text looks never does.
//!
//! Coercion must never invent: each string and number of the outcome is one of the source, and what the schema does
//! not ask for stays byte for byte.

mod branches;
mod check;
mod coerce;

use std::collections::HashMap;

use serde_json::Value;

use crate::request::ChatRequest;
use branches::Branches;

/// The declared tools.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    tools: Vec<Tool>,
    /// The number of the tool that has a name; of duplicates the first.
    by_name: HashMap<String, usize>,
}

/// One declared tool.
#[derive(Clone, Debug)]
pub struct Tool {
    name: String,
    /// The schema of the arguments; null when there is none.
    parameters: Value,
}

/// One step towards a value inside arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathPart {
    /// Into the member of this name.
    Key(String),
    /// Into the element of this number.
    Element(usize),
}

/// Arguments after coercion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coerced {
    /// The arguments; the source bytes where nothing was coerced.
    pub json: String,
    /// What was done, one sentence each, the first sixteen; empty when nothing was.
    pub notes: Vec<String>,
}

/// The name under which a model knows a tool of a namespace (vLLM, `tool_parsers/utils.py`).
pub fn flat_name(namespace: &str, name: &str) -> String {
    format!("{namespace}__{name}")
}

/// The schema of a tool that takes free text.
fn free_text() -> Value {
    serde_json::json!({ "type": "object", "properties": { "input": { "type": "string" } }, "required": ["input"] })
}

/// Namespaces that leak from other families into names.
const PREFIXES: [&str; 5] = ["functions.", "function.", "tools.", "tool.", "default_api."];

impl ToolSet {
    /// The tools of a request, in any dialect: `{"function":{"name","parameters"}}` (chat), `{"name","parameters"}`
    /// (responses), `{"name","input_schema"}` (messages). Those of a namespace are named `NAMESPACE__NAME`, as vLLM shows them to the
    /// model, and free text is one string, `input`. What has no name is left out, and so is what only its maker's servers have.
    pub fn new(request: &ChatRequest) -> Self {
        Self::of(request.tools().map(|tool| tool.raw()))
    }

    /// The tools of a JSON array as a request's `tools` has it; none when it is no such array.
    pub fn from_json(tools: &str) -> Self {
        match crate::json::Value::parse(tools) {
            Ok(array) => Self::of(array.elements().map(|tool| tool.raw())),
            Err(_) => Self::default(),
        }
    }

    fn of<'a>(tools: impl Iterator<Item = &'a str>) -> Self {
        let mut set = Self::default();
        for tool in tools.flat_map(Tool::read) {
            set.add(tool);
        }
        set
    }

    /// Those of them that may be called.
    #[must_use]
    pub fn restricted(self, may: impl Fn(&str) -> bool) -> Self {
        let mut set = Self::default();
        for tool in self.tools.into_iter().filter(|tool| may(&tool.name)) {
            set.add(tool);
        }
        set
    }

    fn add(&mut self, tool: Tool) {
        self.by_name.entry(tool.name.clone()).or_insert(self.tools.len());
        self.tools.push(tool);
    }

    /// Whether no tool is declared.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The declared names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(Tool::name)
    }

    /// The declared name that `written` means: itself; else without a namespace (`functions.`) and without special
    /// tokens stuck to its end (`<|channel|>…`); else with `-` and `_` alike; else in any case. None unless exactly
    /// one declared name is hit.
    pub fn resolve(&self, written: &str) -> Option<&str> {
        if let Some(tool) = self.tool(written) {
            return Some(&tool.name);
        }
        let bare = written.split("<|").next().unwrap_or_default().trim();
        let short = PREFIXES.iter().find_map(|prefix| bare.strip_prefix(prefix)).unwrap_or(bare);
        for name in [bare, short] {
            if let Some(tool) = self.tool(name) {
                return Some(&tool.name);
            }
        }
        let dashed = |name: &str| name.replace('-', "_");
        let folded = |name: &str| dashed(name).to_ascii_lowercase();
        self.only(|name| dashed(name) == dashed(short)).or_else(|| {
            let alike = |name: &str| dashed(name) == dashed(short);
            if self.names().any(alike) { None } else { self.only(|name| folded(name) == folded(short)) }
        })
    }

    /// The only name that fits.
    fn only(&self, fits: impl Fn(&str) -> bool) -> Option<&str> {
        let mut hits = self.by_name.keys().filter(|name| fits(name));
        match (hits.next(), hits.next()) {
            (Some(name), None) => Some(name),
            _ => None,
        }
    }

    /// The tool of this very name.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.get(*self.by_name.get(name)?)
    }
}

impl Tool {
    fn read(tool: &str) -> Vec<Self> {
        let Ok(mut tool) = serde_json::from_str::<Value>(tool) else { return Vec::new() };
        let kind = tool.get("type").and_then(Value::as_str).unwrap_or("function").to_owned();
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        match (kind.as_str(), tool.get_mut("tools").map(Value::take)) {
            ("namespace", Some(Value::Array(inner))) => inner
                .into_iter()
                .filter_map(Self::of)
                .map(|tool| Self { name: flat_name(&name, &tool.name), ..tool })
                .collect(),
            ("custom", _) if tool.get("input_schema").is_none() && !name.is_empty() => {
                vec![Self { name, parameters: free_text() }]
            }
            ("function" | "custom", _) => Self::of(tool).into_iter().collect(),
            _ if tool.get("function").is_some() => Self::of(tool).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn of(mut tool: Value) -> Option<Self> {
        let mut function = match tool.get_mut("function") {
            Some(function) if function.is_object() => function.take(),
            _ => tool,
        };
        let name = function.get("name")?.as_str()?.to_owned();
        let schema =
            ["parameters", "input_schema"].iter().find_map(|key| Some(function.get_mut(*key)?.take()));
        (!name.is_empty()).then(|| Self { name, parameters: schema.unwrap_or(Value::Null) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters that each call must give.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.parameters
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    /// Whether the schema declares a parameter of this name.
    pub fn has_parameter(&self, name: &str) -> bool {
        self.branches().has_property(name)
    }

    /// Whether a text value of this parameter is a string whatever it says: its schema allows strings only, or says
    /// nothing. Such a value may be streamed before it has ended.
    pub fn is_string(&self, parameter: &str) -> bool {
        coerce::text_is_string(&self.branches().property(parameter))
    }

    /// Whether the schema declares the parameter and allows any value.
    pub(crate) fn is_untyped(&self, parameter: &str) -> bool {
        self.has_parameter(parameter) && coerce::is_untyped(&self.branches().property(parameter))
    }

    /// Whether the schema allows a string as this parameter's value.
    pub(crate) fn takes_string(&self, parameter: &str) -> bool {
        coerce::takes_text(&self.branches().property(parameter))
    }

    /// The JSON text of a value that was written without types, as XML formats do: null, integer, number, boolean,
    /// object, array, string, the first that the schema allows and the text reads as. Text that reads as nothing
    /// allowed stays a string; a string is verbatim.
    pub fn value_from_text(&self, parameter: &str, text: &str) -> String {
        coerce::value_from_text(&self.branches().property(parameter), text)
    }

    /// JSON arguments with the types of the schema: `"5"` becomes `5` where only an integer is allowed, `70015` becomes
    /// `"70015"` where only a string is; nested, too. What the schema allows as it is, or does not know, stays.
    pub fn coerce(&self, arguments_json: &str) -> Coerced {
        coerce::coerce(&self.branches(), arguments_json)
    }

    /// Whether a string at this place of the arguments stays what it is.
    pub(crate) fn takes_text(&self, path: &[&PathPart]) -> bool {
        coerce::takes_text(&self.at(path))
    }

    /// What this JSON scalar at this place of the arguments becomes, if the schema does not allow it as it is.
    pub(crate) fn scalar(&self, path: &[&PathPart], json: &str) -> Option<String> {
        coerce::coerce_scalar(&self.at(path), json, path.len())
    }

    fn at(&self, path: &[&PathPart]) -> Branches<'_> {
        path.iter().fold(self.branches(), |schema, part| match part {
            PathPart::Key(name) => schema.property(name),
            PathPart::Element(number) => schema.element(*number),
        })
    }

    /// Whether the arguments are what the schema asks for: required, type, enum, const, nested, any of several.
    ///
    /// # Errors
    /// The first thing that is not, as a sentence for the model: `day must be an integer, found a string`.
    pub fn check(&self, arguments_json: &str) -> Result<(), String> {
        check::check(&self.parameters, arguments_json)
    }

    fn branches(&self) -> Branches<'_> {
        Branches::of(&self.parameters, &self.parameters)
    }
}
