//! How a VM ended, in words.

use proto_vmm::{StopReason, StopReport};

/// Most console lines in an error.
const LINES_MAX: usize = 20;

/// Describes the end, with the last lines of the guest's console.
pub(crate) fn describe(report: &StopReport) -> String {
    with_console(reason(&report.reason), &report.console)
}

/// The text, and the last lines of the console if it has any.
pub(crate) fn with_console(mut text: String, console: &str) -> String {
    let lines: Vec<&str> = console.lines().filter(|line| !line.trim().is_empty()).collect();
    if !lines.is_empty() {
        let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
        text += "; last lines of its console:\n";
        text += &last.join("\n");
    }
    text
}

/// Describes the reason on one line.
pub(crate) fn reason(reason: &StopReason) -> String {
    match reason {
        StopReason::Requested => "the VM was asked to end".to_owned(),
        StopReason::GuestReset => "the guest reset or powered off its VM".to_owned(),
        StopReason::GuestPanic { message } => format!("the guest kernel panicked: {message}"),
        StopReason::TripleFault => "the guest kernel crashed (triple error)".to_owned(),
        StopReason::InternalError { suberror, instruction } => {
            format!("KVM cannot run this guest (internal error {suberror}, instruction {instruction:02x?})")
        }
        StopReason::EntryFailed { hardware_reason } => {
            format!("KVM cannot enter the guest (hardware reason {hardware_reason:#x})")
        }
        StopReason::Vmm { message } => message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_carries_the_last_twenty_lines_of_the_console() {
        let console: Vec<String> = (0..50).map(|i| format!("line{i}")).collect();
        let report = StopReport {
            reason: StopReason::GuestPanic { message: "no init".into() },
            registers: None,
            console: console.join("\n"),
            exits: Default::default(),
        };
        let text = describe(&report);
        assert!(text.starts_with("the guest kernel panicked: no init; "), "{text}");
        assert_eq!(text.lines().count(), 21);
        assert!(text.contains("line30\n") && text.ends_with("line49") && !text.contains("line29\n"));
    }
}
