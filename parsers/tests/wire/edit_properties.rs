//! Any edits of any document: the outcome is what the same edits make of a serde_json tree, and what no edit touches
//! keeps its bytes.
//!
//! The documents have white space everywhere, duplicate and escaped keys, and numbers that no machine type holds.

use bytes::Bytes;
use proptest::prelude::*;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::ChatRequest;

#[derive(Clone, Debug)]
enum Op {
    Replace { at: String, json: String },
    Set { at: String, key: String, json: String },
    Remove { at: String, key: String },
    RemoveElement { at: String, index: usize },
    Push { at: String, json: String },
}

/// What becomes of a value that was there.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Kept,
    Removed,
    Replaced(String),
}

impl Op {
    /// The value that it changes, or whose members or elements it changes.
    fn at(&self) -> &str {
        match self {
            Op::Replace { at, .. }
            | Op::Set { at, .. }
            | Op::Remove { at, .. }
            | Op::RemoveElement { at, .. }
            | Op::Push { at, .. } => at,
        }
    }

    fn add_to(&self, edits: &mut Edits, root: Value<'_>) {
        let value = root.at(self.at()).unwrap();
        match self.clone() {
            Op::Replace { json, .. } => edits.replace(value, json),
            Op::Set { key, json, .. } => edits.set(value, &key, json),
            Op::Remove { key, .. } => edits.remove(value, &key),
            Op::RemoveElement { index, .. } => edits.remove_element(value, index),
            Op::Push { json, .. } => edits.push(value, json),
        }
    }

    /// What it makes of the member or element `name` of the container at `parent`.
    fn fate(&self, parent: &str, name: &str) -> Option<Fate> {
        match self {
            Op::Replace { at, json } if *at == format!("{parent}/{name}") => {
                Some(Fate::Replaced(json.clone()))
            }
            Op::Set { at, key, json } if at == parent && key == name => Some(Fate::Replaced(json.clone())),
            Op::Remove { at, key } if at == parent && key == name => Some(Fate::Removed),
            Op::RemoveElement { at, index } if at == parent && index.to_string() == name => {
                Some(Fate::Removed)
            }
            _ => None,
        }
    }
}

fn fate(ops: &[Op], parent: &str, name: &str) -> Fate {
    ops.iter().rev().find_map(|op| op.fate(parent, name)).unwrap_or(Fate::Kept)
}

/// What is appended to the container at `at`; `has` tells the keys that it has.
fn appended(ops: &[Op], at: &str, has: impl Fn(&str) -> bool) -> Vec<(Option<String>, String)> {
    let mut list: Vec<(Option<String>, String)> = Vec::new();
    for op in ops.iter().filter(|op| op.at() == at) {
        match op {
            Op::Push { json, .. } => list.push((None, json.clone())),
            Op::Set { key, json, .. } if !has(key) => {
                match list.iter_mut().find(|(own, _)| own.as_ref() == Some(key)) {
                    Some((_, value)) => value.clone_from(json),
                    None => list.push((Some(key.clone()), json.clone())),
                }
            }
            Op::Remove { key, .. } => list.retain(|(own, _)| own.as_ref() != Some(key)),
            _ => {}
        }
    }
    list
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

/// The oracle: the same edits on a tree.
fn rebuild(original: &serde_json::Value, at: &str, ops: &[Op]) -> serde_json::Value {
    let child = |name: &str, value: &serde_json::Value| match fate(ops, at, name) {
        Fate::Removed => None,
        Fate::Replaced(text) => Some(json(&text)),
        Fate::Kept => Some(rebuild(value, &format!("{at}/{name}"), ops)),
    };
    match original {
        serde_json::Value::Object(members) => {
            let kept = members.iter().filter_map(|(key, value)| Some((key.clone(), child(key, value)?)));
            let new = appended(ops, at, |key| members.contains_key(key));
            kept.chain(new.into_iter().map(|(key, text)| (key.unwrap(), json(&text)))).collect()
        }
        serde_json::Value::Array(elements) => {
            let kept =
                elements.iter().enumerate().filter_map(|(index, value)| child(&index.to_string(), value));
            let new = appended(ops, at, |_| false);
            kept.chain(new.into_iter().map(|(_, text)| json(&text))).collect()
        }
        other => other.clone(),
    }
}

/// Checks that what no edit touches has the same bytes before and after, white space inside it included.
fn keeps_its_bytes(before: Value<'_>, after: Value<'_>, at: &str, ops: &[Op]) {
    let inside = format!("{at}/");
    if !ops.iter().any(|op| op.at() == at || op.at().starts_with(&inside)) {
        assert_eq!(before.raw(), after.raw(), "at {at}");
        return;
    }
    let children = |value: Value<'_>| -> Vec<(String, String, std::ops::Range<usize>)> {
        match value.kind() {
            Kind::Object => {
                value.members().map(|m| (m.name().into(), m.key.raw().to_owned(), m.value.range())).collect()
            }
            _ => {
                value.elements().enumerate().map(|(n, e)| (n.to_string(), String::new(), e.range())).collect()
            }
        }
    };
    let (old, mut new) = (children(before), children(after).into_iter());
    for (place, (name, key, range)) in old.iter().enumerate() {
        let last = !old[place + 1..].iter().any(|(other, ..)| other == name);
        let fate = match (fate(ops, at, name), last) {
            (fate, true) => fate,
            // An earlier duplicate goes when the key is set or removed, and is out of reach otherwise.
            (_, false) => {
                let addressed = ops.iter().any(|op| match op {
                    Op::Set { at: own, key, .. } | Op::Remove { at: own, key } => own == at && key == name,
                    _ => false,
                });
                if addressed { Fate::Removed } else { Fate::Kept }
            }
        };
        if fate == Fate::Removed {
            continue;
        }
        let (_, new_key, new_range) = new.next().unwrap();
        assert_eq!(*key, new_key, "at {at}");
        let find = |root: Value<'_>, range: &std::ops::Range<usize>| -> Option<String> {
            let all = root.members().map(|m| m.value).chain(root.elements());
            all.filter(|v| v.range() == *range).map(|v| v.raw().to_owned()).next()
        };
        let (raw, new_raw) = (find(before, range).unwrap(), find(after, &new_range).unwrap());
        match fate {
            Fate::Replaced(text) => assert_eq!(text, new_raw),
            _ if !last => assert_eq!(raw, new_raw, "an earlier duplicate at {at}/{name}"),
            _ => {
                keeps_its_bytes(
                    Value::parse(&raw).unwrap(),
                    Value::parse(&new_raw).unwrap(),
                    &format!("{at}/{name}"),
                    ops,
                );
            }
        }
    }
}

/// JSON text with white space, duplicates, escapes and large numbers.
fn any_text() -> impl Strategy<Value = String> {
    let space = || prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t")];
    let leaf = prop_oneof![
        Just("null"),
        Just("true"),
        Just("1.0"),
        Just("-0"),
        Just("12345678901234567890123"),
        Just("\"\""),
        Just("\"]}\\\"\\\\\""),
        Just("\"\\ud83d\\ude00 😀 \\n\""),
        Just("{ }"),
        Just("[ ]"),
    ]
    .prop_map(str::to_owned);
    let key =
        prop_oneof![Just("\"a\""), Just("\"b\""), Just("\"\\u0061\""), Just("\"é\""), Just("\"c\\\"d\"")];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        let item = (space(), inner.clone(), space()).prop_map(|(l, v, r)| format!("{l}{v}{r}"));
        let member = (space(), key.clone(), space(), space(), inner, space())
            .prop_map(|(a, key, b, c, value, d)| format!("{a}{key}{b}:{c}{value}{d}"));
        prop_oneof![
            prop::collection::vec(item, 1..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 1..7).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// All values that a pointer can reach, duplicates but the last left out.
fn reachable(value: Value<'_>, at: String, found: &mut Vec<(String, Kind, Vec<String>)>) {
    let mut names: Vec<String> = match value.kind() {
        Kind::Object => value.members().map(|m| m.name().into()).collect(),
        _ => value.elements().enumerate().map(|(index, _)| index.to_string()).collect(),
    };
    names.sort();
    names.dedup();
    for name in &names {
        reachable(value.at(&format!("/{name}")).unwrap(), format!("{at}/{name}"), found);
    }
    found.push((at, value.kind(), names));
}

type Seed = (prop::sample::Index, prop::sample::Index, u8, String);

fn op(root: Value<'_>, (place, name, choice, json): &Seed) -> Op {
    let mut found = Vec::new();
    reachable(root, String::new(), &mut found);
    let (at, kind, mut names) = found[place.index(found.len())].clone();
    names.extend(["new".to_owned(), "é\"".to_owned()]);
    let (name, json) = (names[name.index(names.len())].clone(), json.clone());
    match (kind, choice % 4) {
        (Kind::Object, 0 | 1) => Op::Set { at, key: name, json },
        (Kind::Object, 2) => Op::Remove { at, key: name },
        (Kind::Array, 0 | 1) => Op::RemoveElement { at, index: name.parse().unwrap_or(0) },
        (Kind::Array, 2) => Op::Push { at, json },
        _ => Op::Replace { at, json },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn edits_write_what_they_say_and_touch_nothing_else(
        value in any_text(),
        other in any_text(),
        seeds in prop::collection::vec(any::<Seed>(), 0..8).prop_flat_map(|seeds| {
            let texts = prop::collection::vec(any_text(), seeds.len());
            (Just(seeds), texts).prop_map(|(seeds, texts)| -> Vec<Seed> {
                seeds.into_iter().zip(texts).map(|(seed, text)| (seed.0, seed.1, seed.2, text)).collect()
            })
        }),
        cut in any::<prop::sample::Index>(),
    ) {
        let body = format!(" {{\"a\":{value} , \"m\" : {other}}}\n");
        let request = ChatRequest::parse(Bytes::from(body.clone())).unwrap();
        let ops: Vec<Op> = seeds.iter().map(|seed| op(request.root(), seed)).collect();
        let (mut base, mut candidate) = (Edits::new(), Edits::new());
        let cut = cut.index(ops.len() + 1);
        ops[..cut].iter().for_each(|op| op.add_to(&mut base, request.root()));
        ops[cut..].iter().for_each(|op| op.add_to(&mut candidate, request.root()));

        let written = String::from_utf8(request.write(&base, &candidate).into()).unwrap();
        let last_root = ops.iter().rev().find_map(|op| match op {
            Op::Replace { at, json } if at.is_empty() => Some(json.clone()),
            _ => None,
        });
        let tree: serde_json::Value = serde_json::from_str(&written).unwrap_or_else(|e| panic!("{written}: {e}"));
        match last_root {
            Some(text) => prop_assert_eq!(written, format!(" {text}\n")),
            None => {
                prop_assert_eq!(tree, rebuild(&json(&body), "", &ops));
                prop_assert!(written.starts_with(' ') && written.ends_with('\n'));
                keeps_its_bytes(request.root(), Value::parse(&written).unwrap(), "", &ops);
            }
        }
    }
}
