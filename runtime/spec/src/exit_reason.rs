//! Reason for a container's exit, as one enum from the agent's answer to the CRI and the command line.
//!
//! The kubelet and people know these names from other runtimes. They are part of the stored status and of
//! CRI's `ContainerStatus.reason`, so a variant may be added but never renamed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Reason for a container's exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitReason {
    /// The program ended with code 0.
    Completed,
    /// The program ended with another code or by a signal, or was lost with its VM.
    Error,
    /// The memory limit of the container killed one of its processes.
    #[serde(rename = "OOMKilled")]
    OomKilled,
    /// The program could not be executed. See [`StartFailure`] for the exit code.
    ContainerCannotRun,
    /// Another failure prevented the container's start. The exit code is 128.
    StartError,
}

impl ExitReason {
    /// All reasons.
    pub const ALL: [ExitReason; 5] = [
        ExitReason::Completed,
        ExitReason::Error,
        ExitReason::OomKilled,
        ExitReason::ContainerCannotRun,
        ExitReason::StartError,
    ];

    /// The name in CRI's `ContainerStatus.reason`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ExitReason::Completed => "Completed",
            ExitReason::Error => "Error",
            ExitReason::OomKilled => "OOMKilled",
            ExitReason::ContainerCannotRun => "ContainerCannotRun",
            ExitReason::StartError => "StartError",
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name of no [`ExitReason`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no exit reason")]
pub struct UnknownExitReason(String);

impl FromStr for ExitReason {
    type Err = UnknownExitReason;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = ExitReason::ALL.into_iter().find(|reason| reason.name() == name);
        found.ok_or_else(|| UnknownExitReason(name.to_owned()))
    }
}

/// Reason why the guest's kernel does not execute a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartFailure {
    /// The image does not have the program.
    ExecutableNotFound,
    /// The file exists but cannot be executed: no permission, or no program.
    ExecutableNotRunnable,
}

impl StartFailure {
    const ALL: [StartFailure; 2] = [StartFailure::ExecutableNotFound, StartFailure::ExecutableNotRunnable];

    /// The exit code given by shells for such a command: 127 or 126.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            StartFailure::ExecutableNotFound => 127,
            StartFailure::ExecutableNotRunnable => 126,
        }
    }

    /// The name in errors sent to clients, in gRPC's error details and on a session's error stream.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StartFailure::ExecutableNotFound => "ExecutableNotFound",
            StartFailure::ExecutableNotRunnable => "ExecutableNotRunnable",
        }
    }

    /// The failure of this name. `None` for any other name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<StartFailure> {
        StartFailure::ALL.into_iter().find(|failure| failure.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_stored_and_parsed_by_the_name_that_clients_see() {
        for reason in ExitReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
            assert_eq!(reason.name().parse::<ExitReason>().unwrap(), reason);
        }
        assert!("Evicted".parse::<ExitReason>().is_err());
        assert!("".parse::<ExitReason>().is_err());
    }

    #[test]
    fn start_failures_keep_their_names_and_codes() {
        for (failure, code) in
            [(StartFailure::ExecutableNotFound, 127), (StartFailure::ExecutableNotRunnable, 126)]
        {
            assert_eq!((failure.exit_code(), StartFailure::from_name(failure.name())), (code, Some(failure)));
        }
        assert_eq!(StartFailure::from_name("executable file not found"), None);
    }
}
