//! Makes a table of nftables from within the pod's user namespace, in a separate process: only a process with
//! one thread may enter a user namespace.
//!
//! ```text
//!  agent                          helper (the agent re-executed)
//!    │ start ──────────────────────────────▶│ enter
//!    │ messages, end of file ──────────────▶│ send to the kernel
//!    │◀────────────── "made", or the reason ─│ ends
//! ```

use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use nix::sched::CloneFlags;

use crate::network::nft;
use crate::pause::SELF;
use crate::user_namespace;

/// First argument: enter the pod's user namespace, make the table from standard input, print the reason of a
/// failure, and end.
pub(crate) const ARGUMENT: &str = "nft-table";

/// Printed on success.
const MADE: &str = "made";

/// Longest reason, in bytes.
const REASON_BYTES_MAX: u64 = 1024;

/// Makes a table in this thread's network, for a pod with a user namespace. The helper inherits the network.
pub(super) fn make_table(messages: &[u8]) -> Result<(), String> {
    let answer = ask(messages).map_err(|error| format!("the process of the table: {error}"))?;
    match answer.trim_end() {
        MADE => Ok(()),
        "" => Err("the process of the table ended without an answer".to_owned()),
        why => Err(why.to_owned()),
    }
}

/// Runs the helper. The reaper collects its exit, like every process's.
fn ask(messages: &[u8]) -> io::Result<String> {
    let mut helper = Command::new(SELF).arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut input), Some(output)) = (helper.stdin.take(), helper.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    input.write_all(messages)?;
    drop(input);
    let mut answer = String::new();
    output.take(REASON_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Runs the helper's work.
pub(crate) fn run() -> i32 {
    let answer = match enter_and_make() {
        Ok(()) => MADE.to_owned(),
        Err(why) => why,
    };
    // If the agent is gone, the guest is ending.
    let _ = writeln!(io::stdout(), "{answer}");
    i32::from(answer != MADE)
}

fn enter_and_make() -> Result<(), String> {
    let mut messages = Vec::new();
    io::stdin().lock().read_to_end(&mut messages).map_err(|error| error.to_string())?;
    let table = nft::prepare(&messages).map_err(|error| error.to_string())?;
    let failed = |error: io::Error| format!("cannot enter the pod's user namespace: {error}");
    let namespace = File::open(user_namespace::PATH).map_err(failed)?;
    nix::sched::setns(namespace, CloneFlags::CLONE_NEWUSER).map_err(|errno| failed(errno.into()))?;
    table.make().map_err(|error| error.to_string())
}
