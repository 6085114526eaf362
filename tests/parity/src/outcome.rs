//! A client's view of a case on one runtime, and the comparison of two of them. Pure.

/// A client's view.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// The compared values, one line each.
    pub(crate) seen: Vec<String>,
    /// The texts of errors. Runtimes choose them freely, so they are shown and not compared.
    pub(crate) errors: Vec<String>,
}

impl Outcome {
    /// Adds a compared value.
    pub(crate) fn saw(&mut self, what: impl Into<String>) {
        self.seen.push(what.into());
    }

    /// Adds a text, a line for each of its lines, each after `what`.
    pub(crate) fn saw_text(&mut self, what: &str, text: &str) {
        self.seen.extend(text.lines().map(|line| format!("{what} | {line}")));
    }

    /// Adds a refused call. A runtime may create the container in either of two calls.
    pub(crate) fn refused(&mut self, call: &str, error: &str) {
        let what = if matches!(call, "create" | "start") { "container" } else { call };
        self.saw(format!("{what}: refused"));
        self.errors.push(format!("{call}: {error}"));
    }
}

/// Lines of difference between two outcomes: those only in the first after `-`, those only in the second
/// after `+`. Empty if both are the same.
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
