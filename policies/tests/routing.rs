//! Facts → decision, as a table and as properties. A row reads: a fleet, a request, the sentence that comes out.

use proptest::prelude::*;
use switchback_policies::client::Class;
use switchback_policies::cliff::Cliffs;
use switchback_policies::decision::{Decision, Settings, Unserved, decide};
use switchback_policies::facts::{
    BackendFacts, BackendState, Home, Images, Limit, Load, PromptSize, RequestFacts, StreamedRequired,
};

const SETTINGS: Settings = Settings { headroom: 0, margin: 64 };

fn backend(name: &str, window: u64, single: Option<u64>) -> BackendFacts {
    BackendFacts { single, state: BackendState::Up, ..BackendFacts::new(name, Some(window)) }
}

/// The two-card rig of the documentation: one card with a cliff, both cards, llama.cpp.
fn fleet() -> Vec<BackendFacts> {
    vec![
        backend("single", 32_768, Some(15_000)),
        backend("dual", 262_144, Some(237_000)),
        backend("llama", 262_144, Some(240_000)),
    ]
}

fn request(tokens: u64) -> RequestFacts {
    RequestFacts::plain(PromptSize::Exact(tokens))
}

fn order(decision: &Decision, fleet: &[BackendFacts]) -> Vec<String> {
    decision.choices.iter().map(|choice| fleet[choice.candidate.backend].name.clone()).collect()
}

#[track_caller]
fn check(fleet: &[BackendFacts], request: RequestFacts, expected: &[&str]) {
    assert_eq!(order(&decide(&request, fleet, SETTINGS), fleet), expected, "{request:?}");
}

#[test]
fn the_first_backend_that_fits_comes_first() {
    check(&fleet(), request(900), &["single", "dual", "llama"]);
    check(&fleet(), request(15_000), &["single", "dual", "llama"]);
    check(&fleet(), request(15_001), &["dual", "llama"]);
    check(&fleet(), request(238_000), &["llama"]);
    check(&fleet(), request(240_001), &[]);
}

#[test]
fn who_answers_worse_than_it_did_is_asked_after_all_that_will_do_and_before_those_that_may_be_down() {
    let mut fleet = fleet();
    fleet[0].collapsed = true;
    check(&fleet, request(900), &["dual", "llama", "single"]);
    fleet[1].state = BackendState::Dead;
    check(&fleet, request(900), &["llama", "single", "dual"]);
    fleet[1].collapsed = true;
    fleet[2].state = BackendState::Loading;
    check(&fleet, request(900), &["single", "llama", "dual"]);
}

#[test]
fn a_prompt_that_fills_the_window_does_not_fit_since_nothing_could_be_answered() {
    let fleet = [backend("small", 1024, None), backend("large", 2048, None)];
    check(&fleet, request(1023), &["small", "large"]);
    check(&fleet, request(1024), &["large"]);
}

#[test]
fn a_large_output_limit_is_no_promise_of_a_long_answer() {
    let ends = |output: u64| {
        let decision =
            decide(&RequestFacts { output: Some(output), ..request(900) }, &fleet()[1..], SETTINGS);
        decision.choices[0].candidate.finish
    };
    assert!(ends(200) < ends(2000));
    assert!((ends(2000) - ends(32_000)).abs() < 1e-9, "{} {}", ends(2000), ends(32_000));
}

#[test]
fn an_output_that_fits_whole_is_worth_more_than_the_operators_order() {
    let with_output = RequestFacts { output: Some(32_000), ..request(5000) };
    check(&fleet(), with_output, &["dual", "llama", "single"]);
    let decision = decide(&with_output, &fleet(), SETTINGS);
    assert_eq!(
        decision.sentence(2, &with_output, &fleet()),
        "single: fits with less output (5000 of 15000 tokens), output cut to 27704"
    );
}

#[test]
fn a_backend_that_is_down_is_the_last_resort_and_one_that_loads_the_one_before() {
    let mut fleet = fleet();
    fleet[0].state = BackendState::Absent;
    fleet[1].state = BackendState::Loading;
    check(&fleet, request(900), &["llama", "dual", "single"]);
    fleet[2].state = BackendState::Absent;
    check(&fleet, request(200_000), &["dual", "llama"]);
}

#[test]
fn images_go_only_where_they_are_read() {
    let mut fleet = fleet();
    fleet[0].images = false;
    let picture = RequestFacts { images: Images::New, ..request(900) };
    check(&fleet, picture, &["dual", "llama"]);
    for backend in &mut fleet {
        backend.images = false;
    }
    assert_eq!(decide(&picture, &fleet, SETTINGS).unserved(&picture), Some(Unserved::NoImages));
}

#[test]
fn an_uncertain_count_keeps_the_order_where_the_expected_size_fits_and_goes_last_where_it_may_not() {
    let uncertain = |low, high| RequestFacts { prompt: PromptSize::Between { low, high }, ..request(0) };
    check(&fleet(), uncertain(3000, 28_000), &["single", "dual", "llama"]);
    check(&fleet(), uncertain(14_000, 56_000), &["dual", "llama", "single"]);
    check(&fleet(), uncertain(16_000, 56_000), &["dual", "llama"]);
}

#[test]
fn headroom_is_kept_only_on_the_largest_backend_and_given_to_the_request_after_a_refusal() {
    let settings = Settings { headroom: 7000, margin: 64 };
    let fleet = [backend("small", 16_384, None), backend("large", 44_000, None)];
    let decide = |request: RequestFacts| order(&decide(&request, &fleet, settings), &fleet);
    assert_eq!(decide(request(12_000)), ["small", "large"]);
    assert_eq!(decide(request(38_000)), [""; 0]);
    assert_eq!(decide(RequestFacts { may_fill: true, ..request(38_000) }), ["large"]);
}

#[test]
fn what_a_backend_died_of_is_a_limit_for_prompts_of_that_shape_and_the_sentence_says_so() {
    let mut cliffs = Cliffs::default();
    cliffs.died(&request(25_000).shape(0, &BackendFacts::new("any", None)), 0, 20_000);
    let learned = cliffs.region(20_000, false);
    let fleet = [backend("card", 32_768, None).with_learned(learned), backend("large", 262_144, None)];
    check(&fleet, request(22_000), &["card", "large"]);
    check(&fleet, request(24_000), &["large"]);
    assert_eq!(
        decide(&request(24_000), &fleet, SETTINGS).sentence(0, &request(24_000), &fleet),
        "large: first that fits (24000 of 262143 tokens); not card: 24000 new tokens above the 22500 held for safe: it \
         died of 25000"
    );
    let known = RequestFacts { home: Some(Home { backend: 0, cached: 20_000 }), ..request(24_000) };
    assert_eq!(order(&decide(&known, &fleet, SETTINGS), &fleet)[0], "card");
    assert_eq!(
        decide(&request(24_000), &fleet[..1], SETTINGS).unserved(&request(24_000)),
        Some(Unserved::TooLong { tokens: 24_000, limit: 22_500 })
    );
}

#[test]
fn what_nobody_carries_is_refused_with_the_largest_limit_there_is() {
    let decision = decide(&request(250_000), &fleet(), SETTINGS);
    assert_eq!(
        decision.unserved(&request(250_000)),
        Some(Unserved::TooLong { tokens: 250_000, limit: 240_000 })
    );
    assert_eq!(
        decision.sentence(0, &request(250_000), &fleet()),
        "not single: 250000 tokens above its single-prompt limit of 15000; not dual: 250000 tokens above its \
         single-prompt limit of 237000; not llama: 250000 tokens above its single-prompt limit of 240000"
    );
}

fn any_backend() -> impl Strategy<Value = BackendFacts> {
    let state = prop_oneof![
        Just(BackendState::Up),
        Just(BackendState::Unknown),
        Just(BackendState::Loading),
        Just(BackendState::Absent),
        Just(BackendState::Draining),
        Just(BackendState::Dead)
    ];
    let limit = || proptest::option::of(1u64..300_000);
    let accumulated = proptest::option::of((1u64..100_000, any::<bool>()))
        .prop_map(|limit| limit.map(|(tokens, soft)| Limit { tokens, soft }));
    let load = (0u64..4, 0u64..100_000).prop_map(|(running, resident)| Load {
        running,
        resident,
        first_ends_in: 5.0,
    });
    (limit(), limit(), accumulated, limit(), load, state, any::<bool>()).prop_map(
        |(window, single, accumulated, resident, load, state, images)| BackendFacts {
            single,
            accumulated,
            resident,
            load,
            state,
            images,
            streamed_required: if images { StreamedRequired::AsAuto } else { StreamedRequired::Whole },
            ..BackendFacts::new("b", window)
        },
    )
}

#[test]
fn a_window_that_would_cut_the_answer_makes_no_backend_faster() {
    let fleet = [backend("roomy", 4096, None), backend("narrow", 2048, None)];
    let order = |request: &RequestFacts| {
        let decision = decide(request, &fleet, SETTINGS);
        decision.choices.iter().map(|choice| choice.candidate.backend).collect::<Vec<_>>()
    };
    assert_eq!(order(&RequestFacts::plain(PromptSize::Exact(1900))), [0, 1]);
}

fn any_request() -> impl Strategy<Value = RequestFacts> {
    let prompt = prop_oneof![
        (0u64..300_000).prop_map(PromptSize::Exact),
        (0u64..150_000, 0u64..300_000).prop_map(|(low, more)| PromptSize::Between { low, high: low + more }),
    ];
    let class = prop_oneof![Just(Class::Interactive), Just(Class::Background)];
    let images = prop_oneof![Just(Images::None), Just(Images::Old), Just(Images::New)];
    let home = proptest::option::of((0usize..6, 0u64..300_000))
        .prop_map(|home| home.map(|(backend, cached)| Home { backend, cached }));
    let output = (proptest::option::of(0u64..100_000), proptest::option::of(0u64..5000));
    (prompt, output, images, home, any::<bool>(), any::<bool>(), class).prop_map(
        |(prompt, (output, output_floor), images, home, may_fill, agent, class)| RequestFacts {
            prompt,
            output,
            output_floor,
            room_to_think: output_floor.filter(|_| agent),
            output_if_absent: output_floor.filter(|_| may_fill),
            thinks: may_fill.then_some(agent),
            images,
            home,
            own_order: may_fill,
            agent,
            streams_required: agent,
            class,
            may_fill,
            turns: 1,
            pictures: 0,
            sequences: 1,
        },
    )
}

proptest! {
    #[test]
    fn no_candidate_is_below_the_prompt(request in any_request(), fleet in prop::collection::vec(any_backend(), 0..6), headroom in 0u64..5000) {
        let decision = decide(&request, &fleet, Settings { headroom, margin: 64 });
        for choice in &decision.choices {
            let backend = &fleet[choice.candidate.backend];
            prop_assert!(backend.prompt_limit().is_none_or(|limit| request.prompt.low() <= limit));
            prop_assert!(backend.images || request.images != Images::New);
        }
    }

    #[test]
    fn every_backend_is_either_a_candidate_or_refused_with_a_reason_that_is_true(
        request in any_request(), fleet in prop::collection::vec(any_backend(), 0..6)
    ) {
        let decision = decide(&request, &fleet, SETTINGS);
        let mut seen: Vec<usize> = decision.choices.iter().map(|choice| choice.candidate.backend).collect();
        seen.extend(decision.refusals.iter().map(|(backend, _)| *backend));
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..fleet.len()).collect::<Vec<_>>());
        for (backend, refusal) in &decision.refusals {
            match refusal.limit() {
                Some(limit) => prop_assert!(request.prompt.low() > limit || limit == 0),
                None => prop_assert!(!fleet[*backend].images),
            }
        }
        prop_assert_eq!(decision.unserved(&request).is_some(), decision.choices.is_empty());
    }

    #[test]
    fn an_output_is_never_lowered_to_nothing_and_raised_only_below_its_floor(request in any_request(), fleet in prop::collection::vec(any_backend(), 1..6)) {
        use switchback_policies::decision::Rule;
        for choice in decide(&request, &fleet, SETTINGS).choices {
            for rule in choice.rules {
                match rule {
                    Rule::LimitOutput(tokens) => {
                        prop_assert!(tokens >= 1);
                        prop_assert!(request.output.is_some_and(|asked| tokens < asked));
                    }
                    Rule::RaiseOutput(tokens) => {
                        prop_assert!(request.output.is_some_and(|asked| tokens > asked));
                        prop_assert!(request.output_floor.is_some_and(|floor| tokens <= floor));
                    }
                    Rule::SetOutput(tokens) => {
                        prop_assert!(request.output.is_none() && tokens >= 1);
                        prop_assert!(request.output_if_absent.is_some());
                    }
                    Rule::ReplaceImages => prop_assert_eq!(request.images, Images::Old),
                    Rule::WeakenToolChoice | Rule::AskWhole => prop_assert!(request.streams_required),
                }
            }
        }
    }
}
