//! `switchback rules`: the rules by which requests are changed, by the names that `rules_on` and `rules_off` take.

use switchback_parsers::needs::Need;

use super::say;
use crate::answer::tidy::AnswerRule;
use crate::edits::RequestRule;

pub(super) fn run() {
    say(
        "rules for requests: switched by rules_off in [[client]] and [[backend]], by rules_on in [[backend]]",
    );
    for rule in RequestRule::ALL {
        say(format_args!("    {:20} {}", rule.name(), rule.sentence()));
    }
    say("\nrules for answers: switched by rules_off and rules_on in [[client]]");
    for rule in AnswerRule::ALL {
        say(format_args!("    {:20} {}", rule.name(), rule.sentence()));
    }
    say("\nneeds of chat templates: found by probing, or set by needs in [[backend]]; switched like rules");
    for need in Need::ALL {
        say(format_args!("    {:20} {}", need.name(), need.done()));
    }
}
