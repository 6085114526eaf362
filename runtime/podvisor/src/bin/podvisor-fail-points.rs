//! The `podvisor` command with fail points, for tests: the same program, which also lists the points. Ships nowhere.

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
