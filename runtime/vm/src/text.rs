//! Texts of a VMM, cut before they reach logs, records and clients. The VMM may be in the hands of its guest.

use proto_vmm::{StopReason, StopReport};

/// Most characters kept of a VMM's release.
pub(crate) const RELEASE_CHARS_MAX: usize = 64;

/// Most characters kept of a refusal, or of the reason of a VM's end. A VMM's own texts are a line.
pub(crate) const LINE_CHARS_MAX: usize = 4096;

/// Most bytes kept of the console in a stop report. A VMM sends no more (`proto-vmm`).
pub(crate) const CONSOLE_BYTES_MAX: usize = 8 << 10;

/// Most bytes kept of an instruction. The longest one has 15.
const INSTRUCTION_BYTES_MAX: usize = 16;

/// Returns the text without control characters, cut to `chars_max` characters.
pub(crate) fn printable(text: &str, chars_max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(chars_max).collect()
}

/// Returns the report with short texts, and the end of its console. Lines and tabs stay in the console.
pub(crate) fn bounded(report: StopReport) -> StopReport {
    let reason = match report.reason {
        StopReason::GuestPanic { message } => {
            StopReason::GuestPanic { message: printable(&message, LINE_CHARS_MAX) }
        }
        StopReason::Vmm { message } => StopReason::Vmm { message: printable(&message, LINE_CHARS_MAX) },
        StopReason::InternalError { suberror, mut instruction } => {
            instruction.truncate(INSTRUCTION_BYTES_MAX);
            StopReason::InternalError { suberror, instruction }
        }
        reason => reason,
    };
    let is_shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    let mut console: String = report.console.chars().filter(is_shown).collect();
    let begin = console.len().saturating_sub(CONSOLE_BYTES_MAX);
    console.drain(..console.ceil_char_boundary(begin));
    StopReport { reason, console, ..report }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_keeps_its_lines_and_the_end_of_a_long_console() {
        let report = |console: &str, instruction: usize| StopReport {
            reason: StopReason::InternalError { suberror: 1, instruction: vec![7; instruction] },
            registers: None,
            console: console.to_owned(),
            exits: Default::default(),
        };
        assert_eq!(bounded(report("a\tb\r\nc\n", 15)), report("a\tb\r\nc\n", 15));
        // Characters of two bytes, after one byte.
        let cut = bounded(report(&format!("a{}\n", "é".repeat(CONSOLE_BYTES_MAX)), 400));
        assert!(cut.console.ends_with("é\n") && cut.console.len() == CONSOLE_BYTES_MAX - 1);
        assert_eq!(cut.reason, report("", INSTRUCTION_BYTES_MAX).reason);
    }
}
