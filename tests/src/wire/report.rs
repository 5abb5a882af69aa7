//! All cases: which ones, how many at a time, and what is said about them.
//!
//! The last line of a report is always `N passed, N failed`. A case listed as an expected failure is counted apart
//! while it fails, and is an error once it passes, so that such a list only gets shorter.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::case::{self, Case};
use super::proxy::Subject;
use super::run::{Outcome, run};

/// A file that holds a case, read or not.
#[derive(Debug)]
pub struct Entry {
    /// The case's name: its file's.
    pub id: String,
    /// The case, or why it cannot be read.
    pub case: Result<Arc<Case>, String>,
}

/// A case that was run.
#[derive(Debug)]
pub struct Done {
    /// The case's name.
    pub id: String,
    /// Its group.
    pub category: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// How a whole run ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Everything that is to be printed, the totals last.
    pub text: String,
    /// Whether nothing failed but what was expected to.
    pub good: bool,
}

/// The number of a case: what stands before the first `-` of its name.
fn number(id: &str) -> &str {
    id.split('-').next().unwrap_or_default()
}

/// Finds all cases in folders or files. `only` holds names or numbers; empty: all.
///
/// # Errors
/// A folder cannot be read, a wanted case is not there, or there is none at all.
pub fn find(places: &[PathBuf], only: &[String]) -> Result<Vec<Entry>> {
    let mut files = Vec::new();
    for place in places {
        if place.is_file() {
            files.push(place.clone());
            continue;
        }
        let folder = std::fs::read_dir(place).with_context(|| format!("cannot read {}", place.display()))?;
        for entry in folder {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                files.push(path);
            }
        }
    }
    files.sort();
    let name =
        |file: &Path| file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let is = |id: &str, wanted: &String| id == wanted || number(id) == wanted;
    for wanted in only {
        ensure!(files.iter().any(|file| is(&name(file), wanted)), "there is no case {wanted}");
    }
    files.retain(|file| only.is_empty() || only.iter().any(|wanted| is(&name(file), wanted)));
    ensure!(!files.is_empty(), "there is no case (a .json file) in {places:?}");
    let read = |file: PathBuf| {
        let case = case::load(&file).map(Arc::new).map_err(|error| format!("cannot be read: {error:#}"));
        Entry { id: name(&file), case }
    };
    Ok(files.into_iter().map(read).collect())
}

/// The numbers in a list of expected failures: the first word of each line, `#` begins a comment.
///
/// # Errors
/// The list cannot be read or names a case twice.
pub fn expected(file: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut numbers = BTreeSet::new();
    for line in text.lines() {
        let Some(word) = line.split('#').next().and_then(|line| line.split_whitespace().next()) else {
            continue;
        };
        if !numbers.insert(number(word).to_owned()) {
            bail!("{} lists {word} twice", file.display());
        }
    }
    Ok(numbers)
}

/// Runs all cases, so many at a time. They come back in the order in which they were given.
pub async fn run_all<S: Subject>(entries: Vec<Entry>, subject: Arc<S>, jobs: usize) -> Vec<Done> {
    let places = Arc::new(Semaphore::new(jobs.max(1)));
    let mut running = JoinSet::new();
    for (place, entry) in entries.into_iter().enumerate() {
        let (places, subject) = (Arc::clone(&places), Arc::clone(&subject));
        running.spawn(async move {
            // The semaphore is never closed.
            let _place = places.acquire().await;
            let (category, outcome) = match entry.case {
                Ok(case) => (case.category.clone(), run(&case, subject.as_ref()).await),
                Err(why) => ("unreadable".to_owned(), Outcome { findings: vec![why], unmapped: Vec::new() }),
            };
            (place, Done { id: entry.id, category, outcome })
        });
    }
    let mut done = running.join_all().await;
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, done)| done).collect()
}

/// Sums up. `expected`: the numbers of the cases that may fail; nothing: none may.
pub fn summary(all: &[Done], expected: Option<&BTreeSet<String>>) -> Report {
    let (mut text, mut passed, mut failed, mut known) = (String::new(), 0, 0, 0);
    for Done { id, category, outcome } in all {
        let is_expected = expected.is_some_and(|expected| expected.contains(number(id)));
        match (outcome.findings.is_empty(), is_expected) {
            (true, false) => passed += 1,
            (false, true) => known += 1,
            (true, true) => {
                failed += 1;
                let _ = writeln!(text, "{id} [{category}]\n    passes now: delete its line");
            }
            (false, false) => {
                failed += 1;
                let _ = writeln!(text, "{id} [{category}]");
                for finding in &outcome.findings {
                    let _ = writeln!(text, "    {finding}");
                }
                for word in &outcome.unmapped {
                    let _ = writeln!(text, "    unmapped: {word}");
                }
            }
        }
    }
    if expected.is_some() {
        let _ = writeln!(text, "{known} expected failures");
    }
    let _ = writeln!(text, "{passed} passed, {failed} failed");
    Report { text, good: failed == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> Vec<Done> {
        let outcome = |id: &str, findings: &[&str]| {
            let findings = findings.iter().map(|finding| (*finding).to_owned()).collect();
            let outcome = Outcome { findings, unmapped: vec!["word (capability)".to_owned()] };
            Done { id: id.to_owned(), category: "group".to_owned(), outcome }
        };
        vec![outcome("001-good", &[]), outcome("002-bad", &["this", "that"]), outcome("003-good", &[])]
    }

    #[test]
    fn a_failure_is_told_with_its_findings_and_counted() {
        let report = summary(&done(), None);
        let told =
            "002-bad [group]\n    this\n    that\n    unmapped: word (capability)\n2 passed, 1 failed\n";
        assert_eq!((report.text.as_str(), report.good), (told, false));
    }

    #[test]
    fn an_expected_failure_is_counted_apart_and_must_not_pass() {
        let list =
            |numbers: &[&str]| numbers.iter().map(|number| (*number).to_owned()).collect::<BTreeSet<_>>();
        let report = summary(&done(), Some(&list(&["002"])));
        assert_eq!((report.text.as_str(), report.good), ("1 expected failures\n2 passed, 0 failed\n", true));
        let report = summary(&done(), Some(&list(&["002", "003"])));
        let told =
            "003-good [group]\n    passes now: delete its line\n1 expected failures\n1 passed, 1 failed\n";
        assert_eq!((report.text.as_str(), report.good), (told, false));
    }

    #[test]
    fn all_cases_of_the_corpus_can_be_read_and_are_found_by_number_or_name() {
        let corpus = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/wire"));
        let all = find(std::slice::from_ref(&corpus), &[]).unwrap();
        assert!(all.len() > 100);
        for entry in &all {
            let case = entry.case.as_ref().unwrap_or_else(|why| panic!("{}: {why}", entry.id));
            assert_eq!(case.id, entry.id);
        }
        let only = ["001".to_owned(), "058-reset-in-the-middle".to_owned()];
        let few = find(std::slice::from_ref(&corpus), &only).unwrap();
        assert_eq!(few.iter().map(|entry| number(&entry.id)).collect::<Vec<_>>(), ["001", "058"]);
        assert!(find(&[corpus], &["no-such".to_owned()]).is_err());
    }
}
