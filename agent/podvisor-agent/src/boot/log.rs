//! The agent's log, on standard error, the guest's console. Each byte on the serial port is an exit to the
//! VMM, so only warnings and errors are logged. `podvisor.log=` on the kernel's command line selects another
//! level.

use tracing::Level;

const PARAMETER: &str = "podvisor.log=";

pub(super) fn run() {
    let command_line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let log = tracing_subscriber::fmt()
        .with_max_level(level(&command_line))
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(std::io::stderr);
    // Only this function sets the logger, so it succeeds.
    let _ = log.try_init();
}

fn level(command_line: &str) -> Level {
    command_line
        .split_whitespace()
        .filter_map(|word| word.strip_prefix(PARAMETER))
        .filter_map(|level| level.parse().ok())
        .next_back()
        .unwrap_or(Level::WARN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_unless_the_command_line_says_more() {
        assert_eq!(level("quiet root=/dev/pmem0"), Level::WARN);
        assert_eq!(level("quiet podvisor.log=debug ro"), Level::DEBUG);
        assert_eq!(level("podvisor.log=nonsense"), Level::WARN);
    }
}
