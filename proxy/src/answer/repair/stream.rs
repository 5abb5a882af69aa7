//! Repair of a streamed answer, frame by frame: the text parser first, then the normaliser of structured calls. Frames of other dialects
//! are read in chat's words (`wire/`), and go back as what they were.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use serde_json::{Value as Json, json};
use switchback_parsers::calls::{ChunkNormaliser, Rewritten};
use switchback_parsers::event::{Event, Folded};
use switchback_parsers::json::Value;
use switchback_parsers::schema::ToolSet;

use super::RepairTerms;
use super::late::Late;
use super::order::Order;
use super::own::Writer;
use super::text::{ChoiceText, Held, Leaving};
use super::wire::Frame;
use crate::answer::grade::Traces;

/// Members of a delta that carry reasoning.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// The repair of one stream.
#[derive(Debug)]
pub(crate) struct StreamRepair {
    terms: RepairTerms,
    reads_text: bool,
    normaliser: ChunkNormaliser,
    texts: BTreeMap<u64, ChoiceText>,
    writer: Writer,
    /// Structured calls behind calls in the text, by choice. `None`: they were too much to wait.
    late: BTreeMap<u64, Option<Late>>,
    /// Frames that the normaliser has not decided on.
    waiting: Vec<Frame>,
    /// How many frames were read.
    frames: usize,
    order: Order,
    /// Of choices that have left.
    traces: Traces,
}

/// What a chunk with one choice says.
struct OneChoice {
    index: u64,
    text: String,
    reasoning: String,
    finish: Option<String>,
    /// It carries structured calls.
    calls: bool,
}

impl Traces {
    /// With what is seen of the text of these choices.
    fn and(self, texts: &BTreeMap<u64, ChoiceText>) -> Self {
        Self {
            cut_call: self.cut_call || texts.values().any(ChoiceText::is_cut),
            mended: self.mended || texts.values().any(ChoiceText::is_mended),
            unread: self.unread || texts.values().any(|text| text.parser.is_unread()),
        }
    }
}

/// A chunk of several choices as chunks of one each, the last with the usage; `None` if it has but one.
fn apart(chunk: Value<'_>) -> Option<Vec<String>> {
    chunk.get("choices")?.elements().nth(1)?;
    let mut chunk: Json = serde_json::from_str(chunk.raw()).ok()?;
    let chunk = chunk.as_object_mut()?;
    let choices: Vec<Json> = chunk.get("choices")?.as_array()?.clone();
    let usage = chunk.remove("usage");
    let last = choices.len() - 1;
    let alone = |(place, choice): (usize, Json)| {
        let mut chunk = chunk.clone();
        chunk.insert("choices".to_owned(), json!([choice]));
        chunk.extend(usage.clone().filter(|_| place == last).map(|usage| ("usage".to_owned(), usage)));
        Json::Object(chunk).to_string()
    };
    Some(choices.into_iter().enumerate().map(alone).collect())
}

impl StreamRepair {
    pub(crate) fn new(terms: RepairTerms) -> Self {
        Self {
            reads_text: terms.reads_text(),
            normaliser: terms.normaliser(),
            writer: Writer::new(terms.wire()),
            terms,
            texts: BTreeMap::new(),
            late: BTreeMap::new(),
            waiting: Vec::new(),
            frames: 0,
            order: Order::default(),
            traces: Traces::default(),
        }
    }

    /// Takes a frame and its payload; what may leave is appended to `out`.
    pub(crate) fn frame(&mut self, frame: &Bytes, json: &str, out: &mut BytesMut) {
        let frame = self.writer.read(frame, json);
        let ordered = if self.terms.calls { self.order.push(frame) } else { vec![frame] };
        ordered.into_iter().for_each(|frame| self.ordered(frame));
        self.writer.written(out);
    }

    /// The same for a frame behind which its choice does not go on.
    fn ordered(&mut self, frame: Frame) {
        self.frames += 1;
        let number = self.frames;
        let chunk = Value::parse(&frame.json).ok();
        if let Some(several) = chunk.filter(|_| self.reads_text).and_then(apart) {
            return several.into_iter().for_each(|json| self.ordered(Frame::own(json)));
        }
        let one = chunk.filter(|_| self.reads_text).and_then(|chunk| {
            self.writer.learn(chunk);
            self.read(chunk)
        });
        let Some(one) = one else { return self.normalise(frame) };
        let terms = &self.terms;
        let state = self.texts.entry(one.index).or_insert_with(|| ChoiceText::new(terms.parser()));
        let mut events = Vec::new();
        if !one.reasoning.is_empty() {
            events.extend(state.parser.push_reasoning(&one.reasoning));
        }
        if !one.text.is_empty() {
            events.extend(state.push(&one.text));
        }
        let says_nothing = one.text.is_empty() && one.reasoning.is_empty();
        let was_exact = state.is_exact();
        if was_exact {
            let (text, reasoning) = (one.text, one.reasoning);
            let frame = frame.clone();
            state.hold(Held { frame, number, text, reasoning, calls: one.calls, split: false });
        }
        if one.calls {
            events.extend(state.call_beside(terms));
        }
        let mut reason = None;
        if let Some(finish) = &one.finish {
            let (last, client) = state.parser.finish(finish);
            events.extend(last);
            reason = Some(client);
        }
        let leaving = state.take(events);
        let exact = state.is_exact();
        let left = leaving.iter().any(|one| matches!(one, Leaving::Frame(held) if held.number == number));
        // Where not all is exact the end is written below, with the reason that the client gets.
        let ends_here = one.finish.is_some() && !exact;
        self.leave_all(one.index, leaving, |held| !(ends_here && held.number == number));
        if one.calls && !exact && !(left && one.finish.is_none()) {
            self.only_calls(one.index, &frame, says_nothing && one.finish.is_none());
        }
        match (one.finish, reason) {
            (Some(finish), Some(reason)) if !exact || (reason != finish && !left) => {
                self.settle(one.index, &finish);
                self.finished(&frame.json, &reason);
            }
            _ if !was_exact && says_nothing && !one.calls => self.normalise(frame),
            _ => {}
        }
    }

    /// The structured calls of a frame whose text goes its own way. `as_it_is`: there is nothing else in it.
    fn only_calls(&mut self, choice: u64, frame: &Frame, as_it_is: bool) {
        if as_it_is {
            return self.calls(choice, frame.clone());
        }
        let Ok(mut chunk) = serde_json::from_str::<Json>(&frame.json) else { return };
        if let Some(choice) = chunk.pointer_mut("/choices/0").and_then(Json::as_object_mut) {
            let calls = choice.get("delta").and_then(|delta| delta.get("tool_calls")).cloned();
            choice.insert("delta".to_owned(), json!({ "tool_calls": calls }));
            choice.insert("finish_reason".to_owned(), Json::Null);
        }
        self.calls(choice, Frame::own(chunk.to_string()));
    }

    /// A frame with structured calls. Behind calls in the text they wait, since they may be the same.
    fn calls(&mut self, choice: u64, frame: Frame) {
        if !self.texts.get(&choice).is_some_and(ChoiceText::has_calls) {
            return self.normalise(frame);
        }
        let late = self.late.entry(choice).or_insert_with(|| Some(Late::new(choice, &self.terms)));
        match late {
            None => self.normalise(frame),
            Some(waiting) => {
                if !waiting.take(frame)
                    && let Some(late) = late.take()
                {
                    late.into_frames().into_iter().for_each(|frame| self.normalise(frame));
                }
            }
        }
    }

    /// The choice ends: those that waited leave, unless they were in the text.
    fn settle(&mut self, choice: u64, finish: &str) {
        if let Some(text) = self.texts.get_mut(&choice) {
            let events = text.settle(choice, &self.terms, &self.normaliser);
            text.write(choice, &events, &mut self.writer, &mut self.normaliser);
        }
        let Some(Some(late)) = self.late.remove(&choice) else { return };
        let found = self.texts.get(&choice).map(|text| text.found().to_vec());
        for call in late.new_calls(finish, found.unwrap_or_default()) {
            let (number, id) = self.normaliser.allot(choice, call.id, &call.name);
            self.writer.call_start(choice, number, &id, &call.name);
            self.writer.call_arguments(choice, number, &call.arguments);
        }
    }

    /// The stream has ended, for whatever reason: what was held leaves as what it turned out to be.
    pub(crate) fn finish(&mut self, out: &mut BytesMut) {
        self.end();
        for choice in self.texts.keys().copied().collect::<Vec<_>>() {
            let Some(state) = self.texts.get_mut(&choice) else { continue };
            let (events, _) = state.parser.finish("cut");
            let leaving = state.take(events);
            self.leave_all(choice, leaving, |_| true);
            self.settle(choice, "cut");
        }
        self.traces = self.traces.and(&std::mem::take(&mut self.texts));
        let rewritten = self.normaliser.finish();
        self.write(rewritten, None);
        self.writer.finish();
        self.writer.written(out);
    }

    /// Text waits that is only a part of a frame, or the end of a choice does.
    pub(crate) fn has_part(&self) -> bool {
        self.order.waits() || self.texts.values().any(ChoiceText::has_part)
    }

    /// The end of a choice leaves, if one waits.
    fn end(&mut self) {
        if let Some(frame) = self.order.finish() {
            self.ordered(frame);
        }
    }

    /// The calls of the first choice as the client has them.
    pub(crate) fn client_calls(&self) -> &Folded {
        self.writer.calls()
    }

    /// What it has come upon.
    pub(crate) fn traces(&self) -> Traces {
        let traces = self.traces.and(&self.texts);
        Traces { mended: traces.mended || self.normaliser.was_mended(), ..traces }
    }

    /// The tools that the request declares.
    pub(crate) fn tools(&self) -> ToolSet {
        self.terms.tools()
    }

    /// Whether text is held back that may become a call, or is one.
    pub(crate) fn holds(&self) -> bool {
        self.texts.values().any(ChoiceText::holds)
    }

    /// Lets such parts leave.
    pub(crate) fn send_parts(&mut self, out: &mut BytesMut) {
        self.end();
        for (choice, text) in &mut self.texts {
            text.send_part(*choice, &mut self.writer);
        }
        self.writer.written(out);
    }

    /// What leaves, in order, but for frames that are not to.
    fn leave_all(&mut self, choice: u64, leaving: Vec<Leaving>, may: impl Fn(&Held) -> bool) {
        for one in leaving {
            match one {
                Leaving::Frame(held) if may(&held) => self.leave(choice, held),
                Leaving::Frame(_) => {}
                Leaving::Events(events) => self.say(choice, &events),
            }
        }
    }

    /// Frames of our own: from here on the answer is not the backend's.
    fn say(&mut self, choice: u64, events: &[Event]) {
        self.writer.take_over();
        if let Some(text) = self.texts.get_mut(&choice) {
            text.write(choice, events, &mut self.writer, &mut self.normaliser);
        }
    }

    fn leave(&mut self, choice: u64, held: Held) {
        if held.split {
            self.writer.reasoning(choice, &held.reasoning);
            self.writer.text(choice, &held.text);
        } else if held.calls {
            self.calls(choice, held.frame);
        } else {
            self.normalise(held.frame);
        }
    }

    /// The chunk's one choice; `None` where there are none or several.
    fn read(&mut self, chunk: Value<'_>) -> Option<OneChoice> {
        let mut choices = chunk.get("choices")?.elements();
        let choice = choices.next().filter(|_| choices.next().is_none())?;
        let delta = choice.get("delta")?;
        let text = |member: &str| delta.get(member).and_then(Value::as_str).filter(|text| !text.is_empty());
        let mut reasoning = String::new();
        for field in REASONING {
            if let Some(found) = text(field) {
                self.writer.reasons_as(field);
                reasoning = found.into_owned();
                break;
            }
        }
        Some(OneChoice {
            index: choice.get("index").and_then(Value::as_u64).unwrap_or(0),
            text: text("content").map(std::borrow::Cow::into_owned).unwrap_or_default(),
            reasoning,
            calls: delta.get("tool_calls").is_some_and(|calls| calls.elements().next().is_some()),
            finish: choice.get("finish_reason").and_then(Value::as_str).map(std::borrow::Cow::into_owned),
        })
    }

    /// The last frame of a choice that was changed: its own members, no delta, the client's finish reason.
    fn finished(&mut self, json: &str, reason: &str) {
        let Ok(mut chunk) = serde_json::from_str::<Json>(json) else { return };
        if let Some(choice) = chunk.pointer_mut("/choices/0").and_then(Json::as_object_mut) {
            choice.insert("delta".to_owned(), json!({}));
            choice.insert("finish_reason".to_owned(), reason.into());
        }
        self.normalise(Frame::own(chunk.to_string()));
    }

    fn normalise(&mut self, frame: Frame) {
        let rewritten = if self.terms.calls { self.normaliser.frame(&frame.json) } else { Rewritten::Same };
        self.write(rewritten, Some(frame));
    }

    fn write(&mut self, rewritten: Rewritten, frame: Option<Frame>) {
        match rewritten {
            Rewritten::Wait => self.waiting.extend(frame),
            Rewritten::Same => {
                let waiting = std::mem::take(&mut self.waiting);
                waiting.into_iter().chain(frame).for_each(|frame| self.writer.frame(frame));
            }
            Rewritten::Replace(list) => {
                self.waiting.clear();
                list.into_iter().for_each(|json| self.writer.frame(Frame::own(json)));
            }
        }
    }
}
