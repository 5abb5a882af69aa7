//! `switchback cliffs`: what backends were seen to die of and to survive; shown, exported, imported, forgotten.
//!
//! It reads and writes the file that a serving proxy keeps, which takes over what is written there. The file is the only
//! thing that it touches: no backend is asked.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use switchback_policies::cliff::{Axis, Cliffs, Dimension};

use super::serve::{find, load};
use super::{Failed, say};
use crate::cliffs::{Maps, Settings, merge, read, to_json, write};
use crate::config::Config;

#[derive(Debug, clap::Args)]
pub(super) struct CliffsArgs {
    /// Print the maps as JSON, for another rig with the same machine
    #[arg(long, conflicts_with_all = ["import", "forget"])]
    export: bool,
    /// Take over the numbers of another rig: backends and models of the same names
    #[arg(long, value_name = "FILE", conflicts_with = "forget")]
    import: Option<PathBuf>,
    /// Forget the deaths of this backend: somebody stopped it, or its machine has changed
    #[arg(long, value_name = "NAME")]
    forget: Option<String>,
}

pub(super) fn run(file: Option<PathBuf>, args: &CliffsArgs) -> Result<(), Failed> {
    let config = match find(file) {
        Some(file) => load(&file)?,
        None => Config::without_backends(),
    };
    let settings = config.keeping_state().cliffs;
    let path = settings.file.clone().context(
        "nothing is kept\nhint: [cliffs] file = \"…\", or set XDG_STATE_HOME or HOME, as for the serving proxy",
    )?;
    let mut maps = read(&path)?;
    if args.export {
        say(to_json(&maps));
    } else if let Some(other) = &args.import {
        anyhow_exists(other)?;
        let theirs = read(other)?;
        let deaths: usize = theirs.values().map(deaths).sum();
        merge(&mut maps, &theirs);
        write(&path, &maps)?;
        say(format_args!(
            "{} backends with {deaths} deaths taken over into {}",
            theirs.len(),
            path.display()
        ));
    } else if let Some(name) = &args.forget {
        let known: Vec<&mut Cliffs> =
            maps.iter_mut().filter(|((backend, _), _)| backend == name).map(|(_, cliffs)| cliffs).collect();
        if known.is_empty() {
            let names: Vec<&str> = maps.keys().map(|(backend, _)| backend.as_str()).collect();
            let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
            return Err(anyhow::anyhow!("nothing is known of {name}\nhint: known is {names}").into());
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let forgotten: usize = known.iter().map(|cliffs| deaths(cliffs)).sum();
        known.into_iter().for_each(|cliffs| cliffs.forget(now));
        write(&path, &maps)?;
        say(format_args!("{forgotten} deaths of {name} are forgotten"));
    } else {
        show(&path, &maps, &settings);
    }
    Ok(())
}

/// A missing state file means that nothing is known yet; a missing import is a mistake.
fn anyhow_exists(path: &Path) -> anyhow::Result<()> {
    path.metadata().map(drop).with_context(|| format!("cannot read {}", path.display()))
}

fn deaths(cliffs: &Cliffs) -> usize {
    cliffs.axes.iter().map(|axis| axis.killers.len()).sum()
}

fn show(path: &Path, maps: &Maps, settings: &Settings) {
    say(format_args!("kept in {}", path.display()));
    if !settings.learn {
        say("learning is off ([cliffs] learn = false): these limits are not used");
    }
    if maps.is_empty() {
        say("nothing is known yet: a map begins with the first answer");
    }
    for ((backend, model), cliffs) in maps {
        let version = cliffs.version.as_deref().map(|version| format!(", {version}")).unwrap_or_default();
        say(format_args!("\n{backend} ({model}{version})"));
        let region = cliffs.region(settings.floor, settings.explore);
        for dimension in Dimension::ALL {
            let axis = cliffs.axis(dimension);
            if axis == &Axis::default() {
                continue;
            }
            let limit = match region.bound(dimension) {
                Some(bound) if bound.soft => format!("limit {} (soft: it has faded)", bound.limit),
                Some(bound) => format!("limit {}", bound.limit),
                None => "no limit".to_owned(),
            };
            let most = axis.most_survived().map(|most| format!(", survived {most}")).unwrap_or_default();
            let died: Vec<String> = axis.killers.iter().map(|killer| killer.size.to_string()).collect();
            let died = if died.is_empty() { String::new() } else { format!(", died of {}", died.join(", ")) };
            say(format_args!("    {:26} {limit}{most}{died}", dimension.unit()));
        }
    }
}
