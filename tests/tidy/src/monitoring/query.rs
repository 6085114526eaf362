//! The names in a query of PromQL: its series, their labels, and the labels for grouping. Pure. It does not
//! check the query's validity.

/// The names in a query.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// The series, each with the matchers of its labels.
    pub(super) matchers: Vec<(String, Vec<Matcher>)>,
    /// Labels for grouping or matching results.
    pub(super) grouping: Vec<String>,
}

/// A label of a selector.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Matcher {
    pub(super) label: String,
    /// The value; `None` if a regular expression matches it.
    pub(super) value: Option<String>,
}

/// Words before a list of labels.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// Words between expressions.
const BETWEEN: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// The names in `query`.
pub(super) fn used(query: &str) -> Used {
    let mut used = Used::default();
    let mut rest = query;
    while let Some(letter) = rest.chars().next() {
        if letter == '[' {
            rest = rest.split_once(']').map_or("", |(_, rest)| rest);
        } else if is_of_name(letter) {
            let (word, after) = split_name(rest);
            rest = after.trim_start();
            if letter.is_ascii_digit() || BETWEEN.contains(&word) {
                continue;
            }
            if GROUPING.contains(&word) {
                if let Some((list, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                    used.grouping.extend(list.split(',').map(|label| label.trim().to_owned()));
                    rest = after;
                }
            } else if let Some(selector) = rest.strip_prefix('{') {
                let (matchers, after) = matchers(selector);
                used.matchers.push((word.to_owned(), matchers));
                rest = after;
            } else if !rest.starts_with('(')
                && !GROUPING.iter().any(|word| rest.starts_with(&format!("{word} (")))
            {
                used.matchers.push((word.to_owned(), Vec::new()));
            }
        } else {
            rest = &rest[letter.len_utf8()..];
        }
    }
    used.grouping.retain(|label| !label.is_empty());
    used
}

/// Reads matchers up to the closing brace.
fn matchers(mut rest: &str) -> (Vec<Matcher>, &str) {
    let mut found = Vec::new();
    while let Some((before, after)) = rest.split_once('"') {
        if before.contains('}') {
            break;
        }
        let (label, _) = split_name(before.trim_start_matches([',', ' ']));
        let (value, after) = after.split_once('"').unwrap_or((after, ""));
        let value = (!before.contains('~')).then(|| value.to_owned());
        found.push(Matcher { label: label.to_owned(), value });
        rest = after;
    }
    (found, rest.split_once('}').map_or("", |(_, rest)| rest))
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'
}

fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter| !is_of_name(letter)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(query: &str) -> Vec<String> {
        used(query).matchers.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn series_are_what_is_neither_called_nor_a_word_of_the_language() {
        assert_eq!(series("sum by (a) (rate(x_total{b=\"y\"}[5m])) / 1e3 > bool 0.5"), ["x_total"]);
        assert_eq!(
            series("time() - x and on (job, instance) (y or z) unless w offset 30m"),
            ["x", "y", "z", "w"]
        );
        assert_eq!(series("sum(x) by (a) * count without (b) (y)"), ["x", "y"]);
    }

    #[test]
    fn labels_are_those_of_selectors_and_of_groups() {
        let used = used("sum by (a, b) (x{c=\"}\", d!~\"e.*\"}) / ignoring (f) group_left () y{}");
        let matcher = |label: &str, value: Option<&str>| Matcher {
            label: label.into(),
            value: value.map(str::to_owned),
        };
        let of_x = vec![matcher("c", Some("}")), matcher("d", None)];
        assert_eq!(used.matchers, [("x".to_owned(), of_x), ("y".to_owned(), Vec::new())]);
        assert_eq!(used.grouping, ["a", "b", "f"]);
    }
}
