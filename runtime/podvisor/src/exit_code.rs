//! Exit codes of commands that could not be started, as shells and `docker` have them.

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Returns the code for a program that is missing or cannot be executed, as shells distinguish them; `None` for every
/// other failure.
pub(crate) fn start_failure(message: &str) -> Option<u8> {
    let message = message.to_ascii_lowercase();
    if message.contains("executable") && message.contains("not found") {
        Some(NOT_FOUND)
    } else if message.contains("permission denied") || message.contains("not executable") {
        Some(NOT_EXECUTABLE)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_is_127_and_one_that_cannot_run_126() {
        assert_eq!(start_failure("executable file `nope` not found in $PATH"), Some(127));
        assert_eq!(start_failure("exec /data: Permission denied"), Some(126));
        assert_eq!(start_failure("booting the VM: the guest panicked"), None);
    }
}
