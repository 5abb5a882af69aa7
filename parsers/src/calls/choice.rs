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
    /// In the order in which they came.
    pub(super) calls: Vec<Call>,
    /// The ids that the client knows.
    ids: HashSet<String>,
    /// Its finish reason has come.
    pub(super) ended: bool,
    /// It has a call in the member that `tool_calls` replaced.
    pub(super) legacy: bool,
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
    /// Its index, once the client knows it.
    pub(super) index: Option<usize>,
    /// What is to leave of its arguments with its name.
    pub(super) unsent: String,
    /// It was found in the text: nothing of it is left to do.
    pub(super) from_text: bool,
    /// It does not reach the client: only the first call was asked for.
    pub(super) dropped: bool,
}

impl Call {
    /// Whether its name is whole for certain: it is declared, and no declared name goes on from there.
    fn has_whole_name(&self, tools: &ToolSet) -> bool {
        let longer = |name: &str| name.len() > self.name.len() && name.starts_with(&self.name);
        tools.is_empty() || (tools.tool(&self.name).is_some() && !tools.names().any(longer))
    }

    /// Whether the client may know of it: the name is certain, or followed by arguments.
    pub(super) fn may_begin(&self, tools: &ToolSet) -> bool {
        self.index.is_none()
            && !self.dropped
            && !self.name.is_empty()
            && (!self.arguments.is_empty() || self.has_whole_name(tools))
    }

    /// The name with a further piece of it, or the longer one that is said in its stead.
    fn longer_name(&self, said: &str, tools: &ToolSet) -> String {
        let old = self.given_name.as_deref().unwrap_or_default();
        let joined = format!("{old}{said}");
        let replaces =
            said.starts_with(old) && (tools.resolve(said).is_some() || tools.resolve(&joined).is_none());
        if replaces { said.to_owned() } else { joined }
    }

    /// Whether an element brings a further piece of the name: the same labels, no arguments so far.
    fn is_named_on_by(&self, entry: &Entry<'_>, tools: &ToolSet) -> bool {
        let Some((old, said)) = self.given_name.as_deref().zip(entry.name.as_deref()) else { return false };
        let same_id = entry.id.is_none() || entry.id == self.given_id;
        let other = tools.resolve(said).is_some()
            && !said.starts_with(old)
            && tools.resolve(&format!("{old}{said}")).is_none();
        self.index.is_none() && self.arguments.is_empty() && entry.index.is_some() && same_id && !other
    }

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
    /// The number of the call that an element belongs to; none when it repeats one that is complete, id and all. `alone`
    /// says that it must begin one, as in answers that are not streamed.
    pub(super) fn place(
        &mut self,
        entry: &Entry<'_>,
        alone: bool,
        tools: &ToolSet,
        made_id: impl Fn(usize) -> String,
    ) -> Option<usize> {
        if self.calls.iter().any(|call| call.is_repeated_by(entry)) {
            return None;
        }
        let continued = if alone { None } else { self.continued(entry, tools) };
        let number = continued.unwrap_or_else(|| {
            let number = self.begin(entry.id.clone(), made_id);
            self.calls[number].label = entry.index;
            self.calls[number].given_id.clone_from(&entry.id);
            number
        });
        let call = &mut self.calls[number];
        if let Some(name) = entry.name.as_ref().filter(|_| call.index.is_none()) {
            let name = call.longer_name(name, tools);
            call.name = real_name(tools, &name);
            call.given_name = Some(name);
        }
        Some(number)
    }

    /// The client gets to know a call, under the next index.
    pub(super) fn show(&mut self, number: usize) -> usize {
        let next = self.delivered();
        *self.calls[number].index.get_or_insert(next)
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
        self.calls.iter().filter(|call| call.index.is_some()).count()
    }

    /// The call that an element goes on with; none when it begins one.
    fn continued(&self, entry: &Entry<'_>, tools: &ToolSet) -> Option<usize> {
        let last =
            |fits: &dyn Fn(&Call) -> bool| self.calls.iter().rposition(|call| !call.from_text && fits(call));
        let here = |call: &Call| entry.index.is_none() || call.label == entry.index;
        let unfinished = |number: &usize| entry.name.is_none() && !self.calls[*number].arguments.is_whole();
        let found = match &entry.id {
            Some(id) => last(&|call| here(call) && call.given_id.as_ref() == Some(id))
                .or_else(|| {
                    // An id that comes late, for a call that has none.
                    last(&here)
                        .filter(|number| self.calls[*number].given_id.is_none() && entry.name.is_none())
                })
                // Another id and no name amid the arguments: the backend makes one up for each piece.
                .or_else(|| last(&here).filter(unfinished)),
            // A label not seen on what says nothing new is a slip of the backend.
            None => last(&here).or_else(|| entry.name.is_none().then(|| last(&|_| true)).flatten()),
        };
        found.filter(|number| !self.is_another(*number, entry, tools))
    }

    /// Whether an element with that call's labels begins another one all the same: it has a name, and that is not the
    /// call's, or the call has all its arguments and this brings its own.
    fn is_another(&self, number: usize, entry: &Entry<'_>, tools: &ToolSet) -> bool {
        let call = &self.calls[number];
        match (&entry.name, &call.given_name) {
            (Some(new), Some(old)) => {
                (new != old && !call.is_named_on_by(entry, tools))
                    || (call.arguments.is_whole() && !entry.arguments.trim_ascii().is_empty())
            }
            _ => false,
        }
    }
}
