//! A schema, flattened: `$ref`, `anyOf`, `oneOf` and `allOf` resolved to the alternatives that they amount to.
//!
//! Why: types come in a dozen spellings (`type` lists, `nullable`, `anyOf` with null, an enum alone), and coercion asks
//! one question only: which types are allowed here? A union of all alternatives answers it safely: the more is
//! allowed, the less is coerced.
//!
//! It must never follow a reference in circles, and never copy a schema.

use serde_json::Value;

/// References that are followed, and combinators inside each other, at most.
const DEPTH: usize = 16;
/// Alternatives at one place, at most.
const WIDTH: usize = 64;

/// A set of JSON types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) null: bool,
    pub(super) integer: bool,
    pub(super) number: bool,
    pub(super) boolean: bool,
    pub(super) object: bool,
    pub(super) array: bool,
    pub(super) string: bool,
    /// Some alternative says nothing of types.
    pub(super) any: bool,
}

/// The alternatives at one place of a tool's schema.
#[derive(Clone, Debug)]
pub(super) struct Branches<'a> {
    root: &'a Value,
    leaves: Vec<&'a Value>,
}

impl<'a> Branches<'a> {
    /// The alternatives of `schema`, whose references are resolved in `root`.
    pub(super) fn of(root: &'a Value, schema: &'a Value) -> Self {
        let mut branches = Self { root, leaves: Vec::new() };
        branches.add(schema, DEPTH);
        branches
    }

    fn add(&mut self, schema: &'a Value, depth: usize) {
        if depth == 0 || self.leaves.len() >= WIDTH {
            return;
        }
        if let Some(target) = reference(self.root, schema) {
            self.add(target, depth - 1);
        }
        let before = self.leaves.len();
        if says_type(schema) {
            self.leaves.push(schema);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for part in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                // Where the schema itself has a type, parts without one only narrow it.
                if self.leaves.len() == before || says_type(part) || part.get("$ref").is_some() {
                    self.add(part, depth - 1);
                }
            }
        }
        if self.leaves.len() == before && schema.get("$ref").is_none() {
            self.leaves.push(schema);
        }
    }

    /// Whether any alternative declares this member.
    pub(super) fn has_property(&self, name: &str) -> bool {
        self.leaves.iter().any(|leaf| property(leaf, name).is_some())
    }

    /// The alternatives of a member; none when no alternative knows it.
    pub(super) fn property(&self, name: &str) -> Self {
        let mut found = Self { root: self.root, leaves: Vec::new() };
        for leaf in &self.leaves {
            let schema = property(leaf, name).or_else(|| leaf.get("additionalProperties"));
            if let Some(schema) = schema.filter(|schema| schema.is_object()) {
                found.add(schema, DEPTH);
            }
        }
        found
    }

    /// The alternatives of an element; none when nothing is said of elements.
    pub(super) fn element(&self, index: usize) -> Self {
        let mut found = Self { root: self.root, leaves: Vec::new() };
        for leaf in &self.leaves {
            let fixed = leaf.get("prefixItems").and_then(|items| items.get(index));
            if let Some(schema) = fixed.or_else(|| leaf.get("items")).filter(|schema| schema.is_object()) {
                found.add(schema, DEPTH);
            }
        }
        found
    }

    /// All types that are allowed; any when nothing is known.
    pub(super) fn types(&self) -> Types {
        let mut types = Types { any: self.leaves.is_empty(), ..Types::default() };
        for leaf in &self.leaves {
            types.add(leaf);
        }
        types
    }

    /// Whether some alternative lists `value` among the only ones; `None` when none lists values.
    pub(super) fn lists(&self, value: &Value) -> Option<bool> {
        let mut listed = self.leaves.iter().filter_map(|leaf| {
            let values = leaf.get("enum").and_then(Value::as_array);
            values.map(|values| values.contains(value)).or_else(|| Some(leaf.get("const")? == value))
        });
        let first = listed.next()?;
        Some(first || listed.any(|hit| hit))
    }
}

impl Types {
    fn add(&mut self, schema: &Value) {
        let mut said = schema.get("nullable") == Some(&Value::Bool(true));
        self.null |= said;
        match schema.get("type") {
            Some(Value::String(name)) => said = self.add_name(name),
            Some(Value::Array(names)) => {
                for name in names.iter().filter_map(Value::as_str) {
                    said |= self.add_name(name);
                }
            }
            _ => {
                said = false;
                let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
                for value in values.chain(schema.get("const")) {
                    said |= self.add_name(name_of(value));
                }
                if schema.get("properties").is_some() {
                    said |= self.add_name("object");
                }
                if schema.get("items").is_some() {
                    said |= self.add_name("array");
                }
            }
        }
        self.any |= !said;
    }

    /// A type by its name, also in the words of other languages.
    fn add_name(&mut self, name: &str) -> bool {
        let field = match name.to_ascii_lowercase().as_str() {
            "null" => &mut self.null,
            "integer" | "int" => &mut self.integer,
            "number" | "float" | "double" => &mut self.number,
            "boolean" | "bool" => &mut self.boolean,
            "object" | "dict" => &mut self.object,
            "array" | "list" => &mut self.array,
            "string" | "str" => &mut self.string,
            _ => return false,
        };
        *field = true;
        true
    }
}

/// The type of a value, a number without a fraction being an integer.
pub(super) fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The schema that a `$ref` inside the tool's own schema means.
pub(super) fn reference<'a>(root: &'a Value, schema: &Value) -> Option<&'a Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get("properties")?.get(name)
}

fn says_type(schema: &Value) -> bool {
    ["type", "enum", "const", "properties", "items"].iter().any(|key| schema.get(key).is_some())
}
