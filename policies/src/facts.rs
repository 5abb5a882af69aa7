//! What is known of a request and of a backend at the moment of the decision.
//!
//! Numbers and names only, so that a decision can be printed, tested as a table and replayed. Nothing here is looked up:
//! whoever builds the facts has done so before.

mod prompt;
mod state;

use crate::client::Class;
use crate::cliff::{Dimension, Region, Shape};

pub use prompt::PromptSize;
pub use state::{BackendState, Loaded};

/// The images of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Images {
    /// There is none.
    #[default]
    None,
    /// Only in turns that were answered long ago: a backend that reads none can go on with a word in their place.
    Old,
    /// In what is to be answered now.
    New,
}

/// Where a conversation has been answered last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Position of the backend in the list that goes with these facts.
    pub backend: usize,
    /// Tokens of the conversation that it is likely to remember.
    pub cached: u64,
}

/// What a decision needs to know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// The prompt's length.
    pub prompt: PromptSize,
    /// Output tokens that the client asked for, if it said so.
    pub output: Option<u64>,
    /// An output limit below this cannot be meant, and is raised to it ([`crate::budget::floor`]).
    pub output_floor: Option<u64>,
    /// The same where the model thinks ([`crate::budget::room_to_think`]).
    pub room_to_think: Option<u64>,
    /// The limit that the operator sets where the client asked for none.
    pub output_if_absent: Option<u64>,
    /// The request itself switches thinking on or off.
    pub thinks: Option<bool>,
    /// The images in the prompt.
    pub images: Images,
    /// Where the conversation has been.
    pub home: Option<Home>,
    /// The operator gave this client an order of its own, which a home does not change where both are as good.
    pub own_order: bool,
    /// An agent's turn: tools are declared, so the conversation will grow by tool results.
    pub agent: bool,
    /// It is streamed, and `tool_choice` is `required`.
    pub streams_required: bool,
    /// Whether somebody waits for the answer.
    pub class: Class,
    /// The session was just told to shorten itself: this request is its chance, and may use the headroom.
    pub may_fill: bool,
    /// Turns that the conversation has had, with this one.
    pub turns: u64,
    /// Pictures in the prompt.
    pub pictures: u64,
    /// Answers that it asks for at once: each takes a slot of the engine, and its own tokens.
    pub sequences: u64,
}

impl RequestFacts {
    /// A plain, interactive request of so many tokens.
    #[must_use]
    pub fn plain(prompt: PromptSize) -> Self {
        Self {
            prompt,
            output: None,
            output_floor: None,
            room_to_think: None,
            output_if_absent: None,
            thinks: None,
            images: Images::None,
            home: None,
            own_order: false,
            agent: false,
            streams_required: false,
            class: Class::Interactive,
            may_fill: false,
            turns: 1,
            pictures: 0,
            sequences: 1,
        }
    }

    /// Its size on the backend at this position, beside what runs there. Planned with the expected length of the prompt.
    #[must_use]
    pub fn shape(&self, index: usize, backend: &BackendFacts) -> Shape {
        let prompt = self.prompt.expected();
        let cached = self.home.filter(|home| home.backend == index).map_or(0, |home| home.cached.min(prompt));
        let tokens = prompt.saturating_add(backend.expected_output(self));
        Shape {
            new: prompt - cached,
            accumulated: if self.turns > 1 { prompt } else { 0 },
            resident: backend.load.resident.saturating_add(tokens),
            running: backend.load.running + 1,
            images: self.pictures,
            largest: tokens,
        }
    }

    /// The output limit that is meant, of a model that does not think.
    #[must_use]
    pub fn wanted_output(&self) -> Option<u64> {
        self.output.map(|asked| asked.max(self.output_floor.unwrap_or(0))).or(self.output_if_absent)
    }

    /// The output limit that is meant at this backend.
    #[must_use]
    pub fn wanted_output_at(&self, backend: &BackendFacts) -> Option<u64> {
        let room = self.room_to_think.filter(|_| self.thinks.unwrap_or(backend.thinks));
        self.wanted_output().map(|wanted| wanted.max(room.unwrap_or(0)))
    }

    /// Output tokens to plan with. Agents ask for 32,000 or 65,536 whatever they need, and answer with a call of a few
    /// hundred; others mean what they say.
    #[must_use]
    pub fn expected_output(&self) -> u64 {
        const USUAL: u64 = 500;
        match self.wanted_output() {
            Some(asked) if self.agent => asked.min(USUAL),
            Some(asked) => asked,
            None => USUAL,
        }
    }
}

/// A limit, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Tokens.
    pub tokens: u64,
    /// It comes from a preset: another machine of the same kind. With no other candidate it is passed, with a warning;
    /// what the operator configured or what was learned here is never passed.
    pub soft: bool,
}

/// How fast a backend is: `T(n) = a·n + b·n²` seconds of prefill for n tokens, then a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Seconds a token.
    pub prefill_a: f64,
    /// Seconds a token squared.
    pub prefill_b: f64,
    /// Seconds that even the shortest prompt waits.
    pub first_token: f64,
    /// Tokens a second of a stream with a short context.
    pub decode: f64,
    /// Seconds a token that each token of context before it adds.
    pub deeper: f64,
}

impl Speed {
    /// A 27B model on one 3090 under llama.cpp, for backends of which nothing is known. All of those are equal then, and
    /// the operator's order stands.
    pub const USUAL: Self =
        Self { prefill_a: 9.46e-4, prefill_b: 2.15e-9, first_token: 0.1, decode: 50.0, deeper: 0.0 };

    /// Seconds to read a prompt of which the first `cached` tokens were read before: what comes on top of them is as slow as
    /// the end of a long prompt.
    #[must_use]
    pub fn prefill(&self, cached: u64, prompt: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        let (cached, prompt) = (cached.min(prompt) as f64, prompt as f64);
        self.prefill_a * (prompt - cached) + self.prefill_b * (prompt * prompt - cached * cached)
    }

    /// Seconds until the answer's end on an idle backend.
    #[must_use]
    pub fn seconds(&self, prompt: u64, output: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        let (prompt_tokens, output) = (prompt as f64, output as f64);
        let each = 1.0 / self.decode.max(0.1) + self.deeper * (prompt_tokens + output / 2.0);
        self.first_token + self.prefill(0, prompt) + output * each
    }
}

/// What a backend carries at the moment of the decision, as far as the proxy put it there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests that have not ended.
    pub running: u64,
    /// Their tokens: prompts and expected outputs.
    pub resident: u64,
    /// Seconds until the first of them is expected to end.
    pub first_ends_in: f64,
}

/// What to do with streamed requests whose `tool_choice` is `required` at a backend that loses such calls: vLLM with
/// multi-token prediction dropped 13 of 20 (vllm-project/vllm#39598). Other requests are not touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamedRequired {
    /// They pass.
    #[default]
    Pass,
    /// They are sent as `auto`. The model may answer without a call then: the operator has said so.
    AsAuto,
    /// The backend is asked without streaming, and the stream is written by the proxy.
    Whole,
}

/// What a decision needs to know of a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendFacts {
    /// The operator's name for it.
    pub name: String,
    /// Prompt and output together, tokens; `None` if nobody told.
    pub window: Option<u64>,
    /// The longest single prompt that it survives, tokens; `None` if no cliff is known.
    pub single: Option<u64>,
    /// The longest conversation that it survives, tokens, prompt and output: a card that reads 30,000 tokens at once may
    /// die of 21,000 that came in five turns.
    pub accumulated: Option<Limit>,
    /// Tokens of all requests together that its memory holds; `None` if unknown.
    pub resident: Option<u64>,
    /// Requests that it runs at once; the others wait inside. `None` if unknown.
    pub slots: Option<u64>,
    /// Tokens of a long prompt that its engine reads at once while others wait or run (vLLM's `--long-prefill-token-threshold`);
    /// `None`: it may read the whole prompt before the next one begins.
    pub chunk: Option<u64>,
    /// How fast it is; `None` if unknown.
    pub speed: Option<Speed>,
    /// What it carries now.
    pub load: Load,
    /// Whether it can be asked now.
    pub state: BackendState,
    /// Whether it has to be loaded first.
    pub loaded: Loaded,
    /// It reads images.
    pub images: bool,
    /// Where it reads none, the operator wants a word in their place, in what is to be answered now, too.
    pub words_for_images: bool,
    /// Its model thinks before it answers, unless a request says otherwise.
    pub thinks: bool,
    /// It answers much worse than it used to ([`crate::quality`]).
    pub collapsed: bool,
    /// What it died of, and what it survived.
    pub learned: Region,
    /// What becomes of calls that are required of its streams.
    pub streamed_required: StreamedRequired,
}

impl BackendFacts {
    /// A backend of which only the window is known.
    #[must_use]
    pub fn new(name: &str, window: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            window,
            single: None,
            accumulated: None,
            resident: None,
            slots: None,
            chunk: None,
            speed: None,
            load: Load::default(),
            state: BackendState::Unknown,
            loaded: Loaded::Yes,
            images: true,
            words_for_images: false,
            thinks: false,
            collapsed: false,
            learned: Region::default(),
            streamed_required: StreamedRequired::Pass,
        }
    }

    /// The same with what was learned. That so many tokens or requests at once are too much narrows what is known of its
    /// memory and its slots; the rest is asked for each request's shape.
    #[must_use]
    pub fn with_learned(self, learned: Region) -> Self {
        let least =
            |known: Option<u64>, dimension| [known, learned.hard(dimension)].into_iter().flatten().min();
        Self {
            resident: least(self.resident, Dimension::Resident),
            slots: least(self.slots, Dimension::Running),
            learned,
            ..self
        }
    }

    /// Output tokens to plan with there: no answer is longer than what the window leaves.
    #[must_use]
    pub fn expected_output(&self, request: &RequestFacts) -> u64 {
        let room = self.window.map_or(u64::MAX, |window| window.saturating_sub(request.prompt.expected()));
        request.expected_output().min(room)
    }

    /// The longest prompt that may ever be sent there; `None` if no limit is known. One token is kept for the answer:
    /// engines refuse or cut to nothing a prompt that fills the window. Soft limits do not count: they may be passed; nor do
    /// those that hold for some shapes of a prompt only, as what was learned does.
    #[must_use]
    pub fn prompt_limit(&self) -> Option<u64> {
        let window = self.window.map(|window| window.saturating_sub(1));
        let accumulated = self.accumulated.filter(|limit| !limit.soft).map(|limit| limit.tokens);
        [window, self.single, accumulated, self.resident].into_iter().flatten().min()
    }
}
