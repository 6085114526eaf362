//! A line of `podvisor check`: a need of pods, and whether the host meets it. The examinations are elsewhere.

/// The outcome for one need of pods.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The need, as shown in the line.
    pub(super) what: &'static str,
    /// The state found, or the problem.
    pub(super) outcome: Result<String, Problem>,
}

/// An unmet need.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The cause.
    pub(super) why: String,
    /// The remedy, for the operator to carry out.
    pub(super) remedy: String,
    /// Whether pods can run all the same.
    pub(super) minor: bool,
}

impl Problem {
    pub(super) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Problem { why: why.into(), remedy: remedy.into(), minor: false }
    }

    /// Marks the problem as minor: pods can run all the same.
    pub(super) fn minor(self) -> Self {
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
