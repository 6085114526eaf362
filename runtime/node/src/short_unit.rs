//! Units of systemd that live for one piece of work on the node. The work is systemd's child and not the container's: it has the node's
//! devices, and goes on to its end where the container is killed.

use std::path::{Path, PathBuf};

use crate::host::{CallError, Host};
use crate::root::{HostRoot, RootError};

/// Output of a piece of work that is read, in bytes.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// A unit by its name, and the file on the node that its output goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortUnit {
    pub(crate) name: &'static str,
    pub(crate) log: &'static str,
}

impl ShortUnit {
    /// Runs the commands, which are lines of a unit's `[Service]`. Returns how that ended, and the output.
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

    /// Takes away what a run that was cut short has left.
    pub(crate) fn remove(self, root: &HostRoot) -> Result<(), RootError> {
        root.remove(&self.path())?;
        root.remove(Path::new(self.log))?;
        Ok(())
    }

    /// Where systemd reads units that end with the node.
    fn path(self) -> PathBuf {
        Path::new("/run/systemd/system").join(self.name)
    }
}
