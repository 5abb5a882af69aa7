//! club-3090's `tools/model-switch` (read at commit e36f9f3): one backend on the rig at a time, by slug of its registry.
//!
//! `POST /switch` takes down what runs, starts the other, and answers when that is ready; it goes on when its client
//! hangs up, and goes back by itself on failure. 409 means that somebody else's switch is under way, or that weights are missing.
//! `GET /status` names the slug by its compose file, which several slugs share: what it calls a backend that was just loaded is
//! remembered as another name of it.

use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use switchback_policies::loading::{Index, Presence};
use tokio::time::Instant;

use super::driver::{AGAIN, Trouble};
use super::service::{LOOK, Said, ask};
use crate::backend::Backend;
use crate::backend::client::Connect;
use crate::config::{Service, Way};

const NAME: &str = "model-switch";

#[derive(Debug)]
pub(super) struct ModelSwitch {
    service: Service,
    connector: Arc<dyn Connect>,
    ways: Vec<Way>,
    /// Slugs by which it calls backends that were asked for under another.
    aliases: Mutex<Vec<(String, Index)>>,
}

impl ModelSwitch {
    pub(super) fn new(service: Service, connector: Arc<dyn Connect>, backends: &[Arc<Backend>]) -> Self {
        let ways = backends.iter().filter_map(|backend| Some(backend.config.load.as_ref()?.way.clone()));
        Self { service, connector, ways: ways.collect(), aliases: Mutex::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.ways.len()
    }

    pub(super) async fn look(&self) -> Result<Vec<Presence>, Trouble> {
        let status = self.status(Instant::now() + LOOK).await?;
        let presence = match (status.text("docker_state"), status.body.get("healthy")) {
            (Some("healthy"), _) => Presence::There,
            (Some("unready"), _) => Presence::Coming,
            (Some("absent"), _) => Presence::Away,
            // As older ones tell it.
            (None, Some(healthy)) if healthy == true => Presence::There,
            (None, Some(_)) if status.text("current_slug").is_some() => Presence::Coming,
            (None, Some(_)) => Presence::Away,
            // Docker does not answer: nothing is known.
            (state, _) => {
                let detail = format!("{NAME} says {}: {}", state.unwrap_or("nothing"), status.detail());
                return Err(Trouble::new(format!("{NAME} does not know what runs"), detail));
            }
        };
        let current = self.current(&status).filter(|_| presence != Presence::Away);
        let each = |index| if current == Some(index) { presence } else { Presence::Away };
        Ok((0..self.ways.len()).map(each).collect())
    }

    /// Which of the backends it says is there.
    fn current(&self, status: &Said) -> Option<Index> {
        let (slug, model) = (status.text("current_slug"), status.text("current_model"));
        let named = self.ways.iter().position(|way| match way {
            Way::Slug { slug: own, .. } => slug == Some(own.as_str()),
            Way::Model { model: own, .. } => model == Some(own.as_str()),
            Way::Swap { .. } | Way::Command(_) => false,
        });
        named.or_else(|| {
            let aliases = self.aliases.lock();
            aliases.iter().find(|(alias, _)| slug == Some(alias.as_str())).map(|(_, index)| *index)
        })
    }

    async fn status(&self, until: Instant) -> Result<Said, Trouble> {
        let status = self.ask(Method::GET, "/status", None, until).await.map_err(Trouble::in_vain)?;
        if status.status == 200 && status.body.is_object() {
            return Ok(status);
        }
        let said = format!("{NAME} does not tell what runs: is the url in [loader] its own?");
        Err(Trouble::new(said, format!("GET /status: {}", status.detail())))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
        until: Instant,
    ) -> Result<Said, Trouble> {
        ask(&self.connector, &self.service, NAME, method, path, body, until).await
    }

    pub(super) async fn load(&self, target: Index, until: Instant) -> Result<(), Trouble> {
        let (what, mut body, force) = match &self.ways[target] {
            Way::Slug { slug, force } => (slug, json!({ "slug": slug }), *force),
            Way::Model { model, force } => (model, json!({ "model": model }), *force),
            Way::Swap { .. } | Way::Command(_) => return Err(Trouble::new("it has no slug", "no slug")),
        };
        if force {
            body["force"] = true.into();
        }
        let said = self.ask(Method::POST, "/switch", Some(&body), until).await?;
        let error = said.text("error").unwrap_or_default();
        let trouble = |text: String| {
            let trouble = Trouble::new(text, format!("POST /switch {what}: {}", said.detail()));
            // It refuses before it touches anything.
            Err(if (400..500).contains(&said.status) { trouble.before() } else { trouble })
        };
        match said.status {
            200 => {
                self.learn_alias(target, until).await;
                Ok(())
            }
            409 if error == "weights_missing" => {
                trouble(format!("its weights are not on the disk: {NAME} takes POST /pull for them"))
            }
            409 => {
                // It may well be to the same, and whoever wants that one shall have some time with it.
                tokio::time::sleep_until((Instant::now() + AGAIN).min(until)).await;
                Err(Trouble::new("somebody else's switch is under way", said.detail()).deferred())
            }
            400 if error.contains("force") => {
                trouble(format!("{NAME} wants consent for it: load = {{ force = true }}"))
            }
            400 => trouble(format!("{NAME} does not know it")),
            404 | 405 => trouble("the url in [loader] is no model-switch".to_owned()),
            _ if said.text("rolled_back_to").is_some() => {
                trouble(format!("it did not start, and {NAME} went back to what ran before"))
            }
            _ => trouble("it did not start".to_owned()),
        }
    }

    /// What it calls the backend that it has just loaded.
    async fn learn_alias(&self, target: Index, until: Instant) {
        let Ok(status) = self.status(until.min(Instant::now() + LOOK)).await else { return };
        if let (Some(slug), None) = (status.text("current_slug"), self.current(&status)) {
            self.aliases.lock().push((slug.to_owned(), target));
        }
    }
}
