//! What becomes of text, once it is known what it is: calls that leave, markup that goes, text that is said.
//!
//! Whatever is done here is final. So text that may still be something else must never come here, and no byte may leave twice.

use crate::event::{Event, Note};

use super::Settings;
use super::grammar::{Call, End, Step};
use super::machine::{LONGEST, Machine};

impl Machine {
    /// Does what a grammar said.
    pub(super) fn take(
        &mut self,
        rest: &str,
        step: Step,
        strong: bool,
        end: End,
        settings: &Settings,
    ) -> Option<usize> {
        self.unread |= strong && is_unread(&step, rest, end);
        match step {
            Step::More if !end.is_end() && rest.len() < LONGEST => None,
            Step::More if end == End::Cut && (strong || settings.demanded) => {
                self.cut(rest);
                Some(rest.len())
            }
            Step::More if end.is_end() && strong => self.say(rest, rest.len()),
            Step::More if !strong => {
                self.rejected += 1;
                self.say(rest, 1)
            }
            Step::Not(used) if !strong => {
                self.rejected += 1;
                self.say(rest, used)
            }
            Step::Shown(used) => {
                self.rejected += usize::from(!strong);
                self.showed = true;
                self.say_exactly(rest, used.clamp(1, rest.len()))
            }
            Step::More => self.say_exactly(rest, rest.len()),
            Step::Broken(..) => self.say(rest, 1),
            Step::Not(used) => self.say_exactly(rest, used.clamp(1, rest.len())),
            Step::Opener(used) => {
                self.pending.push_str(&rest[..used]);
                Some(used)
            }
            Step::Shell(used, closers) => {
                self.shell = closers;
                self.drop(&rest[..used])
            }
            Step::Reasoning(used, closers) => {
                self.drop(&rest[..used]);
                self.thought = Some(closers);
                Some(used)
            }
            Step::Calls(calls, used) => {
                self.drop(&rest[..used]);
                self.deliver(calls, settings);
                Some(used)
            }
            Step::Before(calls, used, until) => {
                self.drop(&rest[..used]);
                self.deliver(calls, settings);
                self.say_exactly(&rest[used..], until - used);
                Some(until)
            }
            Step::CutAfter(calls) => {
                self.deliver(calls, settings);
                self.cut(rest);
                Some(rest.len())
            }
        }
    }

    pub(super) fn cut(&mut self, rest: &str) {
        self.drop(rest);
        self.events.push(Event::Note(Note::CutInsideCall));
        self.lost = true;
    }

    pub(super) fn deliver(&mut self, calls: Vec<Call>, settings: &Settings) {
        self.flush();
        for call in calls {
            if self.calls > 0 && !settings.parallel {
                self.events.push(Event::Note(Note::ParallelCallDropped(call.name)));
                continue;
            }
            let index = self.calls;
            self.calls += 1;
            self.events.extend(call.notes.into_iter().map(Event::Note));
            self.events.push(Event::CallStart { index, id: call.id, name: call.name });
            self.events.push(Event::CallArguments { index, text: call.arguments });
            self.events.push(Event::CallEnd { index });
        }
    }

    /// Markup that leaves the text.
    pub(super) fn drop(&mut self, markup: &str) -> Option<usize> {
        let pending = std::mem::take(&mut self.pending);
        self.markup(&pending);
        self.markup(markup);
        self.gap = true;
        self.place.fresh();
        Some(markup.len())
    }

    /// At least `least` bytes are text; so is all up to the next place that has to be looked at.
    pub(super) fn say(&mut self, rest: &str, least: usize) -> Option<usize> {
        let least = (least..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        self.say_exactly(rest, self.place.next(rest, least))
    }

    pub(super) fn say_exactly(&mut self, rest: &str, used: usize) -> Option<usize> {
        let used = (used..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let text = &rest[..used];
        let pending = std::mem::take(&mut self.pending);
        let quiet = self.reasoned && !self.said && self.calls == 0 && pending.trim().is_empty();
        match quiet {
            true => self.markup(&pending),
            false => self.text.push_str(&pending),
        }
        self.text.push_str(text);
        self.place.advance(&pending);
        self.place.advance(text);
        self.gap = false;
        self.shown &= text.trim().is_empty();
        self.list = None;
        self.said = true;
        Some(used)
    }
}

/// Whether what a grammar said of the text behind a marker is that a call stands there which it cannot read. The mere mention of a
/// marker is no such text: it ends with the marker.
fn is_unread(step: &Step, rest: &str, end: End) -> bool {
    match step {
        Step::More => end == End::Stop,
        Step::Not(used) | Step::Shown(used) => encloses(rest, *used),
        Step::Before(_, used, until) => until > used,
        _ => false,
    }
}

/// Whether these bytes are more than a marker.
pub(super) fn encloses(rest: &str, used: usize) -> bool {
    rest.get(1..used).is_some_and(|text| text.contains(['<', '{']))
}
