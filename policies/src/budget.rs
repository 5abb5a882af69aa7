//! Output tokens: what the client asked for against what the window leaves.
//!
//! Agents send 32,000 or 65,536 whatever the window is. Newer vLLM cuts silently, older vLLM refuses, and a `max_tokens`
//! above the window is refused by all: so the proxy cuts, and says so. One client sends 64 when its own arithmetic finds the
//! window full, and a call of 64 tokens is an empty answer. A model that thinks may spend a small limit on its thoughts, and
//! say nothing. It must never touch what may be meant: health checks and benches ask for one token, and mean it.

use crate::facts::PromptSize;

/// What an agent gets whose limit is no wish.
const NO_WISH: u64 = 4096;

/// The least that an output limit can mean, if anything: with tools only, where the client's profile says that exactly `no_limit_at`
/// tokens are what its arithmetic leaves, or the operator has set a `least` for it.
#[must_use]
pub fn floor(asked: Option<u64>, agent: bool, no_limit_at: Option<u64>, least: Option<u64>) -> Option<u64> {
    let asked = asked.filter(|_| agent)?;
    if no_limit_at == Some(asked) { Some(NO_WISH.max(least.unwrap_or(0))) } else { least }
}

/// What an agent gets of a model that thinks: free thoughts were seen to need that much (club-3090, docs/EXAMPLES.md).
pub const ROOM_TO_THINK: u64 = 8192;

/// Without tools, so small a limit is a probe: health checks ask for 1, benches of prefill for 16, needles for 30.
const PROBE: u64 = 32;

/// The least output of a model that thinks: what the operator set for the client, else [`ROOM_TO_THINK`] for a known agent.
/// `None` for probes, and where there is no limit.
#[must_use]
pub fn room_to_think(asked: Option<u64>, agent: bool, known: bool, configured: Option<u64>) -> Option<u64> {
    let asked = asked?;
    if asked <= 1 || (!agent && asked <= PROBE) {
        return None;
    }
    configured.or((agent && known).then_some(ROOM_TO_THINK))
}

/// The output limit to send instead of the asked one, or `None` if the asked one fits (or none was asked).
///
/// `margin` tokens stay free between prompt, output and window. At least one token is always left to ask for.
#[must_use]
pub fn clamp(asked: Option<u64>, prompt: PromptSize, window: Option<u64>, margin: u64) -> Option<u64> {
    let (asked, window) = (asked?, window?);
    if prompt.high().saturating_add(asked) <= window {
        return None;
    }
    let left = |tokens: u64| window.saturating_sub(tokens).saturating_sub(margin);
    // An expectation that leaves nothing is a guess gone wrong, if the prompt fits at all: one token would be no answer.
    let room = match left(prompt.expected()) {
        0 => left(prompt.low()).max(1),
        room => room,
    };
    (asked > room).then_some(room)
}

/// The limit for a second try after one of `sent` tokens cut a call, if the window leaves room for a larger one: four
/// times as much, and what an agent gets whose limit is no wish at the least.
#[must_use]
pub fn longer(sent: u64, prompt: PromptSize, window: Option<u64>, margin: u64) -> Option<u64> {
    let wanted = sent.saturating_mul(4).max(NO_WISH);
    let room = clamp(Some(wanted), prompt, window, margin).unwrap_or(wanted);
    (room > sent).then_some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_agents_limit_that_cannot_be_meant_is_raised() {
        assert_eq!(floor(Some(64), true, Some(64), None), Some(4096));
        assert_eq!(floor(Some(64), false, Some(64), Some(1024)), None);
        assert_eq!(floor(Some(1), true, Some(64), None), None);
        assert_eq!(floor(Some(64), true, None, Some(1024)), Some(1024));
        assert_eq!(floor(None, true, Some(64), Some(1024)), None);
    }

    #[test]
    fn a_known_agent_gets_room_to_think_and_a_probe_never_does() {
        assert_eq!(room_to_think(Some(500), true, true, None), Some(8192));
        assert_eq!(room_to_think(Some(500), true, false, None), None);
        assert_eq!(room_to_think(Some(500), false, true, None), None);
        assert_eq!(room_to_think(Some(500), false, false, Some(2048)), Some(2048));
        assert_eq!(room_to_think(None, true, true, Some(2048)), None);
        for probe in [1, 16, 30] {
            assert_eq!(room_to_think(Some(probe), false, true, Some(2048)), None);
        }
        assert_eq!(room_to_think(Some(1), true, true, Some(2048)), None);
    }

    #[test]
    fn a_second_try_gets_more_room_if_the_window_has_it() {
        let prompt = PromptSize::Exact(1000);
        assert_eq!(longer(64, prompt, None, 64), Some(4096));
        assert_eq!(longer(2000, prompt, Some(100_000), 64), Some(8000));
        assert_eq!(longer(2000, prompt, Some(4000), 64), Some(2936));
        assert_eq!(longer(3000, prompt, Some(4000), 64), None);
    }

    #[test]
    fn an_output_that_fits_is_left_alone() {
        assert_eq!(clamp(Some(4096), PromptSize::Exact(1000), Some(8192), 64), None);
        assert_eq!(clamp(None, PromptSize::Exact(1000), Some(1024), 64), None);
        assert_eq!(clamp(Some(4096), PromptSize::Exact(1000), None, 64), None);
    }

    #[test]
    fn an_output_that_does_not_fit_is_cut_to_what_is_left() {
        assert_eq!(clamp(Some(65_536), PromptSize::Exact(30_000), Some(32_768), 64), Some(2704));
        assert_eq!(clamp(Some(100), PromptSize::Exact(32_760), Some(32_768), 64), Some(1));
    }

    #[test]
    fn an_uncertain_prompt_is_planned_with_its_expected_size() {
        let prompt = PromptSize::Between { low: 9, high: 3542 };
        assert_eq!(clamp(Some(400), prompt, Some(512), 64), None);
        assert_eq!(clamp(Some(4096), prompt, Some(512), 64), Some(439));
        let prompt = PromptSize::Between { low: 100, high: 28_000 };
        assert_eq!(clamp(Some(1000), prompt, Some(16_384), 64), None);
        assert_eq!(clamp(Some(32_000), prompt, Some(16_384), 64), Some(6320));
    }
}
