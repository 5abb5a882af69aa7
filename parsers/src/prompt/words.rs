//! Where words and numbers begin in a text, as far as all pre-tokenizers agree: the state machine of `bounds`.
//!
//! Why a table: this runs over every byte of every request, and text has no pattern that a processor could predict branches by. It
//! must err on one side only: what one vocabulary in use might merge is not two.

/// What a byte of text is to a pre-tokenizer, as far as it is the same for all of them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Class {
    #[default]
    Nothing,
    Letter,
    Digit,
    /// Beyond ASCII: may be a letter, and then joins the run that it stands in.
    Mark,
    /// Behind letters: `'s`, `'ll` may belong to the word before.
    Apostrophe,
    /// `>`
    Close,
    /// `"`
    End,
    /// `\`
    Escape,
}

pub(super) const CLASSES: [Class; 256] = {
    let mut classes = [Class::Nothing; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b'\'' => Class::Apostrophe,
            b'>' => Class::Close,
            b'"' => Class::End,
            b'\\' => Class::Escape,
            0x80.. => Class::Mark,
            _ => Class::Nothing,
        };
        byte += 1;
    }
    classes
};

/// Where in words and numbers a text is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Out,
    /// In a word that is counted.
    Word,
    /// In a number that is counted.
    Number,
    /// In characters beyond ASCII, which may be letters or not.
    Marks,
    /// Behind the apostrophe of a word.
    Tick,
}

impl State {
    /// The state behind a character, and the words or numbers that begin with it.
    const fn next(self, class: Class) -> (Self, u64) {
        match (self, class) {
            // `don't` is one token in some vocabularies.
            (Self::Word, Class::Letter) | (Self::Tick, Class::Letter | Class::Mark) => (Self::Word, 0),
            (_, Class::Letter) => (Self::Word, 1),
            (Self::Number, Class::Digit) => (Self::Number, 0),
            (_, Class::Digit) => (Self::Number, 1),
            (Self::Out, Class::Mark) => (Self::Marks, 0),
            (_, Class::Mark) => (self, 0),
            (Self::Word | Self::Marks, Class::Apostrophe) => (Self::Tick, 0),
            _ => (Self::Out, 0),
        }
    }
}

/// [`State::next`] as a table: text has no pattern that a branch could be predicted by.
pub(super) const STEPS: [[(State, u64); 8]; 5] = {
    let states = [State::Out, State::Word, State::Number, State::Marks, State::Tick];
    let classes = [Class::Nothing, Class::Letter, Class::Digit, Class::Mark, Class::Apostrophe];
    let mut steps = [[(State::Out, 0); 8]; 5];
    let mut state = 0;
    while state < states.len() {
        let mut class = 0;
        while class < classes.len() {
            steps[states[state] as usize][classes[class] as usize] = states[state].next(classes[class]);
            class += 1;
        }
        state += 1;
    }
    steps
};

/// Bytes by which NFC may lengthen a character that begins with these bytes: the composition exclusions of Unicode.
pub(super) fn nfc_growth(first: u8, second: u8) -> u64 {
    match (first, second) {
        (0xCD, 0x84) => 2,
        (0xE0, _) | (0xE2, 0xAB) | (0xEF, 0xAC | 0xAD) => 3,
        (0xF0, 0x9D) => 8,
        _ => 0,
    }
}
