//! Signal names, as spelled by images and CRI.

use crate::SpecError;

/// A Linux signal number, 1..=64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub u8);

impl Signal {
    /// Asks the program to end.
    pub const TERM: Signal = Signal(15);
    /// Ends the program without asking.
    pub const KILL: Signal = Signal(9);
}

/// Numbers 1..=31 in order (signal(7), x86).
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// First real-time signal visible to programs. The C library keeps 32 and 33 for itself.
const RTMIN: u8 = 34;
/// The last one.
const RTMAX: u8 = 64;

/// Reads `SIGTERM`, `term`, `15`, `SIGRTMIN+3`, `RTMAX-1`.
pub fn parse_signal(text: &str) -> Result<Signal, SpecError> {
    let unknown = || SpecError::invalid("stop_signal", format!("{text:?} is no signal"));
    let upper = text.trim().to_ascii_uppercase();
    if let Ok(number) = upper.parse::<u8>() {
        return if (1..=RTMAX).contains(&number) { Ok(Signal(number)) } else { Err(unknown()) };
    }
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = match name {
        "IOT" => Some(6),
        "CLD" => Some(17),
        "POLL" => Some(29),
        "RTMIN" => Some(RTMIN),
        "RTMAX" => Some(RTMAX),
        _ => match (name.strip_prefix("RTMIN+"), name.strip_prefix("RTMAX-")) {
            (Some(above), _) => above.parse::<u8>().ok().and_then(|n| RTMIN.checked_add(n)),
            (_, Some(below)) => below.parse::<u8>().ok().and_then(|n| RTMAX.checked_sub(n)),
            _ => NAMES.iter().position(|n| *n == name).and_then(|i| u8::try_from(i + 1).ok()),
        },
    };
    let real_time = name.starts_with("RT");
    number.filter(|n| *n <= RTMAX && (!real_time || *n >= RTMIN)).map(Signal).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read() {
        for (text, number) in [
            ("SIGTERM", 15),
            ("term", 15),
            ("15", 15),
            ("SIGQUIT", 3),
            ("SIGSYS", 31),
            ("WINCH", 28),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("SIGPOLL", 29),
        ] {
            assert_eq!(parse_signal(text), Ok(Signal(number)), "{text}");
        }
    }

    #[test]
    fn what_is_no_signal_is_refused() {
        for text in ["", "SIG", "0", "65", "SIGFOO", "RTMIN+31", "RTMAX-31", "RTMIN+-1", "-9", "RTMAX-255"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }
}
