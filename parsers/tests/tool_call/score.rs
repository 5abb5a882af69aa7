//! The score by family, and what it must be.

use std::collections::BTreeMap;

use switchback_parsers::event::Folded;

use crate::corpus::{Case, cases};

/// The same answer, whatever the notes say.
pub(crate) fn same(one: &Folded, other: &Folded) -> bool {
    (&one.content, &one.reasoning, &one.calls, &one.finish_reason)
        == (&other.content, &other.reasoning, &other.calls, &other.finish_reason)
}

/// Cuts after which the answer differs from that to the whole text.
fn differing_cuts(case: &Case, whole: &Folded) -> Vec<String> {
    let bytes = case.text().as_bytes();
    let mut differing = Vec::new();
    for cut in 1..bytes.len() {
        if !same(&case.run([&bytes[..cut], &bytes[cut..]]), whole) {
            differing.push(cut.to_string());
        }
    }
    if !same(&case.run(bytes.chunks(1)), whole) {
        differing.push("each byte".to_owned());
    }
    let text = case.text();
    let ends = text.char_indices().map(|(at, c)| &bytes[at..at + c.len_utf8()]);
    if !same(&case.run(ends), whole) {
        differing.push("each character".to_owned());
    }
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..8 {
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let end = (at + 1 + (state >> 33) as usize % 12).min(bytes.len());
            pieces.push(&bytes[at..end]);
            at = end;
        }
        if !same(&case.run(pieces), whole) {
            differing.push(format!("random {round}"));
        }
    }
    differing
}

#[test]
fn the_corpus_is_read_as_it_says_and_any_cut_gives_the_same_answer() {
    // Per family: musts and shoulds passed of all, cases that a cut changes.
    let mut table: BTreeMap<String, [usize; 5]> = BTreeMap::new();
    let (mut musts, mut shoulds, mut cut) = (Vec::new(), Vec::new(), Vec::new());
    for case in cases() {
        let whole = case.run([case.text().as_bytes()]);
        let complaints = case.complaints(&whole);
        let row = table.entry(case.family.clone()).or_default();
        let column = if case.must() { 0 } else { 2 };
        row[column + 1] += 1;
        row[column] += usize::from(complaints.is_empty());
        if !complaints.is_empty() {
            let list = if case.must() { &mut musts } else { &mut shoulds };
            list.push(format!("{}: {}", case.id(), complaints.join("; ")));
        }
        let differing = differing_cuts(&case, &whole);
        if !differing.is_empty() {
            row[4] += 1;
            cut.push(format!("{}: {}", case.id(), differing.join(" ")));
        }
    }
    println!("{:16} {:>9} {:>9} {:>14}", "family", "must", "should", "cuts differ in");
    for (family, [must, all_must, should, all_should, cuts]) in &table {
        println!("{family:16} {must:>4}/{all_must:<4} {should:>4}/{all_should:<4} {cuts:>14}");
    }
    let total = table.values().fold([0; 5], |sum, row| std::array::from_fn(|at| sum[at] + row[at]));
    println!("{:16} {:>4}/{:<4} {:>4}/{:<4} {:>14}", "all", total[0], total[1], total[2], total[3], total[4]);
    println!(
        "must:\n  {}\nshould:\n  {}\ncuts:\n  {}",
        musts.join("\n  "),
        shoulds.join("\n  "),
        cut.join("\n  ")
    );
    assert!(musts.is_empty(), "musts fail");
    assert!(total[2] * 100 >= total[3] * 95, "fewer than 95 of 100 shoulds");
    assert!(cut.is_empty(), "cuts change the answer");
}
