//! The lines printed by an installation or a removal: one per completed step.

/// A completed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The step's name.
    pub what: &'static str,
    /// The change, or why nothing had to be done.
    pub outcome: String,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.outcome)
    }
}

/// The receiver of steps.
pub type Report<'a> = &'a mut dyn FnMut(Step);

/// Reports a step.
pub(crate) fn say(report: Report<'_>, what: &'static str, outcome: impl Into<String>) {
    report(Step { what, outcome: outcome.into() });
}
