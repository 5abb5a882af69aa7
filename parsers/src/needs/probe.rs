//! What a template needs, found by small conversations that the engine renders itself.
//!
//! Engines prepare a request before they render it, each in its own way and differently from version to version: vLLM 0.32 moves
//! system messages to the front, older ones pass them on. So the engine is asked, not the template: what it refuses here it
//! would refuse in earnest. Only refusals count, and only beside a conversation of the same kind that it accepts.

use super::Need;

/// A conversation to be rendered. All are a few words long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// What every template takes.
    Plain,
    /// A system message behind an answer.
    LateSystem,
    /// Two system messages at the front.
    TwoSystems,
    /// The role `developer`.
    Developer,
    /// Two messages of the user in a row.
    TwoUsers,
    /// A call and its result, with an id of nine characters.
    Call,
    /// The same with an id as OpenAI makes them.
    LongId,
    /// The same with a null beside the call.
    Null,
    /// The same without a question before it.
    NoQuestion,
    /// A list with one text.
    Parts,
}

/// All of them; the plain one first, since without it the others say nothing.
pub const PROBES: [Probe; 10] = [
    Probe::Plain,
    Probe::LateSystem,
    Probe::TwoSystems,
    Probe::Developer,
    Probe::TwoUsers,
    Probe::Call,
    Probe::LongId,
    Probe::Null,
    Probe::NoQuestion,
    Probe::Parts,
];

impl Probe {
    /// The list of messages, JSON.
    #[must_use]
    pub fn messages(self) -> String {
        const SYSTEM: &str = r#"{"role":"system","content":"Be brief."}"#;
        const USER: &str = r#"{"role":"user","content":"Hello."}"#;
        const ASSISTANT: &str = r#"{"role":"assistant","content":"Hello."}"#;
        let call = |content: &str, id: &str| {
            format!(
                r#"{{"role":"assistant","content":{content},"tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"look","arguments":"{{\"at\":\"it\"}}"}}}}]}},{{"role":"tool","tool_call_id":"{id}","content":"seen"}}"#
            )
        };
        let list = match self {
            Self::Plain => format!("{SYSTEM},{USER}"),
            Self::LateSystem => format!("{SYSTEM},{USER},{ASSISTANT},{SYSTEM},{USER}"),
            Self::TwoSystems => format!("{SYSTEM},{SYSTEM},{USER}"),
            Self::Developer => format!("{},{USER}", SYSTEM.replacen("system", "developer", 1)),
            Self::TwoUsers => format!("{USER},{USER}"),
            Self::Call => format!("{USER},{}", call("\"\"", "a1b2c3d4e")),
            Self::LongId => format!("{USER},{}", call("\"\"", "call_0123456789")),
            Self::Null => format!("{USER},{}", call("null", "a1b2c3d4e")),
            Self::NoQuestion => format!("{SYSTEM},{}", call("\"\"", "a1b2c3d4e")),
            Self::Parts => r#"{"role":"user","content":[{"type":"text","text":"Hello."}]}"#.to_owned(),
        };
        format!("[{list}]")
    }
}

/// The needs of a template, from what the engine said to each probe: whether it rendered it, or `None` if it did not tell. `None` if
/// it did not take the plain one: then nothing is known.
pub fn needs_of(rendered: impl Fn(Probe) -> Option<bool>) -> Option<Vec<Need>> {
    rendered(Probe::Plain).filter(|rendered| *rendered)?;
    let refused = |probe: Probe| rendered(probe) == Some(false);
    let takes_calls = rendered(Probe::Call) == Some(true);
    let needs = [
        (refused(Probe::Parts), Need::StringContent),
        (takes_calls && refused(Probe::Null), Need::NoNullContent),
        (takes_calls && refused(Probe::LongId), Need::NineCharacterIds),
        (refused(Probe::Developer), Need::NoDeveloper),
        (refused(Probe::LateSystem) || refused(Probe::TwoSystems), Need::LateSystemAsUser),
        (refused(Probe::TwoUsers), Need::AlternatingRoles),
        (takes_calls && refused(Probe::NoQuestion), Need::UserTurn),
    ];
    Some(needs.into_iter().filter(|(needed, _)| *needed).map(|(_, need)| need).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    #[test]
    fn probes_are_conversations() {
        for probe in PROBES {
            let list: Vec<Json> = serde_json::from_str(&probe.messages()).expect("a list");
            assert!(list.iter().all(|message| message["role"].is_string()), "{probe:?}");
        }
    }

    #[test]
    fn a_refusal_counts_only_beside_what_the_engine_accepts() {
        let needs = |refused: &[Probe]| needs_of(|probe| Some(!refused.contains(&probe)));
        assert_eq!(
            needs(&[Probe::LateSystem, Probe::NoQuestion]),
            Some(vec![Need::LateSystemAsUser, Need::UserTurn])
        );
        assert_eq!(needs(&[]), Some(vec![]));
        // A template without tools refuses all that has calls: that says nothing of ids.
        assert_eq!(needs(&[Probe::Call, Probe::LongId, Probe::Null, Probe::NoQuestion]), Some(vec![]));
        assert_eq!(needs(&PROBES), None);
        assert_eq!(needs_of(|probe| (probe == Probe::Plain).then_some(true)), Some(vec![]));
    }
}
