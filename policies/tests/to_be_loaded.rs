//! Backends that have to be loaded first: when a decision takes them, and what it says of those it may not take.

use switchback_policies::client::Class;
use switchback_policies::decision::{Decision, Settings, Unserved, decide};
use switchback_policies::facts::{
    BackendFacts, BackendState, Home, Limit, Loaded, PromptSize, RequestFacts, Speed,
};

const SETTINGS: Settings = Settings { headroom: 0, margin: 64 };

fn there(name: &str, window: u64) -> BackendFacts {
    BackendFacts { state: BackendState::Up, ..BackendFacts::new(name, Some(window)) }
}

fn away(name: &str, window: u64, loaded: Loaded) -> BackendFacts {
    BackendFacts { state: BackendState::NotLoaded, loaded, ..BackendFacts::new(name, Some(window)) }
}

fn decided(request: &RequestFacts, fleet: &[BackendFacts]) -> (Decision, String) {
    let decision = decide(request, fleet, SETTINGS);
    let names = decision.choices.iter().map(|choice| fleet[choice.candidate.backend].name.as_str());
    let names: Vec<&str> = names.collect();
    let names = names.join(" ");
    (decision, names)
}

fn chat(tokens: u64) -> RequestFacts {
    RequestFacts::plain(PromptSize::Exact(tokens))
}

#[test]
fn nothing_is_loaded_for_what_those_who_are_there_can_answer() {
    let fleet = [away("large", 200_000, Loaded::After(100.0)), there("small", 32_000)];
    assert_eq!(decided(&chat(20_000), &fleet).1, "small large");
    let (decision, names) = decided(&chat(50_000), &fleet);
    assert_eq!(names, "large");
    let sentence = decision.sentence(0, &chat(50_000), &fleet);
    assert!(sentence.starts_with("large: has to be loaded first, expected in 100 s"), "{sentence}");
}

#[test]
fn a_conversation_that_outgrows_a_limit_of_such_machines_moves_to_one_that_is_loaded_for_it() {
    let limit = Limit { tokens: 15_000, soft: true };
    let single = BackendFacts { accumulated: Some(limit), ..there("single", 32_768) };
    let fleet = [single, away("llama", 200_000, Loaded::After(100.0))];
    let agent = |tokens| RequestFacts { agent: true, ..chat(tokens) };
    assert_eq!(decided(&agent(13_000), &fleet).1, "single llama");
    assert_eq!(decided(&agent(15_100), &fleet).1, "llama single");
}

#[test]
fn a_conversation_that_has_moved_on_does_not_come_back_to_where_it_would_near_a_cliff() {
    let limit = Limit { tokens: 15_000, soft: true };
    let single = BackendFacts { accumulated: Some(limit), ..there("single", 32_768) };
    let fleet = [single, away("llama", 200_000, Loaded::After(100.0))];
    let moved =
        |tokens| RequestFacts { agent: true, home: Some(Home { backend: 1, cached: 0 }), ..chat(tokens) };
    assert_eq!(decided(&moved(13_000), &fleet).1, "llama single");
    assert_eq!(decided(&moved(4_000), &fleet).1, "single llama", "a shortened one is at ease there");
    let cannot = [fleet[0].clone(), away("llama", 200_000, Loaded::Failed(60))];
    assert_eq!(decided(&moved(13_000), &cannot).1, "single");
}

#[test]
fn a_load_that_ends_clearly_sooner_than_the_answer_of_a_slow_machine_is_worth_it_but_not_for_background_work()
{
    // Experts on the CPU: 345 s for 90,000 tokens.
    let slow = Speed { prefill_a: 3.03e-3, prefill_b: 8.9e-9, ..Speed::USUAL };
    let slow = BackendFacts { speed: Some(slow), ..there("slow", 200_000) };
    let fast = BackendFacts { speed: Some(Speed::USUAL), ..away("fast", 200_000, Loaded::After(100.0)) };
    let fleet = [slow, fast];
    assert_eq!(decided(&chat(90_000), &fleet).1, "fast slow");
    assert_eq!(decided(&chat(20_000), &fleet).1, "slow fast", "80 s there, 20 s after a load of 100 s");
    let background = RequestFacts { class: Class::Background, ..chat(90_000) };
    assert_eq!(decided(&background, &fleet).1, "slow fast");
}

#[test]
fn who_may_not_swap_is_told_so_and_of_the_lengths_that_it_may_send() {
    let large = away("large", 200_000, Loaded::MayNot);
    let (decision, names) = decided(&chat(900), std::slice::from_ref(&large));
    assert_eq!((names.as_str(), decision.unserved(&chat(900))), ("", Some(Unserved::MayNotLoad)));
    let fleet = [large, there("small", 32_000)];
    assert_eq!(decided(&chat(900), &fleet).1, "small");
    let too_long = Some(Unserved::TooLong { tokens: 50_000, limit: 32_000 });
    assert_eq!(decided(&chat(50_000), &fleet).0.unserved(&chat(50_000)), too_long);
}

#[test]
fn a_load_that_failed_is_told_with_its_time_and_never_as_a_prompt_that_is_too_long() {
    let fleet = [away("large", 200_000, Loaded::Failed(40)), there("small", 32_000)];
    let (decision, names) = decided(&chat(50_000), &fleet);
    assert_eq!(
        (names.as_str(), decision.unserved(&chat(50_000))),
        ("", Some(Unserved::LoadFailed { again: 40 }))
    );
    // Beyond both, it is too long after all.
    let longest = chat(300_000);
    let unserved = decided(&longest, &fleet).0.unserved(&longest);
    assert_eq!(unserved, Some(Unserved::TooLong { tokens: 300_000, limit: 200_000 }));
}
