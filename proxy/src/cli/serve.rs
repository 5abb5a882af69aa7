//! `switchback serve`: reads the configuration, serves, drains when asked to stop.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;

use super::{Failed, asked_to_stop, say};
use crate::config::{Config, ConfigError};
use crate::server::Proxy;

pub(super) async fn run(file: Option<PathBuf>, listen: Option<SocketAddr>) -> Result<(), Failed> {
    let mut config = load(file)?;
    if let Some(listen) = listen {
        config = config.listening_on(listen).map_err(|error| Failed::Configuration(error.to_string()))?;
    }
    if config.server.open && !config.server.listen.ip().is_loopback() && config.server.keys.is_empty() {
        tracing::warn!(listen = %config.server.listen, "open: everybody who reaches this port may use the backends");
    }
    let listen = config.server.listen;
    let proxy = Proxy::start(config).await.with_context(|| {
        format!("cannot listen on {listen}; is another program there? --listen takes another address")
    })?;
    say(format_args!("listening on http://{}", proxy.address()));
    asked_to_stop().await?;
    tokio::select! {
        () = proxy.shut_down() => {}
        stop = asked_to_stop() => stop?,
    }
    Ok(())
}

fn load(file: Option<PathBuf>) -> Result<Config, Failed> {
    let places = match &file {
        Some(file) => vec![file.clone()],
        None => Config::usual_places(),
    };
    let Some(path) = places.iter().find(|path| file.is_some() || path.exists()) else {
        let looked: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        return Err(Failed::Configuration(format!(
            "there is no configuration; looked for {}\nhint: examples/ has some to start from; `switchback demo` needs none",
            looked.join(", ")
        )));
    };
    tracing::info!(file = %path.display(), "configuration");
    Config::load(path).map_err(|error: ConfigError| {
        let name = path.display();
        Failed::Configuration(match error {
            ConfigError::Unreadable { .. } => error.to_string(),
            ConfigError::Syntax { .. } | ConfigError::Complaints { .. } => format!("{name}:\n{error}"),
        })
    })
}
