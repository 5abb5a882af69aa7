//! llama-swap: it loads what a request asks for, holds the request meanwhile, and swaps at every change of mind.
//!
//! So requests for a model go there only once it is there: `GET /upstream/MODEL/health` has it loaded without computing
//! anything, `GET /running` tells what is (`state`: `starting`, `ready`, `stopping`; older ones list only what is ready). What
//! has to go is unloaded first, which it would do anyhow where its own groups say so.

use std::sync::Arc;

use http::Method;
use serde_json::Value;
use switchback_policies::loading::{Index, Job, Presence};
use tokio::time::Instant;

use super::driver::Trouble;
use super::service::{LOOK, Said, ask};
use crate::backend::Backend;
use crate::backend::client::Connect;
use crate::config::{Service, Way};

const NAME: &str = "llama-swap";

#[derive(Debug)]
pub(super) struct LlamaSwap {
    service: Service,
    connector: Arc<dyn Connect>,
    models: Vec<String>,
}

impl LlamaSwap {
    pub(super) fn new(service: Service, connector: Arc<dyn Connect>, backends: &[Arc<Backend>]) -> Self {
        let models =
            backends.iter().map(|backend| match backend.config.load.as_ref().map(|load| &load.way) {
                Some(Way::Swap { model }) => model.clone(),
                _ => String::new(),
            });
        Self { service, connector, models: models.collect() }
    }

    pub(super) fn count(&self) -> usize {
        self.models.len()
    }

    pub(super) async fn look(&self) -> Result<Vec<Presence>, Trouble> {
        let asked = self.ask(Method::GET, "/running", Instant::now() + LOOK).await;
        let said = asked.map_err(Trouble::in_vain)?;
        let Some(running) = said.body.get("running").and_then(Value::as_array).filter(|_| said.status == 200)
        else {
            let text = format!("{NAME} does not tell what runs: is the url in [loader] its own?");
            return Err(Trouble::new(text, format!("GET /running: {}", said.detail())));
        };
        let each = |model: &String| {
            let own = running.iter().find(|one| one.get("model").and_then(Value::as_str) == Some(model));
            match own.map(|one| one.get("state").and_then(Value::as_str).unwrap_or("ready")) {
                Some("ready") => Presence::There,
                Some("starting") => Presence::Coming,
                Some(_) | None => Presence::Away,
            }
        };
        Ok(self.models.iter().map(each).collect())
    }

    pub(super) async fn load(&self, job: &Job, until: Instant) -> Result<(), Trouble> {
        for (nth, victim) in job.stop.iter().enumerate() {
            let path = format!("/api/models/unload/{}", in_path(&self.models[*victim]));
            // Older ones cannot, and unload it when the other is loaded.
            let asked = self.ask(Method::POST, &path, until).await;
            asked.map_err(|trouble| if nth == 0 { trouble } else { trouble.after() })?;
        }
        let model = &self.models[job.target];
        let asked = self.ask(Method::GET, &format!("/upstream/{}/health", in_path(model)), until).await;
        let said = asked.map_err(|trouble| if job.stop.is_empty() { trouble } else { trouble.after() })?;
        // An engine without a health page answers 404, and so does llama-swap for a model that it does not know.
        if said.status < 500 && self.is_there(job.target).await.map_err(Trouble::after)? {
            return Ok(());
        }
        let text = match said.status {
            400 | 404 => format!("{NAME} does not know a model of this name"),
            _ => "it did not start".to_owned(),
        };
        Err(Trouble::new(text, format!("GET /upstream/{model}/health: {}", said.detail())))
    }

    async fn is_there(&self, target: Index) -> Result<bool, Trouble> {
        Ok(self.look().await?.get(target) == Some(&Presence::There))
    }

    async fn ask(&self, method: Method, path: &str, until: Instant) -> Result<Said, Trouble> {
        ask(&self.connector, &self.service, NAME, method, path, None, until).await
    }
}

/// A model's name as llama-swap takes it in a path: slashes stay.
fn in_path(model: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/:@".contains(byte);
    let each = model.as_bytes().iter().map(|byte| match plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_slashes_blanks_and_marks_fits_into_a_path() {
        assert_eq!(super::in_path("org/Qwen3 27B?#ä"), "org/Qwen3%2027B%3F%23%C3%A4");
    }
}
