//! Volumes as directories, and their mounts. A repeated call has the effect of one, as required by CSI.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use tonic::Status;

/// All volumes of the plugin.
#[derive(Debug, Clone)]
pub(crate) struct Volumes {
    data: PathBuf,
}

impl Volumes {
    pub(crate) fn new(data: PathBuf) -> Volumes {
        Volumes { data }
    }

    /// Mounts the volume at the target. Missing directories are made.
    ///
    /// # Errors
    /// `InvalidArgument` if the name or the path is invalid; `Internal` if the node refuses.
    pub(crate) fn publish(&self, id: &str, target: &Path, readonly: bool) -> Result<(), Status> {
        let source = self.directory(id)?;
        checked(target)?;
        for directory in [source.as_path(), target] {
            std::fs::create_dir_all(directory).map_err(|error| failed("making", directory, &error))?;
        }
        if same(&source, target)? {
            return Ok(());
        }
        mount_bind(&source, target).map_err(|error| failed("mounting", target, &error.into()))?;
        if readonly {
            let flags = MountFlags::BIND | MountFlags::RDONLY;
            mount_remount(target, flags, "").map_err(|error| failed("remounting", target, &error.into()))?;
        }
        Ok(())
    }

    /// Takes the mount at the target away, and the target.
    ///
    /// # Errors
    /// As [`Volumes::publish`].
    pub(crate) fn unpublish(&self, target: &Path) -> Result<(), Status> {
        checked(target)?;
        match unmount(target, UnmountFlags::empty()) {
            // No mount (any more), or no target.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(failed("unmounting", target, &error.into())),
        }
        match std::fs::remove_dir(target) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("removing", target, &error)),
            _ => Ok(()),
        }
    }

    /// The volume's directory. A name is one step of a path.
    fn directory(&self, id: &str) -> Result<PathBuf, Status> {
        let mut steps = Path::new(id).components();
        match (steps.next(), steps.next()) {
            (Some(Component::Normal(name)), None) if name == id => Ok(self.data.join(id)),
            _ => Err(Status::invalid_argument(format!("{id:?} is no name of a volume"))),
        }
    }
}

fn checked(target: &Path) -> Result<(), Status> {
    if target.is_absolute() {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("{} is no absolute path", target.display())))
}

/// Returns true if both are one directory, as after a bind.
fn same(source: &Path, target: &Path) -> Result<bool, Status> {
    let identity = |path: &Path| {
        let found = std::fs::metadata(path).map_err(|error| failed("looking at", path, &error))?;
        Ok::<_, Status>((found.dev(), found.ino()))
    };
    Ok(identity(source)? == identity(target)?)
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Status {
    Status::internal(format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn names_that_lead_elsewhere_and_relative_targets_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let volumes = Volumes::new(directory.path().join("data"));
        for id in ["", ".", "..", "a/b", "/a", "a/"] {
            let refused = volumes.publish(id, &directory.path().join("target"), false).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{id}");
        }
        assert_eq!(
            volumes.publish("a", Path::new("target"), false).unwrap_err().code(),
            Code::InvalidArgument
        );
        assert_eq!(volumes.unpublish(Path::new("target")).unwrap_err().code(), Code::InvalidArgument);
        assert!(!directory.path().join("data").exists());
    }

    #[test]
    fn a_volume_that_is_nowhere_is_unpublished_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let volumes = Volumes::new(directory.path().join("data"));
        volumes.unpublish(&directory.path().join("target")).unwrap();
    }
}
