//! Escapes from a VMM's thread and from its share's (`tests/red-team`). `make red-team` tries all of them; here
//! are two, because each takes a VMM for each set of walls.

use std::process::Command;

use tests_e2e::built::Built;

/// The attempts, by words of their names.
const NAMES: [&str; 2] = ["through a link in the volume", "by the owner of a descriptor"];

#[test]
fn escapes_by_a_link_and_by_a_signal_fail_by_two_walls_each() {
    let Some(built) = Built::of_environment() else { return };
    let done =
        Command::new(built.bin.join("red-team")).arg("--bin").arg(&built.bin).args(NAMES).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    println!("{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success());
    assert!(said.contains("3 attempts; 3 succeed without walls, 0 with all"));
}
