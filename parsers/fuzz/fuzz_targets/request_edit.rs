//! Any body is read or refused as serde_json has it; and whatever edits are made of what was read, the outcome is JSON.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::{ChatRequest, RequestError};

fn all<'a>(value: Value<'a>, found: &mut Vec<Value<'a>>) {
    found.push(value);
    value.members().for_each(|member| all(member.value, found));
    value.elements().for_each(|element| all(element, found));
}

fn edit(edits: &mut Edits, value: Value<'_>, choice: u8) {
    let keys: Vec<_> = value.members().map(|member| member.name().into_owned()).collect();
    let key = keys.get(usize::from(choice) % (keys.len() + 1)).map_or("new", String::as_str);
    match (value.kind(), choice % 4) {
        (Kind::Object, 0) => edits.remove(value, key),
        (Kind::Object, 1 | 2) => edits.set(value, key, "{\"edited\":[]}"),
        (Kind::Array, 0) => edits.remove_element(value, usize::from(choice / 4)),
        (Kind::Array, 1 | 2) => edits.push(value, "\"pushed\""),
        _ => edits.replace(value, "1.0"),
    }
}

fuzz_target!(|input: (Vec<u8>, Vec<(u16, u8)>)| {
    let (body, choices) = input;
    let request = match ChatRequest::parse(Bytes::from(body.clone())) {
        Ok(request) => request,
        Err(RequestError::TooDeep(_)) => return,
        Err(_) => {
            assert!(!serde_json::from_slice::<serde_json::Value>(&body).is_ok_and(|value| value.is_object()));
            return;
        }
    };
    assert_eq!(request.body(), &body);
    let _ = (request.check_chat(), request.model(), request.output_limit(), request.wants_usage());
    for message in request.messages() {
        let _ = (message.role(), message.text(), message.has_image(), message.tool_calls().count());
    }
    let mut values = Vec::new();
    all(request.root(), &mut values);
    for value in &values {
        assert_eq!(value.raw().as_bytes(), &body[value.range()]);
        let _ = (value.as_str(), value.as_f64(), value.as_i64());
    }
    let (mut base, mut candidate) = (Edits::new(), Edits::new());
    for (index, (place, choice)) in choices.iter().enumerate() {
        let edits = if index % 2 == 0 { &mut base } else { &mut candidate };
        edit(edits, values[usize::from(*place) % values.len()], *choice);
    }
    let written = request.write(&base, &candidate);
    let text = std::str::from_utf8(&written).expect("utf-8");
    Value::parse(text).expect("json");
    if choices.is_empty() {
        assert_eq!(written, body);
    }
});
