//! What `switchback doctor` says of a real engine: what it can see, and nothing that would have to be set.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::harness::llama::{Llama, SMALL};
use crate::harness::proxy::Setup;

#[tokio::test]
async fn the_doctor_finds_what_a_real_llama_cpp_does_and_has_nothing_to_set() -> Result<()> {
    let server = Llama::start(SMALL).await?;
    let said = Setup::default().backend(&server, "").run(&["doctor", "--json"]).await?;
    let report: Value = serde_json::from_str(&said).context("a JSON object")?;
    assert_eq!(report["engine"], "llama-cpp");
    let findings = report["findings"].as_array().context("findings")?;
    let verdict = |trial: &str| {
        let finding = findings.iter().find(|finding| finding["trial"] == trial);
        finding.map_or("absent", |finding| finding["verdict"].as_str().unwrap_or_default())
    };
    for trial in ["answer", "stream", "counts", "members", "schemas", "overflow", "hang-up"] {
        assert_eq!(verdict(trial), "good", "{trial}: {said}");
    }
    // SmolLM2's template has no place for tools.
    assert_eq!(verdict("calls"), "bad", "{said}");
    assert!(findings.iter().all(|finding| finding.get("settings").is_none()), "{said}");
    Ok(())
}
