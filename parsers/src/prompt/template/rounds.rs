//! What a template calls that was written out by rounds: is this round known, what did it leave behind, keep its text.
//!
//! One [`Record`] goes with one render. It makes the key of each round from what [`super::inputs`] found that it reads, by value; messages
//! and tools stand for themselves by the hash of their bytes. What has no value of its own, such as a generator, makes the round one that
//! is run and forgotten. Nothing here may be reached by a template by itself: the names are reserved.

use std::sync::Arc;

use minijinja::value::{Object, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use parking_lot::Mutex;

use crate::prompt::turns::{Key, Lazy, Memory, Piece, Sequence};

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

/// A round of a loop, or several.
#[derive(Debug)]
pub(in crate::prompt) enum Round {
    /// So many from the first one on were known together.
    Front(Arc<Sequence>, usize),
    /// It was known.
    Known(Key, Arc<Piece>),
    /// It was run: its text, and under which key it may be kept with what it left.
    Run(String, Option<(Key, Vec<Value>)>),
}

#[derive(Debug, Default)]
struct Done {
    loops: Vec<Vec<Round>>,
    /// What is the same in all rounds of the loop that runs; none if that has no value.
    fixed: Option<Key>,
    /// The round that is being run, or was the last.
    running: Option<Key>,
    /// What the last round left, if it was known.
    left: Vec<Value>,
    /// What a round depends on, written down.
    told: Vec<u8>,
}

impl Record {
    pub(in crate::prompt) fn new(memory: Arc<Memory>, context: Key) -> Arc<Self> {
        Arc::new(Self { memory, context, done: Mutex::default() })
    }

    /// The loops that were run, in order, each with its rounds.
    pub(in crate::prompt) fn take(&self) -> Vec<Vec<Round>> {
        std::mem::take(&mut self.done.lock().loops)
    }

    /// What the template calls, by name.
    pub(in crate::prompt) fn variables(self: &Arc<Self>) -> impl Iterator<Item = (String, Value)> {
        [(BEGIN, Step::Begin), (IS_KNOWN, Step::IsKnown), (LEFT, Step::Left), (KEEP, Step::Keep)]
            .into_iter()
            .map(|(name, step)| (name.to_owned(), Value::from_object(Call { record: self.clone(), step })))
    }

    fn begin(&self, values: &[Value]) -> Value {
        let mut done = self.done.lock();
        done.loops.push(Vec::new());
        done.fixed = done.key(&self.memory, self.context, values);
        done.running = None;
        Value::from(self.memory.mark())
    }

    fn is_known(&self, values: &[Value]) -> bool {
        let mut done = self.done.lock();
        let key = done.fixed.and_then(|fixed| done.key(&self.memory, fixed, values));
        let before = std::mem::replace(&mut done.running, key);
        let Done { loops, left, .. } = &mut *done;
        let (Some(key), Some(rounds)) = (key, loops.last_mut()) else { return false };
        if let ([_], Some(before)) = (rounds.as_slice(), before)
            && !matches!(rounds.as_slice(), [Round::Front(..)])
            && let Some(known) = self.memory.sequence([before, key])
        {
            *rounds = vec![Round::Front(known, 1)];
        }
        if let [Round::Front(known, count)] = rounds.as_mut_slice()
            && let Some(values) = known.left(*count, key)
        {
            *count += 1;
            left.clear();
            left.extend_from_slice(values);
            return true;
        }
        let Some(piece) = self.memory.round(key) else { return false };
        left.clear();
        left.extend_from_slice(piece.state());
        rounds.push(Round::Known(key, piece));
        true
    }

    fn left(&self, place: usize) -> Value {
        self.done.lock().left.get(place).cloned().unwrap_or_default()
    }

    fn keep(&self, text: &str, state: &[Value]) {
        let mut done = self.done.lock();
        let is_plain = |value: &Value| {
            !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain)
        };
        let key = done.running.filter(|_| state.iter().all(is_plain));
        if let Some(rounds) = done.loops.last_mut() {
            rounds.push(Round::Run(text.to_owned(), key.map(|key| (key, state.to_vec()))));
        }
    }
}

impl Done {
    fn key(&mut self, memory: &Memory, before: Key, values: &[Value]) -> Option<Key> {
        let told = &mut self.told;
        told.clear();
        told.extend(before);
        values.iter().all(|value| tell(value, told)).then(|| memory.hash(told))
    }
}

/// What is called.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    IsKnown,
    Left,
    Keep,
}

/// A function of one render.
#[derive(Debug)]
struct Call {
    record: Arc<Record>,
    step: Step,
}

impl Object for Call {
    fn call(self: &Arc<Self>, _: &State<'_, '_>, values: &[Value]) -> Result<Value, Error> {
        match (self.step, values) {
            (Step::Begin, values) => Ok(self.record.begin(values)),
            (Step::IsKnown, values) => Ok(self.record.is_known(values).into()),
            (Step::Left, [place]) => Ok(self.record.left(place.as_usize().unwrap_or(usize::MAX))),
            (Step::Keep, [text, state @ ..]) => {
                self.record.keep(text.as_str().unwrap_or_default(), state);
                Ok(Value::from(""))
            }
            _ => Err(Error::new(ErrorKind::InvalidOperation, "a round is asked for in the wrong way")),
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
