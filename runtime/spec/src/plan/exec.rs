//! One more command in a container, resolved.

use oci_spec::runtime::{Process, ProcessBuilder};

use super::process::{XTERM, has_key};
use crate::ExecSpec;

/// The agent's input for starting a command in a container.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecPlan {
    /// OCI process: arguments, environment, directory and terminal. The agent takes user, capabilities and
    /// the rest from the container.
    pub process: Process,
    /// True if the command has a terminal.
    pub tty: bool,
    /// True if a client may open the command's input.
    pub stdin: bool,
}

impl ExecPlan {
    /// Resolves a command for a container with this first process: the arguments and the terminal are the
    /// command's own, the environment and the directory are the container's. With a terminal, a missing TERM
    /// and `dumb` become `xterm`.
    #[must_use]
    pub fn resolve(container: &Process, spec: ExecSpec) -> ExecPlan {
        let ExecSpec { command, tty, stdin } = spec;
        let mut env = container.env().clone().unwrap_or_default();
        if tty {
            name_terminal(&mut env);
        }
        let process = ProcessBuilder::default()
            .terminal(tty)
            .user(container.user().clone())
            .args(command)
            .env(env)
            .cwd(container.cwd().clone())
            .build()
            .expect("every field of the process has a default");
        ExecPlan { process, tty, stdin }
    }
}

/// Names a kind of terminal if the container has none of its own. `dumb` is the container's word for its
/// plain log. The command's terminal is a person's, and with that word no editor or pager works there.
fn name_terminal(env: &mut Vec<String>) {
    match env.iter_mut().rfind(|entry| has_key(entry, "TERM")) {
        Some(entry) if entry == "TERM=dumb" => XTERM.clone_into(entry),
        Some(_) => {}
        None => env.push(XTERM.to_owned()),
    }
}
