//! Machines and the proxy in front of them, in this process.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::uri::Authority;
use switchback::{Config, Connect, Connecting, Io, Service};
use switchback_rig::{Clock, Faults, Rig, Spec};
use tokio::io::DuplexStream;

/// A machine of a scenario: its name, what it is, and what the proxy is told of it.
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) spec: Spec,
    pub(crate) config: String,
}

impl Machine {
    /// A published machine, by the same preset on both sides. It never fails: these scenarios are about time.
    pub(crate) fn preset(name: &'static str, slug: &str) -> Result<Self> {
        let spec = Spec {
            name: name.to_owned(),
            faults: Faults::default(),
            dies_above: None,
            ..Spec::preset(slug)?
        };
        Ok(Self { name, spec, config: format!("preset = \"{slug}\"\n") })
    }
}

/// All of them, and a proxy.
pub(crate) struct Stage {
    pub(crate) rigs: Arc<HashMap<&'static str, Rig>>,
    proxy: Option<Service>,
}

impl Stage {
    /// Machines with the proxy in front, its gate on or off; `more` goes to the end of its configuration.
    pub(crate) async fn proxied(machines: Vec<Machine>, gate: bool, more: &str) -> Result<Self> {
        let mut text = String::new();
        for machine in &machines {
            text += &format!(
                "[[backend]]\nname = \"{0}\"\nurl = \"http://{0}\"\n{1}",
                machine.name, machine.config
            );
        }
        text += &format!(
            "[[model]]\nname = \"auto\"\n[cliffs]\nlearn = false\n[admission]\nenabled = {gate}\n{more}"
        );
        let rigs = start(machines)?;
        let config = Config::parse(&text, Path::new(".")).with_context(|| text.clone())?;
        let proxy = Service::new(config, Arc::new(Wires(rigs.clone())));
        // Time for the first probes.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        Ok(Self { rigs, proxy: Some(proxy) })
    }

    /// Machines alone.
    pub(crate) fn bare(machines: Vec<Machine>) -> Result<Self> {
        Ok(Self { rigs: start(machines)?, proxy: None })
    }

    pub(crate) fn rig(&self, name: &str) -> Result<&Rig> {
        self.rigs.get(name).with_context(|| format!("no machine {name}"))
    }

    /// A connection to the proxy, or to one machine past it.
    pub(crate) async fn connect(&self, past: Option<&str>) -> Result<DuplexStream> {
        if let Some(machine) = past {
            return Ok(self.rig(machine)?.connect().await?);
        }
        let proxy = self.proxy.as_ref().context("this stage has no proxy")?;
        let (near, far) = tokio::io::duplex(64 << 10);
        tokio::spawn(proxy.connection(far));
        Ok(near)
    }
}

fn start(machines: Vec<Machine>) -> Result<Arc<HashMap<&'static str, Rig>>> {
    let clock = Clock::real();
    let start = |machine: Machine| {
        let rig = Rig::start(machine.spec, ([127, 0, 0, 1], 0).into(), clock)?;
        Ok((machine.name, rig))
    };
    Ok(Arc::new(machines.into_iter().map(start).collect::<Result<_>>()?))
}

#[derive(Debug)]
struct Wires(Arc<HashMap<&'static str, Rig>>);

impl Connect for Wires {
    fn connect(&self, to: &Authority) -> Connecting {
        let (rigs, name) = (self.0.clone(), to.host().to_owned());
        Box::pin(async move {
            let rig = rigs.get(name.as_str()).ok_or(std::io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(rig.connect().await?) as Box<dyn Io>)
        })
    }
}
