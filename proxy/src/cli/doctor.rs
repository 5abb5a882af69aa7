//! `switchback doctor`: asks every backend some small questions, says what is odd, and writes the configuration that follows.
//!
//! About twenty requests of a few tokens each, one after the other, so that a rig which is in use is hardly slowed. It asks
//! backends directly, past admission and repair, since it is their own behaviour that counts. Must never send a prompt that a
//! backend may die of.

mod ask;
mod calls;
mod finding;
mod policy;
mod refusals;
mod speech;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use switchback_parsers::diagnosis::Engine;
use switchback_policies::facts::BackendState;

use self::ask::Patient;
use self::finding::{Finding, Setting, Verdict};
use super::serve::{find, load, look_around};
use super::{Failed, say};
use crate::app::App;
use crate::backend::Backend;
use crate::backend::client::Tcp;

#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Only these backends
    #[arg(long, value_name = "NAME")]
    backend: Vec<String>,
    /// Write the configuration that follows to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// One JSON object a backend instead of the table
    #[arg(long)]
    json: bool,
    /// Seconds that one answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
}

pub(super) async fn run(file: Option<PathBuf>, args: &DoctorArgs) -> Result<(), Failed> {
    if let Some(taken) = args.write.as_ref().filter(|file| file.exists()) {
        let taken = taken.display();
        return Err(anyhow::anyhow!("{taken} exists and is left as it is\nhint: name a new file").into());
    }
    let file = find(file);
    if let (Some(from), Some(to)) = (&file, &args.write) {
        beside(from, to)?;
    }
    let config = match &file {
        Some(file) => load(file)?,
        None => look_around(None).await,
    };
    let app = App::new(config, Arc::new(Tcp));
    let names: Vec<&str> = app.fleet.all().iter().map(|backend| backend.name()).collect();
    if let Some(unknown) = args.backend.iter().find(|name| !names.contains(&name.as_str())) {
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(anyhow::anyhow!("there is no backend {unknown}\nhint: there is {known}").into());
    }
    if names.is_empty() {
        say("nobody is there to be examined; `switchback rig` starts simulated backends");
        return Ok(());
    }
    app.probe_all().await;
    let mut settings = Vec::new();
    for (at, backend) in app.fleet.all().iter().enumerate() {
        if args.backend.is_empty() || args.backend.iter().any(|name| name == backend.name()) {
            settings.push((at, examined(backend, args).await));
        }
    }
    settings.retain(|(_, settings)| !settings.is_empty());
    write(&app, file, &settings, args)
}

/// Paths in a configuration are relative to its folder, so another one may not be the place for it.
fn beside(from: &Path, to: &Path) -> anyhow::Result<()> {
    let folder = |file: &Path| {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        folder.canonicalize().with_context(|| format!("cannot write to {}", folder.display()))
    };
    let (from_folder, to_folder) = (folder(from)?, folder(to)?);
    anyhow::ensure!(
        from_folder == to_folder,
        "paths in {} are relative to its folder, and {} would be in another\nhint: write it to {} and move it by hand",
        from.display(),
        to.display(),
        from_folder.join(to.file_name().unwrap_or_default()).display()
    );
    Ok(())
}

/// Examines a backend and tells what was found as it is found; what should be set.
async fn examined(backend: &Arc<Backend>, args: &DoctorArgs) -> Vec<Setting> {
    let patient = Patient { backend: backend.clone(), patience: Duration::from_secs(args.patience) };
    let version = backend.found().version.map(|version| format!(" {version}")).unwrap_or_default();
    let (name, address) = (backend.name(), &backend.config.authority);
    let (engine, state) = (backend.engine(), backend.state());
    if !args.json {
        say(format_args!("{name} at {address}: {state}, {engine}{version}"));
    }
    let mut findings = Vec::new();
    examine(&patient, &mut |finding: Finding| {
        if !args.json {
            say(format_args!("    {:20} {:9} {}", finding.trial, finding.verdict, finding.said));
        }
        findings.push(finding);
    })
    .await;
    if args.json {
        say(json!({
            "backend": name,
            "address": address.as_str(),
            "engine": engine.to_string(),
            "version": backend.found().version,
            "findings": findings,
        }));
    } else {
        say("");
    }
    policy::joined(findings.into_iter().flat_map(|finding| finding.settings))
}

/// All trials, each told when it is done.
async fn examine(patient: &Patient, tell: &mut impl FnMut(Finding)) {
    let backend = &patient.backend;
    if !matches!(backend.state(), BackendState::Up) {
        let said = format!("it is {}: nothing can be asked", backend.state());
        return tell(Finding::new("there", Verdict::Bad, said));
    }
    if let Some(load) = backend.told_load().filter(|load| load.running + load.waiting > 0) {
        let said = format!("{} running, {} waiting: times are theirs, too", load.running, load.waiting);
        tell(Finding::new("busy", Verdict::Note, said));
    }
    let Some(answers) = speech::answers(patient, tell).await else {
        let said = "it answers nothing of use, so nothing else is asked";
        return tell(Finding::new("the rest", Verdict::Untold, said));
    };
    tell(speech::thoughts(patient, &answers));
    tell(speech::counts(patient, &answers).await);
    let tools = calls::calls(patient, tell).await;
    tell(refusals::unknown_members(patient, &tools).await);
    tell(refusals::schema_keywords(patient, &tools).await);
    tell(refusals::pictures(patient).await);
    tell(template(backend));
    tell(refusals::overflow(patient).await);
    tell(speech::hang_up(patient).await);
}

/// What probing has found of its template.
fn template(backend: &Backend) -> Finding {
    const TRIAL: &str = "template";
    let needs: Vec<&str> = backend.needs().iter().map(|need| need.name()).collect();
    match (needs.is_empty(), backend.found().needs.is_some() || backend.config.needs.is_some()) {
        (false, _) => Finding::new(TRIAL, Verdict::Mended, format!("needs {}", needs.join(", "))),
        (true, true) => Finding::new(TRIAL, Verdict::Good, "reads every order of roles"),
        (true, false) => Finding::new(TRIAL, Verdict::Untold, "this engine does not render on request"),
    }
}

/// The configuration that follows, to the file that was named, else shown.
fn write(
    app: &App,
    file: Option<PathBuf>,
    settings: &[(usize, Vec<Setting>)],
    args: &DoctorArgs,
) -> Result<(), Failed> {
    let text = match &file {
        Some(file) => {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let base = file.parent().unwrap_or_else(|| Path::new("."));
            policy::merged(&text, base, settings)
        }
        None => {
            let of = |at: usize| settings.iter().find(|(nth, _)| *nth == at).map(|(_, all)| all.clone());
            let engine = |backend: &Backend| {
                Some(backend.engine())
                    .filter(|engine| *engine != Engine::Other)
                    .map(|engine| engine.to_string())
            };
            let all = app.fleet.all().iter().enumerate();
            let all: Vec<_> = all
                .map(|(at, backend)| (&backend.config, engine(backend), of(at).unwrap_or_default()))
                .collect();
            policy::whole(&all)
        }
    };
    let by_hand = || {
        settings.iter().flat_map(|(at, all)| {
            let name = app.config.backends.get(*at).map_or("?", |backend| &*backend.name);
            all.iter().map(move |one| format!("[[backend]] {name}: {} = {}", one.key, one.value))
        })
    };
    let text = text.map_err(|why| {
        anyhow::anyhow!(
            "cannot write it: {why}\nhint: by hand:\n{}",
            by_hand().collect::<Vec<_>>().join("\n")
        )
    })?;
    match &args.write {
        Some(to) => {
            std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
            if !args.json {
                say(format_args!("written to {}", to.display()));
            }
        }
        None if args.json => {}
        None if settings.is_empty() => say("nothing has to be set"),
        None => {
            say("to be set:");
            by_hand().for_each(|line| say(format_args!("    {line}")));
            say("`--write FILE` writes the whole configuration with it");
        }
    }
    Ok(())
}
