//! The `podvisor` command with fail points, for tests: the same program, with a list of the points. Never
//! shipped.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use runtime_fail_points::Point;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() != Some("--list-fail-points") {
        runtime_fail_points::arm();
        return podvisor::run_command();
    }
    for point in Point::ALL {
        println!("{}", point.name());
    }
    ExitCode::SUCCESS
}
