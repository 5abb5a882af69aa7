//! Whether a program can be started, looked at before anybody is stopped for it.
//!
//! It finds what the operator has mistyped: names, permissions, interpreters. It must never start anything.

use std::io::{BufRead as _, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Why a program could not be started, as far as that shows before it is: it is not where it is looked for, may not be
/// executed, or is a script whose interpreter is not there.
pub(crate) fn cannot_start(program: &str) -> Option<String> {
    let found: Vec<PathBuf> = if program.contains('/') {
        vec![PathBuf::from(program)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    let Some(file) = found.iter().find(|file| file.is_file()) else {
        return Some(format!("there is no program {program}"));
    };
    let executable = |file: &&PathBuf| {
        std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let Some(file) = found.iter().find(executable) else {
        return Some(format!("{} is not executable: chmod +x", file.display()));
    };
    let interpreter = interpreter(file).filter(|interpreter| !interpreter.is_file())?;
    let (file, interpreter) = (file.display(), interpreter.display());
    Some(format!("{file} is a script for {interpreter}, which is not there"))
}

/// What runs a script; `None`: it is no script, or cannot be read.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let file = std::fs::File::open(file).ok()?;
    std::io::BufReader::new(file).take(256).read_until(b'\n', &mut line).ok()?;
    let line = std::str::from_utf8(line.strip_prefix(b"#!")?).ok()?;
    line.split_whitespace().next().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_could_not_be_started_is_told_before_anybody_is_stopped_for_it() {
        let folder = std::env::temp_dir().join(format!("switchback-programs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let said = |program: &str| cannot_start(program).unwrap_or_default();
        assert_eq!(
            said("no-such-program-of-switchback"),
            "there is no program no-such-program-of-switchback"
        );
        assert!(said("/").starts_with("there is no program /"));
        assert!(said(&write("plain", "#!/bin/sh\n", 0o644)).ends_with("plain is not executable: chmod +x"));
        assert!(
            said(&write("odd", "#! /no/such/shell -e\n", 0o755))
                .ends_with("a script for /no/such/shell, which is not there")
        );
        assert_eq!(said(&write("good", "#!/bin/sh\nexit 0\n", 0o755)), "");
        assert_eq!(said("sh"), "");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
