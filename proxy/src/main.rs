//! The `switchback` program: parses the command line and hands over to [`switchback::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    switchback::cli::main()
}
