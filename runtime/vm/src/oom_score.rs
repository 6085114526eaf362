//! The host kernel's preference to kill a VMM when memory is short: the `oom_score_adj` of its processes
//! (proc_pid_oom_score_adj(5)). The daemon sets it, because the VMM's jail does not let it open the file.

use std::fs;
use std::io::Write;

use crate::VmError;
use crate::process::has_ended;
use crate::share_process::shares_of;

/// Sets the score of a VMM and its share, -1000 to 1000. An ended process is no error.
pub(crate) fn set(pid: u32, score: i32) -> Result<(), VmError> {
    set_one(pid, score)?;
    // After the VMM: a share that it starts from here on has the score already.
    shares_of(pid).into_iter().try_for_each(|share| set_one(share, score))
}

fn set_one(pid: u32, score: i32) -> Result<(), VmError> {
    let opened = fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/oom_score_adj"));
    let written = opened.and_then(|mut file| file.write_all(score.to_string().as_bytes()));
    match written {
        Err(error) if has_ended(&error) => Ok(()),
        other => other.map_err(|source| VmError::OomScore { pid, score, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_score_that_was_set_and_one_that_is_gone_is_no_error() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        // A higher score than the present one, because raising it takes no privilege.
        set(child.id(), 987).unwrap();
        let score = fs::read_to_string(format!("/proc/{}/oom_score_adj", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(score, "987\n");
        set(5_000_000, 0).unwrap();
        let error = set(std::process::id(), 1001).unwrap_err();
        assert!(error.to_string().contains("1001"), "{error}");
    }
}
