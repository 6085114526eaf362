//! The `podvisor` command. All of its code is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    podvisor::run_command()
}
