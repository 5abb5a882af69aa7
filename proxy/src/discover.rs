//! With no configuration: whoever answers on the well-known local ports is used.
//!
//! A port says nothing of who listens there; each is asked. What is found is served at once under its own names and
//! `auto`; the others are looked for again and again, so that the order in which things are started does not matter.

use std::sync::Arc;
use std::time::Duration;

use switchback_parsers::diagnosis::Engine;
use switchback_policies::facts::BackendState;
use tokio::task::JoinSet;

use crate::backend::client::Connect;
use crate::backend::{Backend, probe};
use crate::cliffs::CliffMaps;
use crate::config::{self, Config};

/// Ports on the loopback address: vLLM, club-3090's composes, llama.cpp, Ollama, LM Studio, SGLang, TGI.
pub(crate) const PORTS: [u16; 19] = [
    8000, 8001, 8010, 8011, 8012, 8013, 8014, 8020, 8030, 8031, 8040, 8051, 8080, 8081, 8087, 8090, 11434,
    1234, 30000,
];

/// How long one look may take; loopback answers at once or not at all.
const WITHIN: Duration = Duration::from_secs(2);

/// How long to wait before the next look.
pub(crate) const AGAIN: Duration = Duration::from_secs(10);

/// A configuration of what is there now, in the order of [`PORTS`]; backends of `former` stay in it, up or not.
pub(crate) async fn discover(former: Option<&Config>, own_port: u16, connector: &Arc<dyn Connect>) -> Config {
    let mut config = former.cloned().unwrap_or_else(Config::without_backends);
    let known: Vec<u16> = config.backends.iter().filter_map(|backend| backend.authority.port_u16()).collect();
    let mut looks = JoinSet::new();
    for port in PORTS.into_iter().filter(|port| *port != own_port && !known.contains(port)) {
        let connector = connector.clone();
        looks.spawn(async move { look(port, connector).await });
    }
    let mut found = Vec::new();
    while let Some(look) = looks.join_next().await {
        found.extend(look.ok().flatten());
    }
    config.backends.extend(found);
    config.backends.sort_by_key(|backend| {
        let port = backend.authority.port_u16();
        PORTS.iter().position(|known| Some(*known) == port)
    });
    config
}

async fn look(port: u16, connector: Arc<dyn Connect>) -> Option<config::Backend> {
    let candidate = config::Backend::local(port);
    let backend = Backend::new(candidate.clone(), connector, WITHIN, CliffMaps::nothing()).unannounced();
    probe::once(&backend, WITHIN).await;
    let engine = backend.found().engine;
    match backend.state() {
        // Some web server that is no inference server answers, too: only who lists models is one.
        BackendState::Up if engine.is_some() => {}
        BackendState::Loading => {}
        BackendState::Up
        | BackendState::Unknown
        | BackendState::Absent
        | BackendState::Draining
        | BackendState::NotLoaded
        | BackendState::Dead => return None,
    }
    let engine = engine.filter(|engine| *engine != Engine::Other);
    let name = engine.map_or_else(|| format!("local-{port}"), |engine| format!("{engine}-{port}"));
    Some(config::Backend { name, ..candidate })
}
