//! The text of one backend's answer joined to another's, whatever the other makes of the wish to go on.
//!
//! The next backend is given what was said as the beginning of its own answer. Engines differ in what they make of that:
//! vLLM says only what follows, llama.cpp says the beginning again, and a server that does not know the wish begins anew. So
//! nothing of the rest is passed on before it is clear which of these it is. A beginning that is repeated whole is taken off;
//! one that is begun anew in other words breaks the seam.
//!
//! Templates trim the end of what is to be continued, so it is given without the white space at its end, and as much of that as
//! the rest begins with is taken off. Must never take off what the model may have meant, nor repeat what was shown.

use std::fmt;

use switchback_parsers::diagnosis::Engine;

/// So much of a beginning, in bytes, is no coincidence.
const NO_COINCIDENCE: usize = 16;

/// Why a rest does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    BeganAnew,
    Thinks,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeganAnew => "it began its answer anew",
            Self::Thinks => "it took the rest of the answer for a thought",
        })
    }
}

/// Fits the text of a rest on.
#[derive(Debug)]
pub(crate) struct Join {
    /// What was said, as long as it may be repeated.
    said: Option<String>,
    /// The engine always repeats it.
    repeats: bool,
    /// White space that was said behind it, and may be said again.
    blank: String,
    /// What has come, and is not clear yet.
    pending: String,
}

impl Join {
    /// Behind this text, of an engine of this kind.
    pub(crate) fn behind(text: &str, engine: Engine) -> Self {
        let said = text.trim_end();
        Self {
            said: Some(said.to_owned()),
            repeats: matches!(engine, Engine::LlamaCpp | Engine::IkLlama),
            blank: text[said.len()..].to_owned(),
            pending: String::new(),
        }
    }

    /// Behind this white space, where nothing else can be repeated.
    pub(crate) fn behind_blank(blank: &str) -> Self {
        Self { said: None, repeats: false, blank: blank.to_owned(), pending: String::new() }
    }

    /// Takes more of the rest; gives what of it is new. `ends`: nothing follows.
    pub(crate) fn push(&mut self, text: &str, ends: bool) -> Result<String, Misfit> {
        self.pending.push_str(text);
        if let Some(said) = &self.said {
            let same = common(&self.pending, said);
            if same == self.pending.len() && same < said.len() && !ends {
                return Ok(String::new());
            }
            let is_chance = same < NO_COINCIDENCE && !self.repeats;
            if same == said.len() && !is_chance {
                self.pending.drain(..same);
            } else if !is_chance && same >= NO_COINCIDENCE.min(said.len()) && same > 0 {
                return Err(Misfit::BeganAnew);
            }
            self.said = None;
        }
        let again = common(&self.pending, &self.blank);
        self.pending.drain(..again);
        self.blank.drain(..again);
        if !self.pending.is_empty() {
            self.blank.clear();
        }
        Ok(std::mem::take(&mut self.pending))
    }

    /// The whole of a rest at once.
    pub(crate) fn whole(mut self, rest: &str) -> Result<String, Misfit> {
        self.push(rest, true)
    }
}

/// Bytes that both begin with, whole characters.
fn common(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    same.map(|(same, _)| same.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "The capital of France is";

    /// The rest as it comes in these pieces.
    fn joined(said: &str, engine: Engine, pieces: &[&str]) -> Result<String, Misfit> {
        let mut join = Join::behind(said, engine);
        let mut rest = String::new();
        for piece in pieces {
            rest.push_str(&join.push(piece, false)?);
        }
        rest.push_str(&join.push("", true)?);
        Ok(format!("{said}{rest}"))
    }

    #[test]
    fn a_rest_is_joined_alike_whether_the_engine_repeats_the_beginning_or_not() {
        let whole = Ok("The capital of France is Paris.".to_owned());
        assert_eq!(joined(SAID, Engine::Vllm, &[" Paris", "."]), whole);
        assert_eq!(joined(SAID, Engine::LlamaCpp, &["The capital of France is Paris", "."]), whole);
        assert_eq!(joined(SAID, Engine::LlamaCpp, &["The cap", "ital of France", " is Par", "is."]), whole);
        // A build that does not repeat.
        assert_eq!(joined(SAID, Engine::LlamaCpp, &[" Paris", "."]), whole);
        // A server that began anew and came to the same words.
        assert_eq!(joined(SAID, Engine::Vllm, &["The capital of ", "France is", " Paris."]), whole);
    }

    #[test]
    fn white_space_at_the_seam_is_neither_lost_nor_doubled() {
        for (said, rest, whole) in [
            ("One. ", " Two", "One. Two"),
            ("One. ", "Two", "One. Two"),
            ("One.", " Two", "One. Two"),
            ("One.\n\n", "\n\nTwo", "One.\n\nTwo"),
            ("One.\n\n", "\nTwo", "One.\n\nTwo"),
            ("One.\n", "\n\nTwo", "One.\n\nTwo"),
            ("One. ", "\nTwo", "One. \nTwo"),
        ] {
            assert_eq!(joined(said, Engine::Vllm, &[rest]).as_deref(), Ok(whole), "{said:?} {rest:?}");
            let pieces: Vec<String> = rest.chars().map(String::from).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(joined(said, Engine::Vllm, &pieces).as_deref(), Ok(whole), "{said:?} {rest:?}");
        }
    }

    #[test]
    fn what_the_model_says_twice_is_not_taken_off() {
        assert_eq!(joined("ha", Engine::Vllm, &["ha", "ha"]).as_deref(), Ok("hahaha"));
        assert_eq!(
            joined(SAID, Engine::Vllm, &[" The", " best"]).as_deref(),
            Ok("The capital of France is The best")
        );
        assert_eq!(joined(SAID, Engine::Vllm, &["The", "n"]).as_deref(), Ok("The capital of France isThen"));
    }

    #[test]
    fn an_answer_that_is_begun_anew_in_other_words_breaks_the_seam() {
        assert_eq!(
            joined(SAID, Engine::Vllm, &["The capital of Fr", "ench cooking"]),
            Err(Misfit::BeganAnew)
        );
        assert_eq!(
            joined(SAID, Engine::LlamaCpp, &["The capital of Fr", "ench cooking"]),
            Err(Misfit::BeganAnew)
        );
    }

    #[test]
    fn however_the_rest_is_cut_it_is_joined_alike() {
        for said in ["One two three four. ", "ab", "", "a\n\n", "One two three four five\nsix"] {
            for rest in ["", " and on", "\n\nTwo", "ab", said] {
                for (engine, echo) in [(Engine::Vllm, ""), (Engine::LlamaCpp, said.trim_end())] {
                    let rest = format!("{echo}{rest}");
                    let whole = joined(said, engine, &[&rest]);
                    for step in 1..=rest.len() {
                        let chars: Vec<char> = rest.chars().collect();
                        let pieces: Vec<String> =
                            chars.chunks(step).map(|piece| piece.iter().collect()).collect();
                        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
                        assert_eq!(joined(said, engine, &pieces), whole, "{said:?} {rest:?} by {step}");
                    }
                }
            }
        }
    }
}
