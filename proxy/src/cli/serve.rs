//! `switchback serve`: reads the configuration or looks around, serves, reloads when the file changes, drains when asked.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::{Failed, asked_to_stop, say};
use crate::backend::client::{Connect, Tcp};
use crate::config::{Config, ConfigError};
use crate::discover;
use crate::server::Proxy;

/// How often the file is looked at. Its time and length tell of a change, also where editors and mounts replace it.
const LOOK: Duration = Duration::from_secs(2);

pub(super) async fn run(file: Option<PathBuf>, listen: Option<SocketAddr>) -> Result<(), Failed> {
    let file = find(file);
    let mut config = match &file {
        Some(file) => load(file)?,
        None => {
            let config = look_around(listen).await;
            tell_found(&config);
            config
        }
    }
    .keeping_state();
    if config.keeps_nothing() {
        tracing::warn!(
            "neither XDG_STATE_HOME nor HOME is set, nor [cliffs] file: what is learned of cliffs is lost at the end"
        );
    }
    if let Some(listen) = listen {
        config = config.listening_on(listen).map_err(|error| Failed::Configuration(error.to_string()))?;
    }
    if config.server.open && !config.server.listen.ip().is_loopback() && config.server.keys.is_empty() {
        tracing::warn!(listen = %config.server.listen, "open: everybody who reaches this port may use the backends");
    }
    let at = config.server.listen;
    let proxy = Proxy::start(config.clone()).await.with_context(|| {
        format!("cannot listen on {at}; is another program there? --listen takes another address")
    })?;
    say(format_args!("listening on http://{}", proxy.address()));
    let watching = async {
        match &file {
            Some(file) => reload_on_change(&proxy, file, config.server.keys_file.clone(), listen).await,
            None => look_again(&proxy, config).await,
        }
    };
    tokio::select! {
        stop = asked_to_stop() => stop?,
        failed = watching => failed?,
    }
    tokio::select! {
        () = proxy.shut_down() => {}
        stop = asked_to_stop() => stop?,
    }
    Ok(())
}

/// The file that was named, else the first of the usual ones that exists.
pub(super) fn find(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| Config::usual_places().into_iter().find(|path| path.exists()))
}

/// Reads a file, with its name on every complaint.
pub(super) fn load(file: &Path) -> Result<Config, Failed> {
    let name = file.display();
    Config::load(file).map_err(|error| {
        Failed::Configuration(match error {
            ConfigError::Unreadable { .. } => error.to_string(),
            ConfigError::Complaints { .. } => format!("{name}:\n{error}"),
        })
    })
}

/// Who is on the usual ports, but for the one that the proxy itself takes.
pub(super) async fn look_around(listen: Option<SocketAddr>) -> Config {
    let own = listen.unwrap_or(Config::without_backends().server.listen).port();
    let connector: Arc<dyn Connect> = Arc::new(Tcp);
    discover::discover(None, own, &connector).await
}

fn tell_found(config: &Config) {
    let looked: Vec<String> = discover::PORTS.iter().map(ToString::to_string).collect();
    let found: Vec<&str> = config.backends.iter().map(|backend| backend.name.as_str()).collect();
    if found.is_empty() {
        let places: Vec<String> =
            Config::usual_places().iter().map(|path| path.display().to_string()).collect();
        tracing::warn!(
            "no configuration ({}) and nobody on the local ports {}; looking again every {} s. \
             `switchback demo` shows the point without any backend",
            places.join(", "),
            looked.join(", "),
            discover::AGAIN.as_secs(),
        );
    } else {
        tracing::info!(
            found = found.join(", "),
            ports = looked.join(", "),
            "no configuration: looked on the local ports"
        );
    }
}

async fn look_again(proxy: &Proxy, mut config: Config) -> anyhow::Result<()> {
    let connector: Arc<dyn Connect> = Arc::new(Tcp);
    let mut hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    loop {
        tokio::select! {
            _ = hangup.recv() => {}
            () = tokio::time::sleep(discover::AGAIN) => {}
        }
        let now = discover::discover(Some(&config), proxy.address().port(), &connector).await;
        if now.backends.len() > config.backends.len() {
            let found: Vec<&str> = now.backends.iter().map(|backend| backend.name.as_str()).collect();
            tracing::info!(backends = found.join(", "), "found more");
            config = now;
            proxy.reload(config.clone());
        }
    }
}

/// Ends only if signals cannot be had. `keys`: the file with the clients' keys, which is watched, too.
async fn reload_on_change(
    proxy: &Proxy,
    file: &Path,
    mut keys: Option<PathBuf>,
    listen: Option<SocketAddr>,
) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let stamps = |keys: &Option<PathBuf>| (stamp(file), keys.as_deref().and_then(stamp));
    let mut seen = stamps(&keys);
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(LOOK) => false,
        };
        let now = stamps(&keys);
        if now == seen && !asked {
            continue;
        }
        seen = now;
        if file.exists() && !file.is_file() {
            tracing::error!(file = %file.display(), "configuration not changed, since this is no file now");
            continue;
        }
        let read = Config::load(file).map(Config::keeping_state).and_then(|config| match listen {
            Some(listen) => config.listening_on(listen),
            None => Ok(config),
        });
        match read {
            Ok(config) => {
                let wanted = config.server.listen;
                keys.clone_from(&config.server.keys_file);
                seen = stamps(&keys);
                proxy.reload(config);
                tracing::info!(file = %file.display(), "configuration changed");
                if wanted.port() != 0 && wanted != proxy.address() {
                    tracing::warn!(%wanted, still = %proxy.address(), "another address needs a restart");
                }
            }
            Err(error) => {
                tracing::error!(file = %file.display(), "configuration not changed, since the file is wrong:\n{error}");
            }
        }
    }
}

/// Nothing of what is no file: a pipe, say, would be waited for without an end.
fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    let meta = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?;
    Some((meta.modified().ok()?, meta.len()))
}
