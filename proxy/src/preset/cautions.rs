//! What to know of a machine before relying on it, in sentences.
//!
//! Made from the published cliffs, status and settings, with their numbers. Must never warn of what the machine's own window
//! rules out.

use super::Status;
use super::read::{Cliff, Program, Row, Topology};

/// From where on a single prompt was seen to kill one 24 GB card (docs/CLIFFS.md).
const SINGLE_KILLS: u64 = 50_000;

/// The cautions of one machine, the deadly ones first.
pub(super) fn of(row: &Row) -> Vec<String> {
    let has = |cliff| row.cliffs.contains(&cliff);
    let cards = match row.topology {
        Topology::Single => "one 24 GB card",
        Topology::Dual => "two cards",
        Topology::Multi4 => "four cards",
        Topology::Multi8 => "eight cards",
    };
    let mut cautions = Vec::new();
    let mut say = |text: String| cautions.push(text);
    if has(Cliff::Accumulated)
        && let Some((from, _)) = row.accumulated_oom_tokens
    {
        let safe =
            row.accumulated_safe_tokens.map(|safe| format!("; up to {safe} are safe")).unwrap_or_default();
        say(format!("{cards}: conversations above {from} tokens kill the engine{safe}"));
    }
    if has(Cliff::Single) && row.max_ctx > SINGLE_KILLS {
        let from = row.single_prompt_safe_tokens.unwrap_or(SINGLE_KILLS);
        say(format!("{cards}: a single prompt above {from} tokens kills the engine"));
    }
    if has(Cliff::SlowTurns) {
        say(format!(
            "{cards}: the wait for the first token grows with the whole conversation, cached or not"
        ));
    }
    if has(Cliff::SlowerTurns) {
        say("the wait for the first token grows with the conversation".to_owned());
    }
    if row.max_num_seqs == 1 {
        say("one request at a time: a second one waits for the whole first".to_owned());
    } else if has(Cliff::Starvation) {
        let eased = match row.long_prefill_token_threshold {
            Some(threshold) if threshold > 0 => {
                format!("; new short requests wait less, since a long prompt takes {threshold} tokens a step")
            }
            _ => String::new(),
        };
        say(format!("a long prefill slows running answers to less than one token a second{eased}"));
    }
    if row.mtp && row.engine == Program::Vllm {
        say("with mtp, streamed calls under tool_choice required get lost (vllm#39598)".to_owned());
        if row.model.starts_with("qwen") {
            say("with mtp, minutes of agent traffic may kill the engine (vllm#50021)".to_owned());
        }
    }
    if let Some(rig) = &row.rig {
        say(format!("measured on {rig}"));
    }
    match row.status {
        Status::Production => {}
        Status::Caveats => say("published with caveats".to_owned()),
        Status::Incubating | Status::Experimental | Status::Preview => say("not proven yet".to_owned()),
        Status::Deprecated => say("retired by its project; starts only if forced".to_owned()),
        Status::Archived => say("no longer shipped by its project".to_owned()),
    }
    cautions
}

#[cfg(test)]
mod tests {
    use super::super::get;

    #[test]
    fn a_single_cards_cautions_name_what_kills_it_and_nothing_that_its_window_rules_out() {
        assert_eq!(
            get("vllm/minimal").unwrap().cautions,
            [
                "one 24 GB card: conversations above 21000 tokens kill the engine; up to 15000 are safe",
                "one 24 GB card: the wait for the first token grows with the whole conversation, cached or not",
                "one request at a time: a second one waits for the whole first",
            ]
        );
        let long = &get("vllm/long-text").unwrap().cautions;
        assert_eq!(long[1], "one 24 GB card: a single prompt above 50000 tokens kills the engine");
        assert_eq!(long.last().unwrap(), "no longer shipped by its project");
    }

    #[test]
    fn two_cards_starve_and_do_not_die() {
        assert_eq!(
            get("vllm/dual").unwrap().cautions,
            [
                "the wait for the first token grows with the conversation",
                "a long prefill slows running answers to less than one token a second; new short requests wait less, \
                 since a long prompt takes 2048 tokens a step",
                "with mtp, streamed calls under tool_choice required get lost (vllm#39598)",
                "with mtp, minutes of agent traffic may kill the engine (vllm#50021)",
                "published with caveats",
            ]
        );
    }
}
