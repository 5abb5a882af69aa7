//! What a template calls that was written out by rounds: is this round known, what did it leave behind, keep its text.
//!
//! One [`Record`] goes with one render. It makes the key of each round from what [`super::inputs`] found that it reads, by value; messages
//! and tools stand for themselves by the hash of their bytes. What has no value of its own, such as a generator, makes the round one that
//! is run and forgotten. Where all inputs are told without the engine ([`super::quick`]), known rounds are walked over here, and the template's
//! loop sees the others only. Nothing here may be reached by a template by itself: the names are reserved.

use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use parking_lot::Mutex;

use super::quick::{Asked, Outer, Place, Told};
use crate::prompt::turns::{Key, Lazy, Memory, Piece, Sequence};

/// Begins a loop: what is the same in all its rounds. Prints the mark that stands for the loop's text.
pub(super) const BEGIN: &str = "__begin";
/// Whether what a round prints is known: the message, its inputs, the state.
pub(super) const IS_KNOWN: &str = "__is_known";
/// Begins to walk through a list of which only those rounds are run that are not known: which loop, the list, what its inputs read outside.
pub(super) const WALK: &str = "__walk";
/// Goes on to the next round that is not known, with the state: what stands for `loop` in it, or none behind the last one.
pub(super) const NEXT: &str = "__next";
/// What [`NEXT`] gave.
pub(super) const LOOP: &str = "__loop";
/// What the last known round left in a member of state.
pub(super) const LEFT: &str = "__left";
/// The message of a round, as a member of [`LOOP`].
pub(super) const ITEM: &str = "__item";
/// Keeps what a round printed and left.
pub(super) const KEEP: &str = "__keep";
/// The variable that a round's text is caught in.
pub(super) const TEXT: &str = "__text";

/// The longest key, in bytes before it is hashed.
const MAX_KEY: usize = 4 << 20;

/// What a render did, round by round.
pub(in crate::prompt) struct Record {
    memory: Arc<Memory>,
    /// All that stands in no message: variables, tools, which template.
    context: Key,
    /// What the rounds of each loop read from outside.
    inputs: Arc<Vec<Vec<Asked>>>,
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

#[derive(Default)]
struct Done {
    loops: Vec<Vec<Round>>,
    walk: Walk,
    /// What is the same in all rounds of the loop that runs; none if that has no value.
    fixed: Option<Key>,
    /// The round that is being run, or was the last.
    running: Option<Key>,
    /// What the last round left, if it was known.
    left: Vec<Value>,
    /// What a round depends on, written down.
    told: Vec<u8>,
}

/// A loop that is walked through.
#[derive(Default)]
struct Walk {
    which: usize,
    items: Arc<Vec<Value>>,
    outer: Vec<Outer>,
    at: usize,
}

impl Record {
    pub(super) fn new(memory: Arc<Memory>, context: Key, inputs: Arc<Vec<Vec<Asked>>>) -> Arc<Self> {
        Arc::new(Self { memory, context, inputs, done: Mutex::default() })
    }

    /// The loops that were run, in order, each with its rounds.
    pub(in crate::prompt) fn take(&self) -> Vec<Vec<Round>> {
        std::mem::take(&mut self.done.lock().loops)
    }

    /// What the template calls, by name.
    pub(in crate::prompt) fn variables(self: &Arc<Self>) -> impl Iterator<Item = (String, Value)> {
        [
            (BEGIN, Step::Begin),
            (IS_KNOWN, Step::IsKnown),
            (WALK, Step::Walk),
            (NEXT, Step::Next),
            (LEFT, Step::Left),
            (KEEP, Step::Keep),
        ]
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
        done.finds(&self.memory, key)
    }

    fn walk(&self, which: usize, list: &Value, outer: &[Value]) -> Result<Value, Error> {
        let items = Arc::new(list.try_iter()?.collect());
        self.done.lock().walk = Walk { which, items, outer: outer.iter().map(Outer::of).collect(), at: 0 };
        Ok(list.clone())
    }

    fn next(&self, state: &[Value]) -> Value {
        let mut done = self.done.lock();
        let mut walk = std::mem::take(&mut done.walk);
        let inputs = self.inputs.get(walk.which).map(Vec::as_slice).unwrap_or_default();
        done.left.clear();
        done.left.extend_from_slice(state);
        let mut next = Value::from(());
        while let (Some(item), true) = (walk.items.get(walk.at), next.is_none()) {
            let place = Place { items: &walk.items, at: walk.at, outer: &walk.outer };
            let key = done.fixed.and_then(|fixed| done.key_in(&self.memory, fixed, item, inputs, place));
            if !done.finds(&self.memory, key) {
                next = Value::from_object(Loop { items: walk.items.clone(), at: walk.at });
            }
            walk.at += 1;
        }
        done.walk = walk;
        next
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
    /// Whether the round with this key is known, and what it left; else it is the one that is run.
    fn finds(&mut self, memory: &Memory, key: Option<Key>) -> bool {
        let before = std::mem::replace(&mut self.running, key);
        let Self { loops, left, .. } = self;
        let (Some(key), Some(rounds)) = (key, loops.last_mut()) else { return false };
        if let ([_], Some(before)) = (rounds.as_slice(), before)
            && !matches!(rounds.as_slice(), [Round::Front(..)])
            && let Some(known) = memory.sequence([before, key])
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
        let Some(piece) = memory.round(key) else { return false };
        left.clear();
        left.extend_from_slice(piece.state());
        rounds.push(Round::Known(key, piece));
        true
    }

    /// The key of a round that is walked to: the message, its inputs, and the state that the round before left.
    fn key_in(
        &mut self,
        memory: &Memory,
        before: Key,
        item: &Value,
        inputs: &[Asked],
        place: Place<'_>,
    ) -> Option<Key> {
        let Self { told, left, .. } = self;
        told.clear();
        told.extend(before);
        let role = item.downcast_object_ref::<Lazy>().and_then(Lazy::role).and_then(Value::as_str);
        let all = tell(item, told)
            && inputs
                .iter()
                .all(|input| input.tell(role, place).is_some_and(|value| tell_input(value, told)))
            && left.iter().all(|value| tell(value, told));
        all.then(|| memory.hash(told))
    }

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
    Walk,
    Next,
    Left,
    Keep,
}

/// A function of one render.
struct Call {
    record: Arc<Record>,
    step: Step,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("step", &self.step).finish_non_exhaustive()
    }
}

/// Stands for `loop` in a round.
#[derive(Debug)]
struct Loop {
    items: Arc<Vec<Value>>,
    at: usize,
}

impl Object for Loop {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        let length = self.items.len();
        let item = |at: Option<usize>| at.and_then(|at| self.items.get(at)).cloned();
        Some(match name {
            ITEM => return item(Some(self.at)),
            "index0" => Value::from(self.at),
            "index" => Value::from(self.at + 1),
            "revindex0" => Value::from(length.saturating_sub(self.at + 1)),
            "revindex" => Value::from(length.saturating_sub(self.at)),
            "length" => Value::from(length),
            "first" => Value::from(self.at == 0),
            "last" => Value::from(self.at + 1 == length),
            "previtem" => return item(self.at.checked_sub(1)),
            "nextitem" => return item(Some(self.at + 1)),
            _ => return None,
        })
    }

    fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
        self.get_value_by_str(name.as_str()?)
    }
}

impl Object for Call {
    fn call(self: &Arc<Self>, _: &State<'_, '_>, values: &[Value]) -> Result<Value, Error> {
        match (self.step, values) {
            (Step::Begin, values) => Ok(self.record.begin(values)),
            (Step::IsKnown, values) => Ok(self.record.is_known(values).into()),
            (Step::Walk, [which, list, outer @ ..]) => {
                self.record.walk(which.as_usize().unwrap_or(usize::MAX), list, outer)
            }
            (Step::Next, state) => Ok(self.record.next(state)),
            (Step::Left, [place]) => Ok(self.record.left(place.as_usize().unwrap_or(usize::MAX))),
            (Step::Keep, [text, state @ ..]) => {
                self.record.keep(text.as_str().unwrap_or_default(), state);
                Ok(Value::from(""))
            }
            _ => Err(Error::new(ErrorKind::InvalidOperation, "a round is asked for in the wrong way")),
        }
    }
}

fn tell_input(value: Told<'_>, told: &mut Vec<u8>) -> bool {
    match value {
        Told::Ref(value) => tell(value, told),
        Told::Undefined => {
            told.push(b'u');
            true
        }
        Told::Whole(number) => {
            told.push(b'w');
            told.extend(number.to_le_bytes());
            true
        }
        Told::Flag(flag) => {
            told.push(if flag { b't' } else { b'f' });
            true
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
