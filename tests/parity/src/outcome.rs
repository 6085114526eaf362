//! What a client saw of a case on one runtime, and the comparison of two of them. Pure.

/// What a client saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// What is compared, a line for each thing.
    pub(crate) seen: Vec<String>,
    /// The words of errors. Runtimes word them as they like, so that these are shown and not compared.
    pub(crate) errors: Vec<String>,
}

impl Outcome {
    /// Adds what is compared.
    pub(crate) fn saw(&mut self, what: impl Into<String>) {
        self.seen.push(what.into());
    }

    /// Adds a text, a line for each of its lines, each behind `what`.
    pub(crate) fn saw_text(&mut self, what: &str, text: &str) {
        self.seen.extend(text.lines().map(|line| format!("{what} | {line}")));
    }

    /// Adds a refused call. Which of two calls makes the container is the runtime's own business.
    pub(crate) fn refused(&mut self, call: &str, error: &str) {
        let what = if matches!(call, "create" | "start") { "container" } else { call };
        self.saw(format!("{what}: refused"));
        self.errors.push(format!("{call}: {error}"));
    }
}

/// Lines in which two outcomes differ: those of the first alone after `-`, those of the second alone after `+`. Empty where both are the same.
pub(crate) fn difference(first: &Outcome, second: &Outcome) -> Vec<String> {
    if first.seen == second.seen {
        return Vec::new();
    }
    let alone = |sign: char, of: &Outcome, other: &Outcome| {
        let lines = of.seen.iter().filter(|line| !other.seen.contains(line));
        lines.map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    let lines = [alone('-', first, second), alone('+', second, first)].concat();
    if lines.is_empty() {
        return vec!["the same lines in another order, or another number of times".into()];
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[&str]) -> Outcome {
        Outcome { seen: lines.iter().map(ToString::to_string).collect(), errors: Vec::new() }
    }

    #[test]
    fn a_difference_has_the_lines_of_each_side_alone() {
        let found = difference(&outcome(&["a", "b"]), &outcome(&["a", "c"]));
        assert_eq!(found, ["- b", "+ c"]);
    }

    #[test]
    fn another_order_is_a_difference() {
        assert_eq!(difference(&outcome(&["a", "b"]), &outcome(&["b", "a"])).len(), 1);
        assert!(difference(&outcome(&["a"]), &outcome(&["a"])).is_empty());
    }

    #[test]
    fn a_container_that_is_refused_is_so_in_whichever_call() {
        let (mut created, mut started) = (Outcome::default(), Outcome::default());
        created.refused("create", "no such user");
        started.refused("start", "another wording");
        assert!(difference(&created, &started).is_empty());
    }
}
