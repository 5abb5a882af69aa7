//! What a template calls that was written out by rounds: is this round known, what did it leave behind, keep its text.
//!
//! One [`Record`] goes with one render. It makes the key of each round from what [`super::inputs`] found that it reads, by value; messages
//! and tools stand for themselves by the hash of their bytes. What has no value of its own, such as a generator, makes the round one that
//! is run and forgotten. Nothing here may be reached by a template by itself: the names are reserved.

use std::sync::Arc;

use minijinja::value::{Object, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use parking_lot::Mutex;

use crate::prompt::turns::{Key, Lazy, Memory, Piece};

/// Begins a loop: what is the same in all its rounds. Prints the mark that stands for the loop's text.
pub(super) const BEGIN: &str = "__begin";
/// Whether what a round prints is known: the message, its inputs, the state.
pub(super) const IS_KNOWN: &str = "__is_known";
/// What a known round left in a member of state.
pub(super) const LEFT: &str = "__left";
/// Keeps what a round printed and left.
pub(super) const KEEP: &str = "__keep";
/// The variable that a round's text is caught in.
pub(super) const TEXT: &str = "__text";
/// The variable in which a render has its record.
const RECORD: &str = "__record";

/// The longest key, in bytes before it is hashed.
const MAX_KEY: usize = 4 << 20;

/// What a render did, round by round.
#[derive(Debug)]
pub(in crate::prompt) struct Record {
    memory: Arc<Memory>,
    /// All that stands in no message: variables, tools, which template.
    context: Key,
    done: Mutex<Done>,
}

/// A round of a loop.
#[derive(Debug)]
pub(in crate::prompt) enum Round {
    /// It was known.
    Known(Arc<Piece>),
    /// It was run: its text, and under which key it may be kept with what it left.
    Run(String, Option<(Key, Vec<Value>)>),
}

#[derive(Debug, Default)]
struct Done {
    loops: Vec<Vec<Round>>,
    /// What is the same in all rounds of the loop that runs; none if that has no value.
    fixed: Option<Key>,
    /// The round that is being run.
    running: Option<Key>,
    left: Option<Arc<Piece>>,
}

impl Object for Record {}

impl Record {
    pub(in crate::prompt) fn new(memory: Arc<Memory>, context: Key) -> Arc<Self> {
        Arc::new(Self { memory, context, done: Mutex::default() })
    }

    /// The loops that were run, in order, each with its rounds.
    pub(in crate::prompt) fn take(&self) -> Vec<Vec<Round>> {
        std::mem::take(&mut self.done.lock().loops)
    }

    /// The variable in which the template has it.
    pub(in crate::prompt) fn variable(self: &Arc<Self>) -> (String, Value) {
        (RECORD.to_owned(), Value::from_dyn_object(self.clone()))
    }

    fn of<T>(state: &State, ask: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let record = state.lookup(RECORD);
        match record.as_ref().and_then(|record| record.downcast_object_ref::<Self>()) {
            Some(record) => Ok(ask(record)),
            None => Err(Error::new(ErrorKind::InvalidOperation, "there is no record")),
        }
    }

    fn key(&self, before: Key, values: &[Value]) -> Option<Key> {
        let mut told = Vec::with_capacity(64);
        told.extend(self.context);
        told.extend(before);
        values.iter().all(|value| tell(value, &mut told)).then(|| self.memory.hash(&told))
    }

    fn begin(&self, values: &[Value]) -> Value {
        let mut done = self.done.lock();
        done.loops.push(Vec::new());
        done.fixed = self.key(self.context, values);
        Value::from(self.memory.mark())
    }

    fn is_known(&self, values: &[Value]) -> bool {
        let mut done = self.done.lock();
        let key = done.fixed.and_then(|fixed| self.key(fixed, values));
        done.running = key;
        done.left = key.and_then(|key| self.memory.round(key));
        let Some(piece) = done.left.clone() else { return false };
        if let Some(rounds) = done.loops.last_mut() {
            rounds.push(Round::Known(piece));
        }
        true
    }

    fn left(&self, place: usize) -> Value {
        let done = self.done.lock();
        done.left.as_ref().and_then(|piece| piece.state().get(place).cloned()).unwrap_or_default()
    }

    fn keep(&self, text: String, state: Vec<Value>) {
        let mut done = self.done.lock();
        let is_plain = |value: &Value| {
            !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain)
        };
        let key = done.running.take().filter(|_| state.iter().all(is_plain));
        if let Some(rounds) = done.loops.last_mut() {
            rounds.push(Round::Run(text, key.map(|key| (key, state))));
        }
    }
}

/// Writes a value down so that no other value reads the same; false if that cannot be done.
fn tell(value: &Value, told: &mut Vec<u8>) -> bool {
    if told.len() > MAX_KEY {
        return false;
    }
    if let Some(lazy) = value.downcast_object_ref::<Lazy>() {
        told.push(b'z');
        told.extend(lazy.hash());
        return true;
    }
    match value.kind() {
        ValueKind::Undefined => told.push(b'u'),
        ValueKind::None => told.push(b'n'),
        ValueKind::Bool => told.push(if value.is_true() { b't' } else { b'f' }),
        ValueKind::Number if value.is_integer() => {
            let Ok(number) = i128::try_from(value.clone()) else { return false };
            told.push(b'i');
            told.extend(number.to_le_bytes());
        }
        ValueKind::Number => {
            let Ok(number) = f64::try_from(value.clone()) else { return false };
            told.push(b'd');
            told.extend(number.to_bits().to_le_bytes());
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            told.push(if value.is_safe() { b'S' } else { b's' });
            told.extend(text.len().to_le_bytes());
            told.extend(text.as_bytes());
        }
        ValueKind::Seq => {
            told.push(b'[');
            let Ok(mut items) = value.try_iter() else { return false };
            let all = items.all(|item| tell(&item, told));
            told.push(b']');
            return all;
        }
        ValueKind::Map => {
            told.push(b'{');
            let Ok(mut keys) = value.try_iter() else { return false };
            let all = keys
                .all(|key| tell(&key, told) && value.get_item(&key).is_ok_and(|member| tell(&member, told)));
            told.push(b'}');
            return all;
        }
        _ => return false,
    }
    true
}

pub(super) fn add_functions(env: &mut Environment<'static>) {
    env.add_function(BEGIN, |state: &State, values: Rest<Value>| {
        Record::of(state, |record| record.begin(&values))
    });
    env.add_function(IS_KNOWN, |state: &State, values: Rest<Value>| {
        Record::of(state, |record| record.is_known(&values))
    });
    env.add_function(LEFT, |state: &State, place: usize| Record::of(state, |record| record.left(place)));
    env.add_function(KEEP, |state: &State, text: String, values: Rest<Value>| {
        Record::of(state, |record| record.keep(text, values.0))?;
        Ok::<_, Error>("")
    });
}
