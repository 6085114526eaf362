//! `podvisor check`: one line for each thing that pods need from this host, and what to do where it is
//! missing. The last line of all is the one that counts: a Linux guest is booted for real, because a
//! `/dev/kvm` can be there and still not run one.

mod guest;
mod host;

use std::process::ExitCode;

use crate::config::Config;

/// What `podvisor check` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only boot a guest: whether KVM works here.
    #[arg(long)]
    kvm: bool,
}

/// One thing looked at.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// What was looked at.
    what: &'static str,
    /// What was found, or why it does not do and what to do.
    outcome: Result<String, Problem>,
}

/// Something that does not do.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// What is wrong.
    why: String,
    /// What to do.
    remedy: String,
    /// Pods can run all the same.
    minor: bool,
}

impl Problem {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Problem { why: why.into(), remedy: remedy.into(), minor: false }
    }

    fn minor(self) -> Self {
        Problem { minor: true, ..self }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.outcome {
            Ok(found) => write!(f, "ok    {}: {found}", self.what),
            Err(problem) => {
                let mark = if problem.minor { "note " } else { "FAIL " };
                write!(f, "{mark} {}: {}; {}", self.what, problem.why, problem.remedy)
            }
        }
    }
}

/// Looks at everything and says whether pods can run: exit status 0 or 1.
pub(crate) fn check(config: &Config, args: &Args) -> anyhow::Result<ExitCode> {
    let mut failed = false;
    let mut tell = |finding: Finding| {
        failed |= matches!(&finding.outcome, Err(problem) if !problem.minor);
        println!("{finding}");
    };
    if !args.kvm {
        host::look(config).into_iter().for_each(&mut tell);
    }
    tell(Finding { what: "a Linux guest on KVM", outcome: guest::boot(config) });
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_that_says_what_to_do() {
        let finding = Finding {
            what: "/dev/kvm",
            outcome: Err(Problem::new("not there", "load kvm_amd or kvm_intel")),
        };
        assert_eq!(finding.to_string(), "FAIL  /dev/kvm: not there; load kvm_amd or kvm_intel");
        assert_eq!(Finding { what: "tun", outcome: Ok("there".into()) }.to_string(), "ok    tun: there");
    }
}
