//! Splitting what a model thought from what it said.
//!
//! Why: backends without a reasoning parser leave `<think>` and its relatives in the content, and templates that open
//! the thought in the prompt leave only the closing tag. Only a tag at the very beginning starts a thought; tags in
//! the middle of a sentence are talk.
//!
//! It must never lose anything but the tags and the white space beside them, never hold more than a tag's beginning
//! and a few blanks, and any cut of the same text must give the same pieces, joined.

/// A stretch of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// What is meant for the reader, or a call.
    Text(String),
    /// What was thought.
    Reasoning(String),
}

/// How a family marks its thoughts. `<thinking>` is not among them: it is a visible tag of Cline's own.
#[derive(Clone, Copy)]
struct Tag<'t> {
    open: &'t str,
    close: &'t str,
}

const TAGS: &[Tag<'static>] = &[
    Tag { open: "<think>", close: "</think>" },
    Tag { open: "<seed:think>", close: "</seed:think>" },
    Tag { open: "<mm:think>", close: "</mm:think>" },
    Tag { open: "[THINK]", close: "[/THINK]" },
    Tag { open: "◁think▷", close: "◁/think▷" },
    Tag { open: "<|channel>thought", close: "<channel|>" },
    Tag { open: "<|plamo:begin_think:plamo|>", close: "<|plamo:end_think:plamo|>" },
    Tag { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
    Tag { open: "<|message_model|><|content_thinking|>", close: "<|end_message|>" },
];

/// As much white space before a closing tag goes, in bytes.
const TRIMMED: usize = 16;
/// As much white space may stand before the tag that opens a thought, in bytes.
const LEADING: usize = 64;

/// Splits one answer, piece by piece.
#[derive(Clone, Debug)]
pub struct ReasoningSplitter {
    text: String,
    /// Where the text begins that is held back; what stands before it is done with.
    done: usize,
    place: Place,
    /// The only tags that count, if they are known.
    own: Option<[String; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing but white space and tags so far. `tagged`: there was a tag.
    Start { tagged: bool },
    /// In a thought of a family, or of any where the prompt has opened it. `said`: something of it is out.
    Inside { tag: Option<usize>, said: bool },
    /// In the answer. `duplicate`: a second closing tag at the beginning of a line still goes.
    Text { duplicate: bool, line_start: bool },
}

/// Which of a family's two tags.
#[derive(Clone, Copy)]
enum Side {
    Open,
    Close,
}

/// What stands somewhere.
enum Found {
    /// A tag, by its number, and its length.
    Tag(usize, usize),
    /// The beginning of one, cut off.
    Partial,
    Nothing,
}

impl ReasoningSplitter {
    /// `open`: the prompt has already opened the thought, so the answer begins inside it.
    pub fn new(open: bool) -> Self {
        let place =
            if open { Place::Inside { tag: None, said: false } } else { Place::Start { tagged: false } };
        Self { text: String::new(), done: 0, place, own: None }
    }

    /// The answer goes on in the midst of a thought: white space there is a part of it.
    pub fn amid_thought() -> Self {
        let place = Place::Inside { tag: None, said: true };
        Self { text: String::new(), done: 0, place, own: None }
    }

    /// The same, for a model that is known to think between these two tags and no others.
    #[must_use]
    pub fn between(self, tags: Option<[String; 2]>) -> Self {
        let own = tags.filter(|tags| tags.iter().all(|tag| !tag.is_empty()));
        Self { own, ..self }
    }

    /// The last character of the closing tag, if only one counts.
    pub(crate) fn closes_with(&self) -> Option<char> {
        self.own.as_ref().and_then(|[_, close]| close.chars().next_back())
    }

    /// Takes the next stretch of the answer, and gives what is certain.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.text.push_str(text);
        self.run(false)
    }

    /// The answer has ended: gives the rest.
    pub fn finish(&mut self) -> Vec<Piece> {
        self.run(true)
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.rest().len()
    }

    /// Whether the answer is inside a thought.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.place, Place::Inside { .. })
    }

    fn run(&mut self, end: bool) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while !self.rest().is_empty() {
            let goes_on = match self.place {
                Place::Start { tagged } => self.start(tagged, end),
                Place::Inside { tag, said } => self.inside(tag, said, end, &mut pieces),
                Place::Text { duplicate, line_start } => self.text(duplicate, line_start, end, &mut pieces),
            };
            if !goes_on {
                break;
            }
        }
        self.text.drain(..self.done);
        self.done = 0;
        pieces
    }

    fn rest(&self) -> &str {
        &self.text[self.done..]
    }

    fn skip(&mut self, bytes: usize) {
        self.done += bytes;
    }

    fn skip_blank(&mut self) {
        self.done = self.text.len() - self.rest().trim_ascii_start().len();
    }

    fn start(&mut self, tagged: bool, end: bool) -> bool {
        if tagged {
            self.skip_blank();
        }
        let rest = self.rest().trim_ascii_start();
        let blank = self.rest().len() - rest.len();
        let text = Place::Text { duplicate: tagged, line_start: true };
        match (self.find_at(rest, Side::Open, None), self.find_at(rest, Side::Close, None)) {
            _ if blank > LEADING => self.place = text,
            (Found::Tag(tag, length), _) => {
                self.skip(blank + length);
                self.place = Place::Inside { tag: Some(tag), said: false };
            }
            (_, Found::Tag(_, length)) => {
                self.skip(blank + length);
                self.place = Place::Start { tagged: true };
            }
            (Found::Partial, _) | (_, Found::Partial) if !end => return false,
            _ => self.place = text,
        }
        true
    }

    fn inside(&mut self, tag: Option<usize>, said: bool, end: bool, pieces: &mut Vec<Piece>) -> bool {
        if !said {
            self.skip_blank();
            // A model that opens the thought again, although it or the prompt has done so.
            match self.find_at(self.rest(), Side::Open, tag) {
                Found::Tag(again, length) => {
                    self.skip(length);
                    self.place = Place::Inside { tag: Some(again), said };
                    return true;
                }
                Found::Partial if !end => return false,
                _ => {}
            }
        }
        let (at, closing) = self.find_close(tag, end);
        let spoken = &self.rest()[..at];
        let trimmed = spoken.trim_ascii_end().len().max(spoken.len().saturating_sub(TRIMMED));
        if trimmed > 0 {
            pieces.push(Piece::Reasoning(spoken[..trimmed].to_owned()));
            self.place = Place::Inside { tag, said: true };
        }
        match closing {
            Some(length) => {
                self.skip(at + length);
                self.place = Place::Start { tagged: true };
                true
            }
            None => {
                self.skip(if end { self.rest().len() } else { trimmed });
                false
            }
        }
    }

    /// Where the thought ends, and the length of the tag there; without a tag, up to where the text is certain.
    fn find_close(&self, tag: Option<usize>, end: bool) -> (usize, Option<usize>) {
        let rest = self.rest();
        let first = self.own.as_ref().and_then(|[_, close]| close.chars().next());
        let begins = |c: char| first.map_or_else(|| matches!(c, '<' | '[' | '◁'), |first| c == first);
        for (at, _) in rest.match_indices(begins) {
            match self.find_at(&rest[at..], Side::Close, tag) {
                Found::Tag(_, length) => return (at, Some(length)),
                Found::Partial if !end => return (at, None),
                _ => {}
            }
        }
        (rest.len(), None)
    }

    fn text(&mut self, duplicate: bool, line_start: bool, end: bool, pieces: &mut Vec<Piece>) -> bool {
        let rest = self.rest();
        let mut certain = rest.len();
        let mut tag = None;
        if duplicate {
            let begins = line_start.then_some(0).into_iter();
            let lines = rest.match_indices('\n').map(|(at, _)| at + 1);
            for at in begins.chain(lines).filter(|at| *at < rest.len()) {
                match self.find_at(&rest[at..], Side::Close, None) {
                    Found::Tag(_, length) => tag = Some(length),
                    Found::Partial if !end => {}
                    _ => continue,
                }
                certain = at;
                break;
            }
        }
        if certain > 0 {
            let line_start = rest[..certain].ends_with('\n');
            pieces.push(Piece::Text(rest[..certain].to_owned()));
            self.place = Place::Text { duplicate, line_start };
        }
        self.skip(certain + tag.unwrap_or(0));
        if tag.is_some() {
            self.place = Place::Text { duplicate: false, line_start: true };
        }
        tag.is_some()
    }

    /// The tag at the beginning of `text`: of one family, or of any.
    fn find_at(&self, text: &str, side: Side, only: Option<usize>) -> Found {
        let own = self.own.as_ref().map(|[open, close]| Tag { open, close });
        let known = TAGS.iter().copied().filter(|_| own.is_none());
        let mut partial = Found::Nothing;
        for (number, tag) in own.into_iter().chain(known).enumerate() {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            let tag = match side {
                Side::Open => tag.open,
                Side::Close => tag.close,
            };
            if text.starts_with(tag) {
                return Found::Tag(number, tag.len());
            }
            if tag.starts_with(text) {
                partial = Found::Partial;
            }
        }
        partial
    }
}
