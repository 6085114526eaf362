//! The rows of a page's tables with quoted errors. Pure.

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// The heading above the table.
    pub(super) section: &'a str,
    /// The first cell, with errors in backquotes.
    pub(super) quoted: &'a str,
    pub(super) meaning: &'a str,
    /// Tables of two columns have none.
    pub(super) remedy: Option<&'a str>,
}

impl<'a> Row<'a> {
    /// The quoted errors.
    pub(super) fn errors(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.quoted.split('`').skip(1).step_by(2)
    }
}

/// All rows with a quoted error.
pub(super) fn rows(page: &str) -> Vec<Row<'_>> {
    let mut section = "";
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let mut cells = cells.split(" | ");
        let (Some(quoted), Some(meaning)) = (cells.next(), cells.next()) else { continue };
        if quoted.contains('`') {
            rows.push(Row { section, quoted, meaning, remedy: cells.next() });
        }
    }
    rows
}

/// A cell's text with `text (address)` in the place of links.
pub(super) fn plain(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((name, (address, after))) =
            link.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?)))
        else {
            break;
        };
        text.push_str(before);
        text.push_str(name);
        // An address on the same page says nothing here.
        if !address.starts_with('#') {
            text.push_str(&format!(" ({address})"));
        }
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_text() {
        assert_eq!(plain("see [a](b.md#c), [below](#d) or `x[1]`"), "see a (b.md#c), below or `x[1]`");
        assert_eq!(plain("[not a link"), "[not a link");
    }

    #[test]
    fn a_row_without_a_quoted_error_is_no_row() {
        let page = "## S\n| text | meaning |\n|---|---|\n| `one`, `two …` | m |\n| words | m |\n";
        let rows = rows(page);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].section, rows[0].remedy), ("S", None));
        assert_eq!(rows[0].errors().collect::<Vec<_>>(), ["one", "two …"]);
    }
}
