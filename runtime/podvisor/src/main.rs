//! The `podvisor` command. Everything it does is the library's.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    podvisor::run_command()
}
