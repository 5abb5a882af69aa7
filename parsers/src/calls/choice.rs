//! The calls of one choice: which call an element belongs to, and under which index, id and name the client knows it.
//!
//! Why: backends leave `index` out, send 0 for all or count from 1; they leave ids out, repeat them, or send them
//! empty. A call is recognised by what is new: an id not seen, a name where the call before has ended.
//!
//! It must never merge two calls, and never give a call a second index, id or name.

use std::collections::HashSet;

use super::arguments::Arguments;
use super::entry::{Entry, real_name};
use crate::schema::ToolSet;

/// What one choice has said so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// A call's place in the list is its index.
    pub(super) calls: Vec<Call>,
    /// The ids that the client knows.
    ids: HashSet<String>,
}

/// One call.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    /// The backend's labels.
    label: Option<i64>,
    given_id: Option<String>,
    given_name: Option<String>,
    /// What the client knows it by; the name is empty until it has come.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Arguments,
    /// It was found in the text: nothing of it is left to do.
    pub(super) from_text: bool,
    /// It does not reach the client: only the first call was asked for.
    pub(super) dropped: bool,
}

/// An element's call, and what is new of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) number: usize,
    pub(super) begins: bool,
    /// The name comes with this element.
    pub(super) named: bool,
}

impl Call {
    /// Whether an element says this very call once more: same id, same name, the same whole arguments.
    fn is_repeated_by(&self, entry: &Entry<'_>) -> bool {
        entry.id.is_some()
            && entry.name.is_some()
            && (&entry.id, &entry.name) == (&self.given_id, &self.given_name)
            && self.arguments.is_whole()
            && self.arguments.source() == entry.arguments
    }
}

impl Choice {
    /// The call that an element belongs to; none when it repeats one that is complete, id and all. `alone` says that
    /// it must begin one, as in answers that are not streamed.
    pub(super) fn place(
        &mut self,
        entry: &Entry<'_>,
        alone: bool,
        tools: &ToolSet,
        made_id: impl Fn(usize) -> String,
    ) -> Option<Placed> {
        if self.calls.iter().any(|call| call.is_repeated_by(entry)) {
            return None;
        }
        let continued = if alone { None } else { self.continued(entry) };
        let begins = continued.is_none();
        let number = continued.unwrap_or_else(|| self.begin(entry.id.clone(), made_id));
        let call = &mut self.calls[number];
        if begins {
            call.label = entry.index;
            call.given_id.clone_from(&entry.id);
        }
        let named = call.given_name.is_none() && entry.name.is_some();
        if let (true, Some(name)) = (named, &entry.name) {
            call.given_name = Some(name.clone());
            call.name = real_name(tools, name);
        }
        Some(Placed { number, begins, named })
    }

    /// A new call, under the backend's id where that is new.
    pub(super) fn begin(&mut self, id: Option<String>, made_id: impl Fn(usize) -> String) -> usize {
        let number = self.calls.len();
        let id = id.filter(|id| !self.ids.contains(id)).unwrap_or_else(|| {
            let mut made = made_id(number);
            while self.ids.contains(&made) {
                made.push('_');
            }
            made
        });
        self.ids.insert(id.clone());
        self.calls.push(Call { id, ..Call::default() });
        number
    }

    /// How many calls reach the client.
    pub(super) fn delivered(&self) -> usize {
        self.calls.iter().filter(|call| !call.dropped).count()
    }

    /// The call that an element goes on with; none when it begins one.
    fn continued(&self, entry: &Entry<'_>) -> Option<usize> {
        let last =
            |fits: &dyn Fn(&Call) -> bool| self.calls.iter().rposition(|call| !call.from_text && fits(call));
        let here = |call: &Call| entry.index.is_none() || call.label == entry.index;
        let found = match &entry.id {
            Some(id) => last(&|call| here(call) && call.given_id.as_ref() == Some(id)).or_else(|| {
                // An id that comes late, for a call that has none.
                last(&here).filter(|number| self.calls[*number].given_id.is_none() && entry.name.is_none())
            }),
            // A label not seen on what says nothing new is a slip of the backend.
            None => last(&here).or_else(|| entry.name.is_none().then(|| last(&|_| true)).flatten()),
        };
        found.filter(|number| !self.is_another(*number, entry))
    }

    /// Whether an element with that call's labels begins another one all the same: it has a name, and that is not the
    /// call's, or the call has all its arguments and this brings its own.
    fn is_another(&self, number: usize, entry: &Entry<'_>) -> bool {
        let call = &self.calls[number];
        match (&entry.name, &call.given_name) {
            (Some(new), Some(old)) => {
                new != old || (call.arguments.is_whole() && !entry.arguments.trim_ascii().is_empty())
            }
            _ => false,
        }
    }
}
