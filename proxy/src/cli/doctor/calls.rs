//! Trials of tool calls: as the model likes, streamed, demanded, by name.
//!
//! A call that comes as text is no defect to report: the proxy reads it. What it cannot mend is a call that never comes, so
//! that is what a setting is for.

use serde_json::{Value as Json, json};
use switchback_parsers::diagnosis::{Diagnosis, Engine};
use switchback_parsers::event::Folded;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser};
use switchback_policies::facts::StreamedRequired;

use super::ask::{Heard, Patient, short};
use super::finding::{Finding, Verdict};
use super::speech::ROOM;

/// How often a demanded call is asked for in a stream: engines that lose some do not lose all.
const TIMES: usize = 3;

/// What became of a call that was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Called {
    /// In `tool_calls`, and it fits the schema. Its tool.
    Well(String),
    /// In `tool_calls`, and it does not fit.
    Wrong(String),
    /// In the text, which begins so.
    Text(String),
    /// The answer was cut before any.
    Cut,
    /// There is none.
    Nothing,
    /// The request was refused.
    Refused(String),
    /// There is no answer.
    Failed(String),
}

/// What the trials found out that others need.
#[derive(Debug)]
pub(super) struct Tools {
    /// The `tool_choice` with which requests with tools pass; `None`: they do not.
    pub(super) choice: Option<&'static str>,
}

fn tools() -> Json {
    let tool = |name: &str, what: &str| {
        let city = json!({ "type": "string", "description": "Name of the city" });
        let parameters = json!({ "type": "object", "properties": { "city": city }, "required": ["city"] });
        let function = json!({ "name": name, "description": what, "parameters": parameters });
        json!({ "type": "function", "function": function })
    };
    json!([
        tool("get_weather", "The weather in a city, now"),
        tool("get_time", "The local time in a city, now")
    ])
}

fn question(choice: Json, stream: bool) -> Json {
    json!({
        "stream": stream,
        "max_tokens": ROOM,
        "tools": tools(),
        "tool_choice": choice,
        "messages": [{ "role": "user", "content": "What is the weather in Berlin? Call the tool, say nothing else." }],
    })
}

/// All trials of calls.
pub(super) async fn calls(patient: &Patient, tell: &mut impl FnMut(Finding)) -> Tools {
    let knows_tools = patient.backend.found().template.is_none_or(|template| template.tools);
    if !knows_tools {
        let said = "its chat template leaves tools out of the prompt, so the model never hears of them: start it with another";
        tell(Finding::new("calls", Verdict::Bad, said));
        return Tools { choice: Some("auto") };
    }
    let whole = judge(&patient.ask(question("auto".into(), false)).await);
    if let Called::Refused(why) = &whole {
        let (finding, tools) = without_parser(patient, why).await;
        tell(finding);
        return tools;
    }
    let streamed = judge(&patient.ask(question("auto".into(), true)).await);
    tell(told("calls", &whole));
    tell(told("calls, streamed", &streamed));
    let able = matches!(whole, Called::Well(_) | Called::Wrong(_) | Called::Text(_));
    tell(demanded(patient, able).await);
    tell(by_name(patient).await);
    Tools { choice: Some("auto") }
}

/// An engine that takes no tools, or only those that nobody is to call.
async fn without_parser(patient: &Patient, why: &str) -> (Finding, Tools) {
    const TRIAL: &str = "calls";
    let answer = patient.ask(question("none".into(), false)).await;
    if answer.refused().is_some() || patient.backend.engine() != Engine::Vllm {
        let said = format!("it takes no tools: {why}");
        return (Finding::new(TRIAL, Verdict::Bad, said), Tools { choice: None });
    }
    let (verdict, how) = match judge(&answer) {
        Called::Text(begins) => (Verdict::Mended, format!("the model writes them as text: {begins}")),
        Called::Cut | Called::Nothing => {
            (Verdict::Note, "the model wrote none when asked for one".to_owned())
        }
        Called::Well(_) | Called::Wrong(_) => (Verdict::Mended, "calls come all the same".to_owned()),
        Called::Refused(why) | Called::Failed(why) => (Verdict::Bad, why),
    };
    let said = format!("started without a tool parser, so they are asked for with tool_choice none; {how}");
    let knows = patient.backend.parses_no_tools();
    let finding = Finding::new(TRIAL, verdict, said);
    let finding = if knows { finding } else { finding.sets("tool_parser", "false", why) };
    (finding, Tools { choice: Some("none") })
}

fn told(trial: &'static str, called: &Called) -> Finding {
    let (verdict, said) = match called {
        Called::Well(_) => (Verdict::Good, "as tool_calls".to_owned()),
        Called::Wrong(why) => (Verdict::Mended, format!("as tool_calls that do not fit: {why}")),
        Called::Text(begins) => (Verdict::Mended, format!("as text: {begins}")),
        Called::Cut => (Verdict::Untold, format!("{ROOM} tokens were too few for one")),
        Called::Nothing => (Verdict::Note, "the model made none, though it was told to".to_owned()),
        Called::Refused(why) | Called::Failed(why) => (Verdict::Bad, why.clone()),
    };
    Finding::new(trial, verdict, said)
}

/// Calls that the client demands of a stream: some engines lose them. `able`: the model makes calls that nobody demands.
async fn demanded(patient: &Patient, able: bool) -> Finding {
    const TRIAL: &str = "demanded, streamed";
    let (mut came, mut text) = (0, None);
    for time in 1..=TIMES {
        match judge(&patient.ask(question("required".into(), true)).await) {
            Called::Well(_) | Called::Wrong(_) => came += 1,
            Called::Text(begins) => {
                came += 1;
                text = Some(begins);
            }
            Called::Nothing if patient.backend.config.streamed_required != StreamedRequired::Pass => {
                let said = format!("lost in answer {time}; streamed_required is configured");
                return Finding::new(TRIAL, Verdict::Mended, said);
            }
            Called::Nothing if !able => return told(TRIAL, &Called::Nothing),
            Called::Nothing => return lost(patient, TRIAL, time).await,
            other @ (Called::Cut | Called::Refused(_) | Called::Failed(_)) => return told(TRIAL, &other),
        }
    }
    match text {
        Some(begins) => {
            Finding::new(TRIAL, Verdict::Mended, format!("{came} of {TIMES} came, as text: {begins}"))
        }
        None => Finding::new(TRIAL, Verdict::Good, format!("{came} of {TIMES} came")),
    }
}

async fn lost(patient: &Patient, trial: &'static str, time: usize) -> Finding {
    let whole = judge(&patient.ask(question("required".into(), false)).await);
    let why = "tool_choice required loses calls in streams here";
    let finding =
        |said: &str| Finding::new(trial, Verdict::Setting, format!("lost in answer {time}, {said}"));
    match whole {
        Called::Well(_) | Called::Text(_) => {
            finding("and there without streaming").sets("streamed_required", "\"whole\"", why)
        }
        _ => finding("also without streaming").sets("streamed_required", "\"as-auto\"", why),
    }
}

/// The tool that is not asked about, by name.
async fn by_name(patient: &Patient) -> Finding {
    const TRIAL: &str = "by name";
    let choice = json!({ "type": "function", "function": { "name": "get_time" } });
    match judge(&patient.ask(question(choice, false)).await) {
        Called::Well(name) if name == "get_time" => {
            Finding::new(TRIAL, Verdict::Good, "a named tool is the one that is called")
        }
        Called::Well(name) => {
            let said = format!("get_time was named, {name} was called: the name is passed over");
            Finding::new(TRIAL, Verdict::Note, said)
        }
        other => told(TRIAL, &other),
    }
}

fn judge(heard: &Heard) -> Called {
    if let Some(error) = heard.refused().filter(|error| error.diagnosis != Diagnosis::ParserFailed) {
        return Called::Refused(short(&error.message));
    }
    if let Some(why) = heard.failure() {
        return Called::Failed(why);
    }
    let declared = tools().to_string();
    let answer = &heard.answer;
    if let Some(call) = answer.calls.first() {
        return match answer.wrong_calls(&ToolSet::from_json(&declared)).into_iter().next() {
            Some((_, why)) => Called::Wrong(why),
            None => Called::Well(call.name.clone()),
        };
    }
    match call_in(answer, &declared) {
        Some(begins) => Called::Text(begins),
        None if answer.finish_reason == "length" => Called::Cut,
        None => Called::Nothing,
    }
}

/// How the text of an answer begins, if it holds a call. No name of a format: families share their markers.
fn call_in(answer: &Folded, tools: &str) -> Option<String> {
    const SHOWN: usize = 48;
    let mut parser = TextParser::new(Options::from_json(tools, "{}"));
    let mut events = parser.push_reasoning(&answer.reasoning);
    events.extend(parser.push(&answer.content));
    events.extend(parser.finish(&answer.finish_reason).0);
    let text = if answer.content.is_empty() { &answer.reasoning } else { &answer.content };
    let shown: String = text.trim().chars().take(SHOWN).collect();
    (!Folded::of(events).calls.is_empty()).then(|| format!("{shown:?}…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(content: &str, finish: &str) -> Heard {
        let answer = Folded { content: content.into(), finish_reason: finish.into(), ..Folded::default() };
        Heard { answer, ..Heard::default() }
    }

    #[test]
    fn a_call_in_the_text_is_told_with_its_beginning() {
        let text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nBerlin\n</parameter>\n</function>\n</tool_call>";
        assert_eq!(
            judge(&said(text, "stop")),
            Called::Text("\"<tool_call>\\n<function=get_weather>\\n<parameter=ci\"…".to_owned())
        );
        assert_eq!(judge(&said("It rains.", "stop")), Called::Nothing);
        assert_eq!(judge(&said("Let me", "length")), Called::Cut);
    }
}
