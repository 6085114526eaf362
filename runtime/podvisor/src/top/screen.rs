//! The page of `podvisor top` on a terminal: drawn over the previous page, and cut to the terminal's height.
//! Pure.

use console::measure_text_width;

use super::figures::PodFigures;
use crate::show::table::{self, Column};
use crate::show::{escape, units};

const COLUMNS: [Column; 8] = [
    Column::cut("NAMESPACE"),
    Column::cut("POD"),
    Column::cut("CONTAINER"),
    Column::figure("CPU"),
    Column::figure("USED"),
    Column::figure("GIVEN"),
    Column::figure("RECEIVED"),
    Column::figure("SENT"),
];

/// Clears the screen and everything on it (ECMA-48, ED).
pub(super) const CLEAR: &str = "\x1b[2J";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Returns the page's lines: the titles, and for each pod a row, with its containers below.
pub(super) fn page(pods: &[PodFigures], width: Option<usize>) -> Vec<String> {
    table::render(&COLUMNS, &pods.iter().flat_map(rows).collect::<Vec<_>>(), width)
}

fn rows(pod: &PodFigures) -> Vec<Vec<String>> {
    let unknown = || units::UNKNOWN.to_owned();
    let size = |size: Option<u64>| size.map_or_else(unknown, units::bytes);
    let cpu = |cpus: Option<f64>| cpus.map_or_else(unknown, units::percent);
    let rate = |rate: Option<f64>| rate.map_or_else(unknown, units::rate);
    let itself = vec![
        pod.namespace.clone(),
        pod.name.clone(),
        String::new(),
        cpu(pod.cpus),
        size(pod.memory_used_bytes),
        size(pod.memory_given_bytes),
        rate(pod.received_bytes_per_second),
        rate(pod.sent_bytes_per_second),
    ];
    let containers = pod.containers.iter().map(|container| {
        let (cpu, used) = (cpu(container.cpus), size(container.working_set_bytes));
        let names = [pod.namespace.clone(), pod.name.clone(), container.name.clone()];
        names.into_iter().chain([cpu, used]).chain([const { String::new() }; 3]).collect()
    });
    std::iter::once(itself).chain(containers).collect()
}

/// Returns the text to draw the page on a terminal of this size, with an optional note above it. If there are
/// too many lines, the last one has the number of missing ones.
pub(super) fn drawn(lines: &[String], note: Option<&str>, (columns, rows): (u16, u16)) -> String {
    let columns = usize::from(columns);
    // The cursor stands below the last line.
    let room = usize::from(rows).saturating_sub(1).max(1);
    let note = note.map(|note| format!("podvisor: {}", escape::line(note)));
    let mut shown: Vec<String> = note.into_iter().chain(lines.iter().cloned()).collect();
    if shown.len() > room {
        let more = shown.len() - (room - 1);
        shown.truncate(room - 1);
        shown.push(format!("({more} more lines)"));
    }
    let body: String = shown.iter().map(|line| clipped(line, columns) + CLEAR_LINE + "\n").collect();
    format!("{HOME}{body}{CLEAR_BELOW}")
}

/// The beginning of the line, as far as it fits. A line broken by the terminal would shift all others.
fn clipped(line: &str, columns: usize) -> String {
    let mut left = columns;
    let fits = |letter: &char| {
        let width = measure_text_width(letter.encode_utf8(&mut [0; 4]));
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    line.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Sample, SortBy, figures, tests::pod};
    use super::*;

    fn pods() -> Vec<PodFigures> {
        let sample = |at, cpu, traffic| Sample {
            pods: vec![pod("web", at, cpu, 96 << 20, traffic)],
            vm_memory: [("web".to_owned(), 128 << 20)].into(),
        };
        figures(Some(&sample(0, 0, 0)), &sample(1, 250, 1024), SortBy::Cpu)
    }

    #[test]
    fn a_page_has_pods_with_their_vms_and_containers_below_them() {
        let lines = page(&pods(), None);
        let words = |line: &String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines[1]), ["shop", "web", "25.0%", "96MiB", "128MiB", "2.0KiB/s", "0B/s"]);
        assert_eq!(words(&lines[2]), ["shop", "web", "app", "12.5%", "48MiB"]);
    }

    #[test]
    fn a_screen_is_filled_and_no_more_than_that() {
        let lines: Vec<String> = (0..30).map(|number| format!("line {number}")).collect();
        let screen = drawn(&lines, None, (80, 10));
        assert_eq!(screen.matches('\n').count(), 9);
        assert!(screen.contains("line 7\x1b[K\n(22 more lines)\x1b[K\n\x1b[J"), "{screen:?}");
        let whole = drawn(&lines[..3], None, (80, 10));
        assert!(whole.starts_with("\x1b[Hline 0\x1b[K\n") && !whole.contains("more"), "{whole:?}");
        assert!(drawn(&lines, None, (0, 0)).contains("\x1b[J"));
    }

    #[test]
    fn a_line_is_clipped_where_the_terminal_would_break_it() {
        let screen = drawn(&["日本語 and more".to_owned()], None, (5, 10));
        assert_eq!(screen, "\x1b[H日本\x1b[K\n\x1b[J");
    }

    #[test]
    fn a_note_stands_above_the_page_and_cannot_draw() {
        let screen = drawn(&["NAMESPACE".to_owned()], Some("the daemon\x1b[2J is gone"), (80, 10));
        assert!(
            screen.starts_with("\x1b[Hpodvisor: the daemon\\u{1b}[2J is gone\x1b[K\nNAMESPACE"),
            "{screen:?}"
        );
    }
}
