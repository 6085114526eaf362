//! Compares a command's output with the output on a page. Values differ from node to node; words do not.

/// Whether the output has all lines shown on the page. A word with a digit or `…` on the page stands for any
/// word. Of a table only the heading is compared, because its rows are examples.
#[must_use]
pub fn is_shown(page: &[&str], output: &str) -> bool {
    let heading = page.iter().position(|line| is_heading(line));
    let compared = &page[..heading.map_or(page.len(), |at| at + 1)];
    let is_there = |line: &&str| output.lines().any(|other| is_alike(line, other));
    compared.iter().filter(|line| !line.trim().is_empty()).all(is_there)
}

/// Whether a line is the heading of a table: names in capitals, and percentiles.
fn is_heading(line: &str) -> bool {
    let is_name = |word: &str| word.chars().all(|letter| letter.is_ascii_uppercase()) || is_percentile(word);
    line.split_whitespace().count() > 1 && line.split_whitespace().all(is_name)
}

fn is_percentile(word: &str) -> bool {
    word.strip_prefix('p').is_some_and(|number| number.parse::<u8>().is_ok())
}

fn is_alike(page: &str, output: &str) -> bool {
    let (page, output): (Vec<_>, Vec<_>) =
        (page.split_whitespace().collect(), output.split_whitespace().collect());
    let is_any = |word: &str| {
        !is_percentile(word) && word.contains(|letter: char| letter.is_ascii_digit() || letter == '…')
    };
    page.len() == output.len() && page.iter().zip(&output).all(|(one, other)| one == other || is_any(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_and_values_are_not() {
        let page = ["imported docker.io/shop/cart:v7 (0b8f43f1a2c9)"];
        assert!(is_shown(&page, "first\nimported docker.io/a/b:1 (123)\n"));
        assert!(
            !is_shown(&page, "taken docker.io/a/b:1 (123)\n")
                && !is_shown(&page, "imported docker.io/a/b:1\n")
        );
        assert!(
            is_shown(&["6f1d3b0f0c…"], "abc\n") && !is_shown(&["6f1d3b0f0c…"], "") && is_shown(&[], "any\n")
        );
    }

    #[test]
    fn of_a_table_the_heading_is_compared() {
        let page = ["HANDLER  PODS  START p50  p99", "podvisor    20  …"];
        assert!(is_shown(&page, "HANDLER PODS START p50 p99\nother 1 2 3 4\n"));
        assert!(
            !is_shown(&page, "HANDLER PODS START p50\n") && !is_shown(&page, "HANDLER PODS START p50 p95\n")
        );
    }
}
