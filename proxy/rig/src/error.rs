//! What can be wrong with what people write for the rig: specs, scripts, fleets, clocks.
//!
//! Each error names the place, the value and what is allowed. It must never be about a running backend.

/// What is wrong with a spec, a script, a fleet file or a clock.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No such preset.
    #[error("there is no preset {slug:?}; there are {known}")]
    Preset {
        /// What was asked for.
        slug: String,
        /// The slugs that exist.
        known: String,
    },
    /// A step of a script that is none.
    #[error(
        "{text:?} is no step; steps are ok, say TEXT, think TEXT, call, call NAME ARGUMENTS, \
         write FORMAT[:FLAW] [NAME [ARGUMENTS]] (formats hermes, qwen-xml, glm, kimi, mistral, pythonic, fenced; flaws \
         unclosed, trailing-comma, two, in-fence, in-prose), empty, http:CODE (400 to 599), dead, stall, stall:TOKENS, \
         cut:TOKENS"
    )]
    Step {
        /// The step as written.
        text: String,
    },
    /// A clock's speed that is none.
    #[error("a clock's speed must be a finite number above 0, not {speed}")]
    Speed {
        /// The speed asked for.
        speed: f64,
    },
    /// A number outside its range.
    #[error("{name}: {field} is {value}, it must be {must}")]
    Range {
        /// The spec's name.
        name: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// A text that is no spec.
    #[error("{place}: {problem}")]
    Syntax {
        /// Which file or backend.
        place: String,
        /// What the reader said.
        problem: String,
    },
}
