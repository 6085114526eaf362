//! Brings the guest's processors online or offline. The first is always online.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::fair_server;

/// The kernel's directory of processors.
const DIRECTORY: &str = "/sys/devices/system/cpu";

/// Held during a change, to serialize changes.
static CHANGING: Mutex<()> = Mutex::new(());

/// A failure to switch a processor.
#[derive(Debug, thiserror::Error)]
#[error("processor {number} cannot be brought {}", if *.online { "up" } else { "down" })]
pub(crate) struct ProcessorError {
    number: u32,
    online: bool,
    source: io::Error,
}

/// Brings processors up or down until `wanted` are online, or all if there are fewer. Returns the number of
/// online processors. The kernel takes milliseconds for each.
pub(crate) fn set_online(wanted: u32) -> Result<u32, ProcessorError> {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let online = set_online_in(Path::new(DIRECTORY), wanted.max(1))?;
    fair_server::stretch(online);
    Ok(online)
}

fn set_online_in(directory: &Path, wanted: u32) -> Result<u32, ProcessorError> {
    // The first has no file, because it is always online.
    let mut count = 1;
    for (number, file) in processors(directory) {
        let online = count < wanted;
        let text = if online { "1" } else { "0" };
        if fs::read_to_string(&file).is_ok_and(|state| state.trim() != text) {
            fs::write(&file, text).map_err(|source| ProcessorError { number, online, source })?;
        }
        count += u32::from(online);
    }
    Ok(count)
}

/// The switchable processors by number, with their files.
fn processors(directory: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()?;
            let file = entry.path().join("online");
            (number > 0 && file.exists()).then_some((number, file))
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(directory: &Path) -> String {
        (1..12).map(|n| fs::read_to_string(directory.join(format!("cpu{n}/online"))).unwrap()).collect()
    }

    #[test]
    fn the_first_ones_are_online_and_the_others_are_not() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..12 {
            fs::create_dir(directory.path().join(format!("cpu{number}"))).unwrap();
        }
        fs::create_dir(directory.path().join("cpufreq")).unwrap();
        for number in 1..12 {
            fs::write(directory.path().join(format!("cpu{number}/online")), "0").unwrap();
        }
        assert_eq!(set_online_in(directory.path(), 4).unwrap(), 4);
        assert_eq!(states(directory.path()), "11100000000");
        assert_eq!(set_online_in(directory.path(), 12).unwrap(), 12);
        assert_eq!(set_online_in(directory.path(), 99).unwrap(), 12);
        assert_eq!(set_online_in(directory.path(), 1).unwrap(), 1);
        assert_eq!(states(directory.path()), "00000000000");
    }
}
