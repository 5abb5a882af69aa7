//! Whether arguments are what a schema asks for.
//!
//! Why: a policy may pass a wrong call with a note, or ask the model once more with the error. So the sentence is
//! written for the model: which parameter, what is wanted, of which type it is. Never a value: it goes to the log, too.
//!
//! It must never refuse what it does not understand: keywords beyond these are taken as kept.

use serde_json::Value;

use super::branches::{name_of, reference};

/// Values inside each other, references and combinators, at most; deeper ones are taken as right.
const DEPTH: usize = 64;

pub(super) fn check(schema: &Value, arguments: &str) -> Result<(), String> {
    let arguments: Value =
        serde_json::from_str(arguments).map_err(|error| format!("arguments are not valid json: {error}"))?;
    if !arguments.is_object() {
        return Err(format!("arguments must be an object, found {}", article(name_of(&arguments))));
    }
    Check { root: schema }.value(schema, &arguments, "arguments", DEPTH)
}

struct Check<'a> {
    root: &'a Value,
}

impl Check<'_> {
    fn value(&self, schema: &Value, value: &Value, path: &str, depth: usize) -> Result<(), String> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
        if schema == &Value::Bool(false) {
            return Err(format!("{path} is not allowed"));
        }
        if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
            return Ok(());
        }
        if let Some(target) = reference(self.root, schema) {
            self.value(target, value, path, depth)?;
        }
        of_type(schema, value, path)?;
        listed(schema, value, path)?;
        for part in parts(schema, "allOf") {
            self.value(part, value, path, depth)?;
        }
        for key in ["anyOf", "oneOf"] {
            let mut errors = Vec::new();
            for part in parts(schema, key) {
                match self.value(part, value, path, depth) {
                    Ok(()) => {
                        errors.clear();
                        break;
                    }
                    Err(error) => errors.push(error),
                }
            }
            match errors.len() {
                0 => {}
                1 => return Err(errors.remove(0)),
                _ => return Err(format!("{path} fits no alternative: {}", errors.join("; or "))),
            }
        }
        match value {
            Value::Object(members) => self.members(schema, members, path, depth),
            Value::Array(elements) => {
                let items = schema.get("items").filter(|items| items.is_object());
                elements.iter().enumerate().try_for_each(|(index, element)| {
                    let fixed = schema.get("prefixItems").and_then(|fixed| fixed.get(index));
                    match fixed.or(items) {
                        Some(schema) => self.value(schema, element, &format!("{path}[{index}]"), depth),
                        None => Ok(()),
                    }
                })
            }
            _ => Ok(()),
        }
    }

    fn members(
        &self,
        schema: &Value,
        members: &serde_json::Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<(), String> {
        let name_in = |name: &str| match path {
            "arguments" => name.to_owned(),
            _ => format!("{path}.{name}"),
        };
        for name in parts(schema, "required").filter_map(Value::as_str) {
            if !members.contains_key(name) {
                return Err(format!("{} is required", name_in(name)));
            }
        }
        let others = schema.get("additionalProperties");
        for (name, value) in members {
            match schema.get("properties").and_then(|known| known.get(name)) {
                Some(schema) => self.value(schema, value, &name_in(name), depth)?,
                None if others == Some(&Value::Bool(false)) && schema.get("patternProperties").is_none() => {
                    return Err(format!("{} is not a known parameter", name_in(name)));
                }
                None => {
                    if let Some(schema) = others.filter(|others| others.is_object()) {
                        self.value(schema, value, &name_in(name), depth)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn of_type(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let own = name_of(value);
    let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = |name: &&str| match *name {
        "number" => value.is_number(),
        "integer" => own == "integer" || whole,
        "null" | "boolean" | "object" | "array" | "string" => *name == own,
        _ => true,
    };
    if names.is_empty() || names.iter().any(fits) {
        return Ok(());
    }
    let wanted: Vec<&str> = names.iter().map(|name| article(name)).collect();
    Err(format!("{path} must be {}, found {}", wanted.join(" or "), article(own)))
}

fn listed(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let same = |listed: &Value| {
        listed == value || (value.is_number() && listed.is_number() && listed.as_f64() == value.as_f64())
    };
    match (schema.get("enum").and_then(Value::as_array), schema.get("const")) {
        (Some(values), _) if !values.iter().any(same) => {
            let values: Vec<String> = values.iter().map(Value::to_string).collect();
            Err(format!("{path} must be one of {}", values.join(", ")))
        }
        (_, Some(only)) if !same(only) => Err(format!("{path} must be {only}")),
        _ => Ok(()),
    }
}

fn parts<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn article(name: &str) -> &str {
    match name {
        "null" => "null",
        "integer" => "an integer",
        "object" => "an object",
        "array" => "an array",
        "number" => "a number",
        "boolean" => "a boolean",
        "string" => "a string",
        other => other,
    }
}
