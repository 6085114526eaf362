//! Units of systemd for one job on the node. The job is a child of systemd, not of the container: it has the
//! node's devices, and goes on if the container is killed.

use std::path::{Path, PathBuf};

use crate::host::{CallError, Host};
use crate::root::{HostRoot, RootError};

/// Bytes read of a job's output.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// A unit by its name, and the file on the node for its output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortUnit {
    pub(crate) name: &'static str,
    pub(crate) log: &'static str,
}

impl ShortUnit {
    /// Runs the commands, given as lines of a unit's `[Service]`. Returns the outcome and the output.
    pub(crate) fn run(
        self,
        root: &HostRoot,
        host: &dyn Host,
        commands: &str,
    ) -> Result<(Result<(), CallError>, String), RootError> {
        let text = format!(
            "[Unit]\nDescription=Podvisor's installation\n\n\
             [Service]\nType=oneshot\nStandardOutput=append:{}\nStandardError=inherit\n{commands}",
            self.log
        );
        root.remove(Path::new(self.log))?;
        root.write(&self.path(), &text)?;
        let outcome = host
            .run("systemctl", &["daemon-reload"])
            .and_then(|_| host.run("systemctl", &["start", self.name]));
        let said = root.read(Path::new(self.log), LOG_BYTES_MAX)?.unwrap_or_default();
        self.remove(root)?;
        Ok((outcome.map(drop), said))
    }

    /// Removes the leftovers of an interrupted run.
    pub(crate) fn remove(self, root: &HostRoot) -> Result<(), RootError> {
        root.remove(&self.path())?;
        root.remove(Path::new(self.log))?;
        Ok(())
    }

    /// The unit's path, in systemd's directory for units that do not survive a reboot.
    fn path(self) -> PathBuf {
        Path::new("/run/systemd/system").join(self.name)
    }
}
