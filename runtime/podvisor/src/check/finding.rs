//! A line of `podvisor check`: a need of pods, and whether the host meets it. The examinations are elsewhere.

use console::Style;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

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

impl Finding {
    /// The line for a person. The mark has a colour if a terminal shows `colours`.
    pub(super) fn line(&self, colours: bool) -> String {
        let mark = |word: &str, style: Style| style.force_styling(colours).apply_to(word).to_string();
        match &self.outcome {
            Ok(found) => format!("{}    {}: {found}", mark("ok", Style::new().green()), self.what),
            Err(Problem { why, remedy, minor }) => {
                let mark = match minor {
                    true => mark("note", Style::new().yellow()),
                    false => mark("FAIL", Style::new().red().bold()),
                };
                format!("{mark}  {}: {why}; {remedy}", self.what)
            }
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.line(false))
    }
}

/// The form for programs: `need`, `outcome` (`ok`, `note` or `fail`), `found`, and `remedy` unless it is met.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finding", 4)?;
        let (outcome, found, remedy) = match &self.outcome {
            Ok(found) => ("ok", found, None),
            Err(problem) => {
                (if problem.minor { "note" } else { "fail" }, &problem.why, Some(&problem.remedy))
            }
        };
        fields.serialize_field("need", self.what)?;
        fields.serialize_field("outcome", outcome)?;
        fields.serialize_field("found", found)?;
        match remedy {
            Some(remedy) => fields.serialize_field("remedy", remedy)?,
            None => fields.skip_field("remedy")?,
        }
        fields.end()
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
        assert_eq!(finding.line(false), "FAIL  /dev/kvm: not there; load kvm_amd or kvm_intel");
        assert_eq!(Finding { what: "tun", outcome: Ok("there".into()) }.line(false), "ok    tun: there");
        let minor = Finding { what: "tun", outcome: Err(Problem::new("old", "renew it").minor()) };
        assert_eq!(minor.line(false), "note  tun: old; renew it");
        assert_eq!(minor.line(true), "\u{1b}[33mnote\u{1b}[0m  tun: old; renew it");
    }

    #[test]
    fn a_program_reads_need_outcome_and_remedy() {
        let of = |outcome| serde_json::to_value(Finding { what: "tun", outcome }).unwrap();
        let met = serde_json::json!({ "need": "tun", "outcome": "ok", "found": "there" });
        assert_eq!(of(Ok("there".into())), met);
        let problem = Problem::new("gone", "load it");
        let unmet =
            serde_json::json!({ "need": "tun", "outcome": "fail", "found": "gone", "remedy": "load it" });
        assert_eq!(of(Err(problem)), unmet);
        assert_eq!(of(Err(Problem::new("gone", "load it").minor()))["outcome"], "note");
    }
}
