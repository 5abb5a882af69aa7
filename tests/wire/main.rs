//! Every wire case of the corpus, over sockets and against the real binary, as part of the ordinary test command.
//!
//! The program `wire-cases` plays single ones, and those of other folders.

use std::path::PathBuf;
use std::sync::Arc;

use switchback_tests::wire::proxy::Binary;
use switchback_tests::wire::report::{find, run_all, summary};

/// Cases at a time: most of them wait for most of their time.
const JOBS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn every_wire_case_of_the_corpus_passes() {
    let corpus = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/wire"));
    let binary = Binary::built_beside_this().expect("the binary builds");
    let cases = find(&[corpus], &[]).expect("the corpus is there");
    let report = summary(&run_all(cases, Arc::new(binary), JOBS).await, None);
    assert!(report.good, "{}", report.text);
}
