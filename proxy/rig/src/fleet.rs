//! A fleet: several simulated backends from one file, on one clock.
//!
//! ```toml
//! [[backend]]
//! preset = "vllm/dual"            # optional: what the entry does not say comes from there
//! name = "dual"
//! listen = "127.0.0.1:8010"       # optional: the spec's port on the loopback address
//! timing = { ttft_floor = 0.2 }
//! script = { steps = ["ok", "dead"], then = "ok" }
//! ```
//!
//! Every other key is a field of [`Spec`]. It must never start half: all ports are bound, or none.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use toml::{Table, Value};

use crate::{
    Clock, Rig, Spec, SpecError,
    preset::{merge, preset_table, read, syntax},
};

/// One backend of a fleet and where it listens.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// What it is.
    pub spec: Spec,
    /// Where it listens; port 0 takes any free one.
    pub listen: SocketAddr,
}

impl From<Spec> for Member {
    /// Listens at the spec's own port on the loopback address.
    fn from(spec: Spec) -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, spec.port));
        Self { spec, listen }
    }
}

/// Several simulated backends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    /// In the order of the file.
    pub members: Vec<Member>,
}

impl Fleet {
    /// Reads a fleet file.
    ///
    /// # Errors
    /// Bad TOML, an unknown key, preset or step, a number outside its range, or a name or address given twice.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let mut file: Table = text.parse().map_err(|error: toml::de::Error| syntax("fleet file", &error))?;
        let backends = file.remove("backend");
        if let Some(key) = file.keys().next() {
            return Err(wrong(
                "fleet file",
                format!("unknown key {key:?}; a fleet file has only [[backend]]"),
            ));
        }
        let Some(Value::Array(entries)) = backends else {
            return Err(wrong("fleet file", "no [[backend]] in it; a fleet has at least one"));
        };
        let mut members: Vec<Member> = Vec::new();
        for (number, entry) in (1..).zip(entries) {
            let Value::Table(entry) = entry else {
                return Err(wrong(&format!("backend {number}"), "not a table; write [[backend]]"));
            };
            let member = Member::read(number, entry)?;
            let clashes = |other: &&Member| {
                other.spec.name == member.spec.name
                    || (other.listen == member.listen && other.listen.port() != 0)
            };
            if let Some(other) = members.iter().find(clashes) {
                let problem = format!("same name or address as {:?}; each needs its own", other.spec.name);
                return Err(wrong(&format!("backend {number} ({})", member.spec.name), problem));
            }
            members.push(member);
        }
        Ok(Self { members })
    }

    /// Starts them all on one clock, in order.
    ///
    /// # Errors
    /// The first that can't be started, with its name; those before it are stopped again.
    pub fn start(&self, clock: Clock) -> io::Result<Vec<Rig>> {
        let start = |Member { spec, listen }: &Member| {
            Rig::start(spec.clone(), *listen, clock)
                .map_err(|error| io::Error::new(error.kind(), format!("{} at {listen}: {error}", spec.name)))
        };
        self.members.iter().map(start).collect()
    }
}

impl Member {
    fn read(number: usize, mut entry: Table) -> Result<Self, SpecError> {
        let name =
            entry.get("name").or_else(|| entry.get("preset")).and_then(Value::as_str).unwrap_or("no name");
        let place = format!("backend {number} ({name})");
        let mut text = |key: &str| match entry.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(&place, format!("{key} is {other}, it must be a text"))),
        };
        let (preset, listen) = (text("preset")?, text("listen")?);
        let mut table = preset.as_deref().map_or_else(|| Ok(Table::new()), preset_table)?;
        merge(&mut table, entry);
        let mut member = Self::from(read(&place, table)?);
        if let Some(listen) = listen {
            member.listen = listen
                .parse()
                .map_err(|_| wrong(&place, format!("listen is {listen:?}, it must be ADDRESS:PORT")))?;
        }
        Ok(member)
    }
}

fn wrong(place: &str, problem: impl Into<String>) -> SpecError {
    SpecError::Syntax { place: place.to_owned(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Step};

    #[test]
    fn an_entry_is_laid_over_its_preset() {
        let fleet = Fleet::from_toml(
            r#"
            [[backend]]
            preset = "vllm/dual"
            name = "big"
            timing = { ttft_floor = 0.5 }
            [[backend]]
            engine = "llama-cpp"
            listen = "127.0.0.1:0"
            window = 4_096
            restart_after = "never"
            script = { steps = ["ok", "cut:3"], then = "dead" }
            "#,
        )
        .unwrap();
        let [big, small] = fleet.members.as_slice() else { panic!("two members") };
        let dual = Spec::preset("vllm/dual").unwrap();
        assert_eq!(big.listen, SocketAddr::from(([127, 0, 0, 1], 8010)));
        assert_eq!((big.spec.window, big.spec.timing.prefill_a), (dual.window, dual.timing.prefill_a));
        assert_eq!((big.spec.name.as_str(), big.spec.timing.ttft_floor), ("big", 0.5));
        assert_eq!((small.spec.name.as_str(), small.spec.engine), ("llama-cpp", Engine::LlamaCpp));
        assert_eq!((big.spec.restart_after, small.spec.restart_after), (Some(3.0), None));
        assert_eq!(
            (small.spec.script.steps[1].clone(), small.spec.script.then.clone()),
            (Step::Cut(3), Step::Dead)
        );
    }

    #[track_caller]
    fn refused(text: &str, needed: &[&str]) {
        let error = Fleet::from_toml(text).unwrap_err().to_string();
        for part in needed {
            assert!(error.contains(part), "{part:?} not in {error:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_backend() {
        refused("", &["no [[backend]]"]);
        refused("[[backend]\n", &["fleet file", "line 1"]);
        refused("speed = 2\n", &["\"speed\""]);
        refused("[[backend]]\nengine = 'vllm'\nwindw = 3\n", &["backend 1", "windw", "window"]);
        refused("[[backend]]\nname = 'a'\nengine = 'mlx'\n", &["backend 1 (a)", "mlx", "llama-cpp"]);
        refused("[[backend]]\npreset = 'vllm/duel'\n", &["vllm/duel", "vllm/dual"]);
        refused("[[backend]]\npreset = 7\n", &["preset is 7"]);
        refused("[[backend]]\nengine = 'vllm'\nlisten = '8010'\n", &["8010", "ADDRESS:PORT"]);
        refused("[[backend]]\nengine = 'vllm'\nslots = 0\n", &["slots is 0", "at least 1"]);
        refused("[[backend]]\nengine = 'vllm'\nscript = { steps = ['narrow'] }\n", &["narrow", "http:CODE"]);
        refused("[[backend]]\nengine = 'vllm'\nrestart_after = 'soon'\n", &["\"soon\"", "never"]);
        let twice = "[[backend]]\nengine = 'vllm'\nport = 1\n[[backend]]\nengine = 'vllm'\nport = 2\n";
        refused(twice, &["backend 2 (vllm)", "same name"]);
    }
}
