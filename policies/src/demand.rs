//! An answer whose calls are not what was asked for: wrong by their schema, missing although demanded, cut by the limit.
//!
//! By default it passes as it is. A client for which the operator has said more gets one hidden second question, to the
//! same backend, while nothing of the answer was shown. Never more than one, never another backend, and the second answer is
//! taken only if it is better: asking again must not lose what was there.

/// What becomes of calls whose arguments are not as the tool declares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InvalidCalls {
    /// They pass.
    #[default]
    Pass,
    /// They pass, and the answer says what is wrong with them.
    Note,
    /// The model is told what is wrong, once.
    AskAgain,
}

/// What becomes of an answer without a call where `tool_choice` demands one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissingCalls {
    /// It passes.
    #[default]
    Pass,
    /// The same is asked once more.
    Retry,
    /// It is asked once more for nothing but a call, where the engine can be held to that; else as `Retry`.
    Constrain,
}

/// What becomes of an answer that the client's own limit cut inside a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CutCalls {
    /// It passes: finish reason `length`, and no call.
    #[default]
    Pass,
    /// It is asked once more with a larger limit, or continued where text was shown.
    Rescue,
}

/// What becomes of an answer whose backend failed after a part of it was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CutAnswers {
    /// Another backend of the same model goes on with it where that is honest; else as `Error`.
    #[default]
    Continue,
    /// It ends with an error.
    Error,
}

/// The operator's word for one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Calls that are not as declared.
    pub invalid: InvalidCalls,
    /// Calls that are not there.
    pub missing: MissingCalls,
    /// Calls that are not whole.
    pub cut: CutCalls,
}

/// What is known of a whole answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerFacts {
    /// Its calls.
    pub calls: usize,
    /// Those of them that are not as declared.
    pub invalid: usize,
    /// The request demands a call, and there is none, or not of the tool that it names.
    pub unheeded: bool,
    /// It ended at the output limit.
    pub at_limit: bool,
    /// That was inside a call.
    pub cut_call: bool,
}

/// What is possible for a second question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Means {
    /// The follow-up, which is longer by the answer and the errors, fits the backend.
    pub follow_up: bool,
    /// The engine can be held to a call.
    pub constrain: bool,
    /// A larger output limit, tokens.
    pub longer: Option<u64>,
}

/// A second question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The conversation goes on with the answer and what is wrong with its calls.
    Corrected,
    /// The same once more.
    Same,
    /// The same, and nothing but a call.
    Constrained,
    /// The same with so many output tokens.
    Longer(u64),
}

/// The second question that this answer calls for, if any.
#[must_use]
pub fn again(answer: AnswerFacts, wishes: Wishes, means: Means) -> Option<Again> {
    if answer.cut_call {
        return means.longer.filter(|_| wishes.cut == CutCalls::Rescue).map(Again::Longer);
    }
    let question = if answer.unheeded {
        match wishes.missing {
            MissingCalls::Pass => None,
            MissingCalls::Constrain if means.constrain => Some(Again::Constrained),
            MissingCalls::Retry | MissingCalls::Constrain => Some(Again::Same),
        }
    } else {
        let corrects = answer.invalid > 0 && wishes.invalid == InvalidCalls::AskAgain && means.follow_up;
        corrects.then_some(Again::Corrected)
    };
    // The limit would cut the second answer, too, unless that is nothing but a call.
    question.filter(|question| !answer.at_limit || *question == Again::Constrained)
}

/// Whether the second answer is to be delivered instead of the first.
#[must_use]
pub fn is_better(first: AnswerFacts, second: AnswerFacts) -> bool {
    let worth = |answer: AnswerFacts| match answer {
        AnswerFacts { cut_call: true, .. } => 0,
        AnswerFacts { calls: 0, .. } | AnswerFacts { unheeded: true, .. } => 1,
        AnswerFacts { invalid: 1.., .. } => 2,
        _ => 3,
    };
    worth(second) > worth(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wishes =
        Wishes { invalid: InvalidCalls::AskAgain, missing: MissingCalls::Constrain, cut: CutCalls::Rescue };
    const MEANS: Means = Means { follow_up: true, constrain: true, longer: Some(4096) };

    fn answer(calls: usize, invalid: usize) -> AnswerFacts {
        AnswerFacts { calls, invalid, ..AnswerFacts::default() }
    }

    #[test]
    fn nothing_is_asked_again_unless_the_operator_says_so() {
        let cut = AnswerFacts { at_limit: true, cut_call: true, ..answer(0, 0) };
        let missing = AnswerFacts { unheeded: true, ..answer(0, 0) };
        for facts in [answer(1, 1), cut, missing] {
            assert_eq!(again(facts, Wishes::default(), MEANS), None);
            assert_eq!(
                again(facts, Wishes { invalid: InvalidCalls::Note, ..Wishes::default() }, MEANS),
                None
            );
            assert!(again(facts, ALL, MEANS).is_some());
        }
    }

    #[test]
    fn each_fault_has_its_own_question_and_none_without_the_means() {
        let cut = AnswerFacts { at_limit: true, cut_call: true, ..answer(0, 0) };
        let missing = AnswerFacts { unheeded: true, ..answer(0, 0) };
        let table = [
            (answer(2, 1), MEANS, Some(Again::Corrected)),
            (answer(2, 1), Means { follow_up: false, ..MEANS }, None),
            (answer(2, 0), MEANS, None),
            (answer(0, 0), MEANS, None),
            (missing, MEANS, Some(Again::Constrained)),
            (missing, Means { constrain: false, ..MEANS }, Some(Again::Same)),
            (AnswerFacts { at_limit: true, ..missing }, MEANS, Some(Again::Constrained)),
            (AnswerFacts { at_limit: true, ..missing }, Means { constrain: false, ..MEANS }, None),
            (AnswerFacts { at_limit: true, ..answer(2, 1) }, MEANS, None),
            (cut, MEANS, Some(Again::Longer(4096))),
            (cut, Means { longer: None, ..MEANS }, None),
        ];
        for (facts, means, expected) in table {
            assert_eq!(again(facts, ALL, means), expected, "{facts:?} {means:?}");
        }
    }

    #[test]
    fn a_second_answer_is_taken_only_if_it_is_better() {
        let cut = AnswerFacts { cut_call: true, ..answer(0, 0) };
        for (first, second, better) in [
            (answer(1, 1), answer(1, 0), true),
            (answer(1, 1), answer(1, 1), false),
            // A model that gives up after being told is no better than one that tried.
            (answer(1, 1), answer(0, 0), false),
            (answer(0, 0), answer(1, 1), true),
            (answer(0, 0), cut, false),
            (AnswerFacts { unheeded: true, ..answer(1, 0) }, answer(1, 0), true),
            (answer(1, 1), AnswerFacts { unheeded: true, ..answer(1, 0) }, false),
            (cut, answer(0, 0), true),
            (cut, cut, false),
        ] {
            assert_eq!(is_better(first, second), better, "{first:?} {second:?}");
        }
    }
}
