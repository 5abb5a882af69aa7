//! The decision table of the two-card community, row by row: the readable default, and the scorer agrees with it.
//!
//! S = single-card vLLM (`vllm/minimal`), D = vLLM over both cards (`vllm/dual`), L = llama.cpp (`llamacpp/default`), M = a
//! mixture of experts over both cards. Figures are those of the presets; S, D, L is the operator's order.

use switchback_policies::client::Class;
use switchback_policies::decision::{Settings, decide};
use switchback_policies::facts::{
    BackendFacts, BackendState, Home, Images, Limit, Load, PromptSize, RequestFacts, Speed,
};

const SETTINGS: Settings = Settings { headroom: 0, margin: 64 };

fn single() -> BackendFacts {
    BackendFacts {
        accumulated: Some(Limit { tokens: 15_000, soft: true }),
        slots: Some(1),
        speed: Some(Speed {
            prefill_a: 9.46e-4,
            prefill_b: 2.15e-9,
            first_token: 0.145,
            decode: 32.0,
            deeper: 0.0,
        }),
        state: BackendState::Up,
        images: false,
        ..BackendFacts::new("S", Some(32_768))
    }
}

fn dual() -> BackendFacts {
    BackendFacts {
        single: Some(240_633),
        resident: Some(622_000),
        slots: Some(2),
        speed: Some(Speed {
            prefill_a: 7.05e-4,
            prefill_b: 2.11e-9,
            first_token: 0.145,
            decode: 72.0,
            deeper: 0.0,
        }),
        state: BackendState::Up,
        ..BackendFacts::new("D", Some(262_144))
    }
}

fn llama() -> BackendFacts {
    BackendFacts {
        resident: Some(183_000),
        slots: Some(1),
        speed: Some(Speed {
            prefill_a: 9.46e-4,
            prefill_b: 2.15e-9,
            first_token: 0.1,
            decode: 50.3,
            deeper: 0.0,
        }),
        state: BackendState::Up,
        images: false,
        ..BackendFacts::new("L", Some(200_000))
    }
}

fn experts() -> BackendFacts {
    BackendFacts {
        single: Some(246_000),
        resident: Some(2_050_000),
        slots: Some(16),
        speed: Some(Speed {
            prefill_a: 1.87e-4,
            prefill_b: 8.6e-10,
            first_token: 0.13,
            decode: 182.0,
            deeper: 0.0,
        }),
        state: BackendState::Up,
        ..BackendFacts::new("M", Some(262_144))
    }
}

fn fleet() -> Vec<BackendFacts> {
    vec![single(), dual(), llama()]
}

fn chat(tokens: u64) -> RequestFacts {
    RequestFacts { output: Some(300), ..RequestFacts::plain(PromptSize::Exact(tokens)) }
}

fn agent(tokens: u64) -> RequestFacts {
    RequestFacts { output: Some(4096), agent: true, ..chat(tokens) }
}

#[track_caller]
fn row(request: RequestFacts, fleet: &[BackendFacts], order: &str) {
    let decision = decide(&request, fleet, SETTINGS);
    let names: Vec<&str> =
        decision.choices.iter().map(|choice| fleet[choice.candidate.backend].name.as_str()).collect();
    let sentences: Vec<String> =
        (0..decision.choices.len().max(1)).map(|nth| decision.sentence(nth, &request, fleet)).collect();
    assert_eq!(names.join(" "), order, "{request:?}\n{sentences:#?}");
}

#[test]
fn up_to_8k_without_tools_the_small_card_answers_and_the_large_ones_stay_free() {
    for tokens in [50, 1000, 4000, 8000] {
        row(chat(tokens), &fleet(), "S D L");
    }
}

#[test]
fn first_turns_of_agents_go_to_the_fastest_and_the_small_card_comes_next() {
    for tokens in [6000, 8000, 10_000, 11_900] {
        row(agent(tokens), &fleet(), "D S L");
    }
}

#[test]
fn a_growing_agent_leaves_the_small_card_before_its_cliff() {
    for tokens in [12_000, 13_000, 14_400] {
        row(agent(tokens), &fleet(), "D L S");
    }
}

#[test]
fn between_15k_and_183k_the_small_card_is_no_choice_unless_nobody_else_is_left() {
    for tokens in [15_000, 20_000, 30_000] {
        row(agent(tokens), &fleet(), "D L S");
        row(agent(tokens), &[single()], "S");
    }
    for tokens in [33_000, 50_000, 90_000, 182_000] {
        row(agent(tokens), &fleet(), "D L");
        row(chat(tokens), &fleet(), "D L");
    }
}

#[test]
fn a_soft_limit_is_passed_with_a_warning_and_a_hard_one_never() {
    let request = agent(20_000);
    let soft = [single()];
    assert_eq!(
        decide(&request, &soft, SETTINGS).sentence(0, &request, &soft),
        "S: warning: above the 15000 tokens that such a backend is known to survive, nobody else fits (20000 of 32767 tokens)"
    );
    let hard = [BackendFacts { accumulated: Some(Limit { tokens: 15_000, soft: false }), ..single() }];
    row(request, &hard, "");
}

#[test]
fn above_183k_only_both_cards_carry_it_and_above_240k_nobody() {
    for tokens in [184_000, 237_000, 240_633] {
        row(agent(tokens), &fleet(), "D");
    }
    row(agent(240_634), &fleet(), "");
}

#[test]
fn images_go_where_they_are_seen() {
    row(RequestFacts { images: Images::New, ..chat(3000) }, &fleet(), "D");
    row(RequestFacts { images: Images::New, ..chat(3000) }, &[single()], "");
    row(RequestFacts { images: Images::Old, ..chat(3000) }, &fleet(), "D S L");
}

#[test]
fn a_conversation_stays_where_it_was_unless_another_is_clearly_better() {
    let at = |backend, tokens: u64| Some(Home { backend, cached: tokens - 500 });
    // Without a home an agent of 100,000 tokens goes to D; L, which has read all but the last turn, ends sooner.
    row(RequestFacts { home: at(2, 100_000), ..agent(100_000) }, &fleet(), "L D");
    row(RequestFacts { home: at(1, 4000), ..chat(4000) }, &fleet(), "D S L");
    // A home that is full for long is left.
    let busy = Load { running: 1, resident: 100_000, first_ends_in: 600.0 };
    let fleet = [single(), dual(), BackendFacts { slots: Some(1), load: busy, resident: None, ..llama() }];
    row(RequestFacts { home: at(2, 100_000), ..agent(100_000) }, &fleet, "D L");
    // And one that cannot carry the conversation any longer is no home.
    row(RequestFacts { home: at(0, 33_000), ..agent(33_000) }, &fleet, "D L");
}

#[test]
fn long_answers_go_to_the_fastest_decoder() {
    row(RequestFacts { output: Some(4000), ..chat(1000) }, &[single(), dual()], "D S");
}

#[test]
fn many_agents_go_to_the_mixture_of_experts_else_they_wait_for_the_two_slots() {
    let busy = Load { running: 2, resident: 40_000, first_ends_in: 30.0 };
    let dual = BackendFacts { load: busy, ..dual() };
    row(agent(16_000), &[dual.clone(), experts()], "M D");
    row(agent(16_000), &[dual.clone(), BackendFacts { load: busy, ..llama() }], "D L");
    // A free backend is worth more than a faster one with a queue.
    row(agent(16_000), &[dual, llama()], "L D");
}

#[test]
fn background_tasks_take_the_smallest_and_the_large_machine_last() {
    row(RequestFacts { class: Class::Background, ..chat(2000) }, &fleet(), "S L D");
}

#[test]
fn what_is_not_up_comes_after_what_is() {
    let with = |state| vec![single(), BackendFacts { state, ..dual() }, llama()];
    row(agent(30_000), &with(BackendState::Loading), "L S D");
    row(agent(90_000), &with(BackendState::Loading), "L D");
    row(agent(90_000), &with(BackendState::Absent), "L D");
    row(agent(90_000), &with(BackendState::Draining), "L D");
    row(chat(2000), &with(BackendState::Dead), "S L D");
}

#[test]
fn a_pool_that_is_full_now_is_passed_over_and_never_refused() {
    let full = BackendFacts {
        slots: Some(4),
        load: Load { running: 3, resident: 150_000, first_ends_in: 10.0 },
        ..llama()
    };
    row(agent(60_000), &[full.clone(), dual()], "D L");
    row(agent(60_000), &[full], "L");
}
