//! The doctor at simulated engines, in memory and on paused time: each has one thing wrong with it, and that is what is found.

use std::path::Path;

use http::uri::Authority;
use switchback_rig::{Clock, Rig, Spec};

use super::*;
use crate::backend::client::{Connect, Connecting, Io};
use crate::backend::probe;
use crate::cliffs::CliffMaps;
use crate::config::Config;

#[derive(Debug)]
struct InMemory(Arc<Rig>);

impl Connect for InMemory {
    fn connect(&self, _: &Authority) -> Connecting {
        let rig = self.0.clone();
        Box::pin(async move { Ok(Box::new(rig.connect().await?) as Box<dyn Io>) })
    }
}

/// What the doctor finds at a simulated backend; `more`: its configuration.
async fn found(spec: &str, more: &str) -> Vec<Finding> {
    let spec: Spec = toml::from_str(spec).expect("a spec");
    let clock = Clock::new(1.0).expect("a clock");
    let rig = Arc::new(Rig::start(spec, "127.0.0.1:0".parse().expect("an address"), clock).expect("a rig"));
    let text = format!("[[backend]]\nname = \"b\"\nurl = \"http://b\"\n{more}");
    let config = Config::parse(&text, Path::new(".")).expect("a configuration");
    let within = Duration::from_secs(2);
    let connector = Arc::new(InMemory(rig));
    let backend = Arc::new(Backend::new(config.backends[0].clone(), connector, within, CliffMaps::nothing()));
    probe::once(&backend, within).await;
    let mut findings = Vec::new();
    let patient = Patient { backend, patience: Duration::from_secs(60) };
    examine(&patient, &mut |finding| findings.push(finding)).await;
    findings
}

fn of<'f>(findings: &'f [Finding], trial: &str) -> &'f Finding {
    findings
        .iter()
        .find(|finding| finding.trial == trial)
        .unwrap_or_else(|| panic!("{trial} in {findings:#?}"))
}

fn settings(findings: &[Finding]) -> Vec<String> {
    let all = findings.iter().flat_map(|finding| &finding.settings);
    all.map(|setting| format!("{} = {}", setting.key, setting.value)).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_has_to_be_set_for_an_engine_that_does_as_it_should() {
    for engine in ["vllm", "llama-cpp"] {
        let spec = format!("engine = {engine:?}\nvision = true\n[calls]\nshare = 1.0\n");
        let findings = found(&spec, "").await;
        assert!(settings(&findings).is_empty(), "{findings:#?}");
        for trial in
            ["answer", "stream", "calls", "calls, streamed", "demanded, streamed", "overflow", "hang-up"]
        {
            assert_eq!(of(&findings, trial).verdict, Verdict::Good, "{engine} {findings:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_as_text_are_shown_and_need_no_setting() {
    let findings = found("engine = \"vllm\"\n[calls]\nshare = 1.0\nformat = \"glm\"\n", "").await;
    let finding = of(&findings, "calls, streamed");
    assert_eq!(finding.verdict, Verdict::Mended);
    assert!(finding.said.contains("<tool_call>get_"), "{finding:?}");
}

#[tokio::test(start_paused = true)]
async fn demanded_calls_that_streams_lose_are_asked_for_whole() {
    let spec =
        "engine = \"vllm\"\nvision = true\nseed = 5\n[calls]\nshare = 1.0\n[faults]\ndrops_required = 1.0\n";
    let findings = found(spec, "").await;
    assert_eq!(settings(&findings), ["streamed_required = \"whole\""], "{findings:#?}");
    let findings = found(spec, "streamed_required = \"whole\"\n").await;
    assert!(settings(&findings).is_empty(), "{findings:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_a_tool_parser_is_served_with_none() {
    let findings =
        found("engine = \"vllm\"\ntool_parser = false\n[calls]\nshare = 1.0\nformat = \"hermes\"\n", "")
            .await;
    assert_eq!(of(&findings, "calls").verdict, Verdict::Mended, "{findings:#?}");
    assert!(of(&findings, "calls").said.contains("tool_choice none"), "{findings:#?}");
    assert_eq!(settings(&findings), ["images = false"], "{findings:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_engine_and_an_empty_one_are_bad_and_nothing_more_is_asked_of_them() {
    let findings = found("engine = \"vllm\"\n[faults]\nempties = 1.0\n", "").await;
    assert_eq!(of(&findings, "answer").verdict, Verdict::Bad, "{findings:#?}");
    assert!(settings(&findings).is_empty(), "{findings:#?}");
    let cold = found("engine = \"vllm\"\ncold = true\nload_time = 600.0\n", "").await;
    assert_eq!(of(&cold, "there").verdict, Verdict::Bad, "{cold:#?}");
}
