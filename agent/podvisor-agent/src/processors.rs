//! Brings the guest's processors online or offline. The first is always online.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::fair_server;

/// The kernel's directory of processors.
const DIRECTORY: &str = "/sys/devices/system/cpu";

/// Held during a change, to serialize changes.
static CHANGING: Mutex<()> = Mutex::new(());

/// How long a container's start waits for processors still coming up.
const AWAITED: Duration = Duration::from_secs(5);

/// Whether the pod's processors are up as configured.
#[derive(Debug)]
pub(crate) struct BringUp(watch::Sender<bool>);

impl Default for BringUp {
    fn default() -> Self {
        BringUp(watch::Sender::new(true))
    }
}

impl BringUp {
    pub(crate) fn begin(&self) {
        self.0.send_replace(false);
    }

    pub(crate) fn end(&self) {
        self.0.send_replace(true);
    }

    /// Waits for the processors. Programs count them once, at their start, and keep so many threads. On a
    /// node too busy for that, a program starts with those there are.
    pub(crate) async fn wait(&self) {
        let mut up = self.0.subscribe();
        if timeout(AWAITED, up.wait_for(|up| *up)).await.is_err() {
            tracing::warn!("a container starts before the pod's processors are all up");
        }
    }
}

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

/// Switches each processor, and those that fail once more at the end: on a busy node a processor may answer
/// too late. A failure keeps no other processor off.
fn set_online_in(directory: &Path, wanted: u32) -> Result<u32, ProcessorError> {
    // The first has no file, because it is always online.
    let mut count = 1;
    let mut failed = Vec::new();
    for (number, file) in processors(directory) {
        let online = count < wanted;
        if switch(&file, online).is_err() {
            failed.push((number, file, online));
        }
        count += u32::from(online);
    }
    for (number, file, online) in failed {
        switch(&file, online).map_err(|source| ProcessorError { number, online, source })?;
    }
    Ok(count)
}

fn switch(file: &Path, online: bool) -> io::Result<()> {
    let text = if online { "1" } else { "0" };
    if fs::read_to_string(file).is_ok_and(|state| state.trim() == text) {
        Ok(())
    } else {
        fs::write(file, text)
    }
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

    #[tokio::test(start_paused = true)]
    async fn a_start_waits_for_the_processors_and_not_for_ever() {
        let bring_up = BringUp::default();
        bring_up.wait().await;
        bring_up.begin();
        let waiting = bring_up.wait();
        tokio::pin!(waiting);
        assert!(timeout(AWAITED / 2, &mut waiting).await.is_err());
        bring_up.end();
        timeout(Duration::ZERO, waiting).await.unwrap();
        bring_up.begin();
        timeout(AWAITED * 2, bring_up.wait()).await.unwrap();
    }

    #[test]
    fn a_processor_that_fails_keeps_no_other_one_off() {
        let directory = tempfile::tempdir().unwrap();
        for number in 1..12 {
            fs::create_dir(directory.path().join(format!("cpu{number}"))).unwrap();
            if number != 3 {
                fs::write(directory.path().join(format!("cpu{number}/online")), "0").unwrap();
            }
        }
        fs::create_dir(directory.path().join("cpu3/online")).unwrap();
        let error = set_online_in(directory.path(), 6).unwrap_err();
        assert_eq!(error.to_string(), "processor 3 cannot be brought up");
        let state = |n: u32| fs::read_to_string(directory.path().join(format!("cpu{n}/online"))).unwrap();
        assert_eq!([1, 2, 4, 5, 6].map(state).concat(), "11110");
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
