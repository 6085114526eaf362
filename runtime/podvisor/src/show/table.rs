//! Tables for people: aligned columns, cells without control characters, and the terminal's width, if there
//! is one. Pure.

use console::measure_text_width;

use super::escape;

/// Columns between two cells.
const GAP: usize = 2;

/// Smallest width of a cut column.
const WIDTH_MIN: usize = 8;

/// Replaces the cut part of a cell.
const CUT: char = '…';

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    is_figure: bool,
    is_cut: bool,
}

impl Column {
    /// A column of texts, never cut.
    pub(crate) const fn whole(title: &'static str) -> Column {
        Column { title, is_figure: false, is_cut: false }
    }

    /// A column of texts, cut in their middle if the terminal is too narrow.
    pub(crate) const fn cut(title: &'static str) -> Column {
        Column { title, is_figure: false, is_cut: true }
    }

    /// A column of numbers, right-aligned.
    pub(crate) const fn figure(title: &'static str) -> Column {
        Column { title, is_figure: true, is_cut: false }
    }
}

/// Returns the table's lines, the titles first. With a `width`, the widest columns of those that may be cut
/// are narrowed until the table fits or all have their smallest width.
pub(crate) fn render(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let titles = columns.iter().map(|column| column.title.to_owned()).collect();
    let shown = |row: &Vec<String>| row.iter().map(|cell| escape::line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(rows.iter().map(shown)).collect();
    let widest =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| measure_text_width(cell)).max();
    let mut widths: Vec<usize> = (0..columns.len()).map(|at| widest(at).unwrap_or(0)).collect();
    if let Some(width) = width {
        fit(&mut widths, columns, width);
    }
    rows.iter().map(|row| line(columns, &widths, row)).collect()
}

fn fit(widths: &mut [usize], columns: &[Column], width: usize) {
    let gaps = GAP * columns.len().saturating_sub(1);
    let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    while over > 0 {
        let cut =
            widths.iter_mut().zip(columns).filter(|(width, column)| column.is_cut && **width > WIDTH_MIN);
        let Some((widest, _)) = cut.max_by_key(|(width, _)| **width) else { return };
        *widest -= 1;
        over -= 1;
    }
}

fn line(columns: &[Column], widths: &[usize], row: &[String]) -> String {
    let mut line = String::new();
    for ((column, &width), cell) in columns.iter().zip(widths).zip(row) {
        let cell = shortened(cell, width);
        let pad = " ".repeat(width.saturating_sub(measure_text_width(&cell)));
        if column.is_figure {
            line.extend([&pad, cell.as_str()]);
        } else {
            line.extend([cell.as_str(), &pad]);
        }
        line.push_str(&" ".repeat(GAP));
    }
    line.truncate(line.trim_end().len());
    line
}

/// Cuts out of the middle: an image's tag is at its end, and a registry at its beginning.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if measure_text_width(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let tail = within(text.chars().rev(), room / 2);
    let head = within(text.chars(), room - room / 2);
    head.into_iter().chain([CUT]).chain(tail.into_iter().rev()).collect()
}

/// The first letters, as far as they fit.
fn within(letters: impl Iterator<Item = char>, room: usize) -> Vec<char> {
    let mut left = room;
    let fits = |letter: &char| {
        let width = measure_text_width(letter.encode_utf8(&mut [0; 4]));
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    letters.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [Column::whole("ID"), Column::figure("SIZE"), Column::cut("IMAGE")];

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        vec![row(["a", "10", "registry.example.org/team/shop:v1"]), row(["bcd", "5", "x"])]
    }

    #[test]
    fn columns_are_in_line_and_lines_end_with_their_last_letter() {
        let lines = render(&COLUMNS, &rows(), None);
        assert_eq!(
            lines,
            ["ID   SIZE  IMAGE", "a      10  registry.example.org/team/shop:v1", "bcd     5  x",]
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_what_may_be_cut_and_keeps_its_end() {
        let lines = render(&COLUMNS, &rows(), Some(30));
        assert_eq!(lines[1], "a      10  registry.…m/shop:v1");
        assert!(lines.iter().all(|line| measure_text_width(line) <= 30));
        // Too narrow for anything: cut to a useful minimum.
        let lines = render(&COLUMNS, &rows(), Some(1));
        assert_eq!(lines[1], "a      10  regi…:v1");
    }

    #[test]
    fn the_widest_column_is_cut_first() {
        let columns = [Column::cut("A"), Column::cut("B")];
        let lines = render(&columns, &[vec!["a".repeat(10), "b".repeat(30)]], Some(32));
        assert!(lines[1].starts_with(&"a".repeat(10)) && measure_text_width(&lines[1]) == 32, "{lines:?}");
    }

    #[test]
    fn no_control_character_of_a_cell_gets_into_a_line() {
        let row = vec!["\x1b]0;x\x07".to_owned(), "1\n2".to_owned(), "\u{9b}2J".to_owned()];
        let lines = render(&COLUMNS, &[row], Some(20));
        assert!(lines.iter().all(|line| !line.contains(escape::is_harmful)), "{lines:?}");
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn letters_of_two_columns_count_as_two() {
        assert_eq!(shortened("日本語日本語", 6), "日…語");
        assert_eq!(shortened("日本", 4), "日本");
        let lines =
            render(&[Column::whole("A"), Column::whole("B")], &[vec!["日本".into(), "b".into()]], None);
        assert_eq!(lines, ["A     B", "日本  b"]);
    }

    #[test]
    fn a_table_without_rows_has_its_titles() {
        assert_eq!(render(&COLUMNS, &[], Some(80)), ["ID  SIZE  IMAGE"]);
    }
}
