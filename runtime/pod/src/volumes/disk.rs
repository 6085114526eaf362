//! Volumes on the node's disk, as made by the kubelet: a plain directory for an empty-dir volume (kubelet
//! `pkg/volume/emptydir/empty_dir.go`). The guest keeps its files in a disk of its own. The disk's image is a
//! sparse file in this directory: the kubelet counts the space used by the files, and the image goes with the
//! directory.
//!
//! A pod with shared volumes could write into the directory, so nothing there is trusted: links are not
//! followed, and the image's content is for a guest alone.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runtime_fail_points::{Point, pass};
use runtime_spec::{FileAccess, KubeletPath, VolumePlugin};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstatvfs, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::part::{self, VolumePart, access};
use crate::host::disk_image::DiskTemplate;

/// The disk's image in the volume's directory.
pub(crate) const IMAGE: &str = "podvisor-volume.ext4";
/// The image while it is made.
const NEW_IMAGE: &str = "podvisor-volume.ext4.new";

/// Most bytes of a disk, the limit for growing the template in place. A disk is as large as its file system.
const BYTES_MAX: u64 = 1 << 40;

/// A volume on the node's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskFound {
    /// The volume's directory.
    pub(crate) directory: PathBuf,
    pub(crate) access: FileAccess,
    pub(crate) content: DiskContent,
    /// The requested part; `None` for the whole volume.
    pub(crate) part: Option<VolumePart>,
}

/// Content of a volume's directory on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskContent {
    /// Nothing but directories made by the kubelet for sub paths.
    Nothing,
    /// The image of a disk with the volume's files.
    Image,
    /// The volume's files.
    Files,
}

/// Why a volume's disk cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskVolumeError {
    /// It is in use by a running VM, possibly one of another pod.
    #[error("{} is in use by another VM", .0.display())]
    InUse(PathBuf),
    #[error("{} is no disk made for the volume", .0.display())]
    Foreign(PathBuf),
    #[error("cannot make or open {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Finds the kubelet's disk volume at this path, if there is one.
///
/// # Errors
/// The kernel refused.
pub(crate) fn find(path: &KubeletPath) -> io::Result<Option<DiskFound>> {
    let Some(directory) = path.directory(VolumePlugin::EmptyDir) else { return Ok(None) };
    let Some((opened, root)) = part::open(&directory)? else { return Ok(None) };
    // Memory and huge pages are mounted.
    if part::is_mount(&root) {
        return Ok(None);
    }
    let part = match path.sub_path() {
        None => None,
        Some(place) => match part::find(place, &opened, &root)? {
            None => return Ok(None),
            part => part,
        },
    };
    let content = content(&directory)?;
    Ok(Some(DiskFound { directory, access: access(&root), content, part }))
}

fn content(directory: &Path) -> io::Result<DiskContent> {
    if fs::symlink_metadata(directory.join(IMAGE)).is_ok_and(|found| found.is_file()) {
        return Ok(DiskContent::Image);
    }
    let holds_files = part::holds_files(directory, &[NEW_IMAGE])?;
    Ok(if holds_files { DiskContent::Files } else { DiskContent::Nothing })
}

/// Opens the disk of the volume in this directory for a VM, and makes it if there is none. It cannot be
/// opened again until all its descriptors are closed.
///
/// # Errors
/// The disk is in use, the file is no disk, or the kernel refused.
pub(crate) fn open(directory: &Path, template: &DiskTemplate) -> Result<File, DiskVolumeError> {
    let path = directory.join(IMAGE);
    let failed = |source| DiskVolumeError::Io { path: path.clone(), source };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, directory, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let image = match open_at(&opened) {
        Err(Errno::NOENT) => make(&opened, template).map_err(failed)?,
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(DiskVolumeError::Foreign(path)),
        image => image.map_err(|errno| failed(errno.into()))?,
    };
    let found = image.metadata().map_err(failed)?;
    if !found.is_file() || found.nlink() != 1 || found.len() == 0 || found.len() % 4096 != 0 {
        return Err(DiskVolumeError::Foreign(path));
    }
    match flock(&image, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(image),
        Err(Errno::WOULDBLOCK) => Err(DiskVolumeError::InUse(path)),
        Err(errno) => Err(failed(errno.into())),
    }
}

fn open_at(directory: &OwnedFd) -> rustix::io::Result<File> {
    // A pipe in its place is not waited for.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(directory, IMAGE, flags, Mode::empty()).map(File::from)
}

/// Makes the image. It gets its name only once it is complete and on the disk.
fn make(directory: &OwnedFd, template: &DiskTemplate) -> io::Result<File> {
    let template = template.open()?;
    pass(Point::VolumeDiskMake)?;
    // Left by a killed attempt.
    match unlinkat(directory, NEW_IMAGE, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let image = File::from(openat(directory, NEW_IMAGE, flags, Mode::RUSR | Mode::WUSR)?);
    let on = fstatvfs(directory)?;
    template.fill(&image, on.f_blocks.saturating_mul(on.f_frsize).min(BYTES_MAX))?;
    image.sync_all()?;
    pass(Point::VolumeDiskRename)?;
    renameat(directory, NEW_IMAGE, directory, IMAGE)?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, symlink};

    use super::*;
    use crate::installed::InstalledFile;

    struct Volume {
        _dir: tempfile::TempDir,
        template: DiskTemplate,
        directory: PathBuf,
    }

    fn volume() -> Volume {
        let dir = tempfile::tempdir().unwrap();
        let template = dir.path().join("template");
        fs::write(&template, [7; 8192]).unwrap();
        let template = InstalledFile::from(template).into();
        let directory = dir.path().join("pods/u/volumes/kubernetes.io~empty-dir/data");
        fs::create_dir_all(&directory).unwrap();
        Volume { _dir: dir, template, directory }
    }

    fn found(volume: &Volume) -> DiskFound {
        let path = KubeletPath::of("u", volume.directory.to_str().unwrap()).unwrap();
        find(&path).unwrap().unwrap()
    }

    #[test]
    fn an_empty_directory_becomes_a_disk_with_the_templates_content_and_stays_one() {
        let volume = volume();
        assert_eq!(found(&volume).content, DiskContent::Nothing);
        // A leftover of a killed attempt.
        fs::write(volume.directory.join(NEW_IMAGE), "half").unwrap();
        assert_eq!(found(&volume).content, DiskContent::Nothing);
        let image = open(&volume.directory, &volume.template).unwrap();
        assert_eq!(found(&volume).content, DiskContent::Image);
        let mut first = [0; 8192];
        image.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(first, [7; 8192]);
        let metadata = image.metadata().unwrap();
        assert!(metadata.len() >= 8192 && metadata.mode() & 0o077 == 0);
        image.write_all_at(b"files", 4096).unwrap();
        drop(image);
        let again = open(&volume.directory, &volume.template).unwrap();
        let mut files = [0; 5];
        again.read_exact_at(&mut files, 4096).unwrap();
        assert_eq!(&files, b"files");
        let names: Vec<_> =
            fs::read_dir(&volume.directory).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(names, [IMAGE]);
    }

    #[test]
    fn a_disk_that_a_vm_has_is_refused_until_that_vm_is_gone() {
        let volume = volume();
        let image = open(&volume.directory, &volume.template).unwrap();
        let of_vm = image.try_clone().unwrap();
        drop(image);
        let error = open(&volume.directory, &volume.template).unwrap_err();
        assert!(matches!(error, DiskVolumeError::InUse(_)), "{error}");
        drop(of_vm);
        open(&volume.directory, &volume.template).unwrap();
    }

    #[test]
    fn what_was_put_in_the_disks_place_is_refused_and_stays_as_it_is() {
        let secret = tempfile::NamedTempFile::new().unwrap();
        fs::write(secret.path(), [1; 4096]).unwrap();
        type Put = fn(&Path, &Path);
        let puts: [Put; 5] = [
            |image, secret| symlink(secret, image).unwrap(),
            |image, secret| fs::hard_link(secret, image).unwrap(),
            |image, _| fs::create_dir(image).unwrap(),
            |image, _| rustix::fs::mknodat(CWD, image, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap(),
            |image, _| fs::write(image, "short").unwrap(),
        ];
        for put in puts {
            let volume = volume();
            put(&volume.directory.join(IMAGE), secret.path());
            let error = open(&volume.directory, &volume.template).unwrap_err();
            assert!(!matches!(error, DiskVolumeError::InUse(_)), "{error}");
        }
        assert_eq!(fs::read(secret.path()).unwrap(), [1; 4096]);
    }

    #[test]
    fn a_volume_with_files_is_known_and_one_that_is_mounted_is_none_on_disk() {
        let volume = volume();
        fs::create_dir_all(volume.directory.join("sub/path")).unwrap();
        assert_eq!(found(&volume).content, DiskContent::Nothing);
        fs::write(volume.directory.join("sub/file"), "").unwrap();
        assert_eq!(found(&volume).content, DiskContent::Files);
        assert_eq!(found(&volume).access.mode & 0o7777, found(&volume).access.mode);
        let gone = KubeletPath::of("u", "/none/pods/u/volumes/kubernetes.io~empty-dir/x").unwrap();
        assert_eq!(find(&gone).unwrap(), None);
    }
}
