//! Unpacks a container's archive below a directory of this host. The archive may be hostile: nothing is
//! written under another name than the one asked for, and never through a link. Special permissions, owners
//! and devices are not taken over.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use runtime_image::archive::{Archive, ArchiveError, Entry, Kind};

use crate::show::{escape, out};

/// Permissions of files that are taken over.
const MODE: u16 = 0o777;

/// Permissions that each new directory has, so that its files can be written.
const DIRECTORY_MODE: u16 = 0o700;

/// Where an archive's files go.
#[derive(Debug)]
pub(super) struct Target<'a> {
    /// An existing directory.
    pub(super) into: &'a Path,
    /// The only name at the archive's top. With `.`, all names are taken.
    pub(super) name: &'a str,
    /// Another name for the archive's only file.
    pub(super) rename: Option<&'a str>,
}

/// Unpacks the archive to its end. Blocks.
///
/// # Errors
/// The archive is broken or has other files than those asked for, or a file cannot be written. Files unpacked
/// before stay.
pub(super) fn unpack(source: impl Read, target: &Target<'_>) -> anyhow::Result<()> {
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open(target.into, directory, Mode::empty()).with_context(|| shown(target.into.as_os_str()))?;
    let mut archive = Archive::new(source);
    while let Some(mut entry) = archive.next_entry().map_err(broken)? {
        let path = std::mem::take(&mut entry.path);
        let path = target.path(&path)?;
        // The directory itself, for all names.
        let Some((name, parents)) = path.split_last() else { continue };
        ensure!(
            target.rename.is_none() || entry.kind != Kind::Directory,
            "the container sent a directory in place of the file"
        );
        let place = Place { root: root.as_fd(), parents, name: OsStr::from_bytes(name) };
        place
            .make(entry, target, &mut archive)
            .with_context(|| shown(OsStr::from_bytes(&path.join(&b'/'))))?;
    }
    // The sender would find a closed pipe otherwise.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

impl Target<'_> {
    /// The parts of an entry's path below the directory.
    fn path<'p>(&'p self, path: &'p [u8]) -> anyhow::Result<Vec<&'p [u8]>> {
        let unwanted = |why| anyhow!("the container sent {}, and {why}", shown(OsStr::from_bytes(path)));
        let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let mut parts: Vec<&[u8]> = parts.collect();
        if path.starts_with(b"/") || parts.contains(&&b".."[..]) {
            return Err(unwanted("this path leads out of the directory"));
        }
        if self.name != "." && parts.first() != Some(&self.name.as_bytes()) {
            return Err(unwanted("this was not asked for"));
        }
        if let Some(rename) = self.rename {
            ensure!(parts.len() == 1, unwanted("one file was asked for"));
            parts[0] = rename.as_bytes();
        }
        Ok(parts)
    }
}

/// A name in a directory below the root.
struct Place<'a> {
    root: BorrowedFd<'a>,
    parents: &'a [&'a [u8]],
    name: &'a OsStr,
}

impl Place<'_> {
    fn make<R: Read>(
        &self,
        entry: Entry,
        target: &Target<'_>,
        archive: &mut Archive<R>,
    ) -> anyhow::Result<()> {
        let directory = below(self.root, self.parents)?;
        match entry.kind {
            Kind::Directory => {
                let made = below(directory.as_fd(), &[self.name.as_bytes()])?;
                let mode = Mode::from_bits_truncate(u32::from(entry.mode & MODE | DIRECTORY_MODE));
                // O_PATH has no fchmod.
                let made = openat(made, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())?;
                fchmod(made, mode)?;
            }
            Kind::File => {
                self.clear(&directory)?;
                let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
                let mut file =
                    File::from(openat(&directory, self.name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
                io::copy(&mut archive.content(), &mut file)?;
                fchmod(&file, Mode::from_bits_truncate(u32::from(entry.mode & MODE)))?;
                if let Ok(seconds) = u64::try_from(entry.mtime.seconds) {
                    let _ = file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
                }
            }
            Kind::Symlink(to) => {
                self.clear(&directory)?;
                symlinkat(OsStr::from_bytes(&to), &directory, self.name)?;
            }
            Kind::HardLink(to) => {
                let to = target.path(&to)?;
                let Some((name, parents)) = to.split_last() else { bail!("it is a link to the directory") };
                let other = below(self.root, parents)?;
                self.clear(&directory)?;
                linkat(&other, OsStr::from_bytes(name), &directory, self.name, AtFlags::empty())?;
            }
            Kind::CharDevice(_) | Kind::BlockDevice(_) | Kind::Fifo => {
                out::complain(format_args!("a pipe or device is not copied: {}", shown(self.name)));
            }
        }
        Ok(())
    }

    /// Removes a file or a link with this name. A directory is an error.
    fn clear(&self, directory: &OwnedFd) -> anyhow::Result<()> {
        match unlinkat(directory, self.name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(Errno::EISDIR) => bail!("here it is a directory, and in the container it is a file"),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens a directory below `root`, and makes those that are missing. Follows no link.
fn below(root: BorrowedFd<'_>, parts: &[&[u8]]) -> anyhow::Result<OwnedFd> {
    let mut directory = root.try_clone_to_owned()?;
    for part in parts {
        let name = OsStr::from_bytes(part);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let open = || openat(&directory, name, flags, Mode::empty());
        let opened = match open() {
            Err(Errno::ENOENT) => {
                mkdirat(&directory, name, Mode::from_bits_truncate(0o755))?;
                open()
            }
            other => other,
        };
        directory = opened.map_err(|error| match error {
            Errno::ENOTDIR | Errno::ELOOP => {
                anyhow!("{} here is a link or a file, no directory", shown(name))
            }
            error => error.into(),
        })?;
    }
    Ok(directory)
}

fn shown(name: &OsStr) -> String {
    escape::line(&name.to_string_lossy()).into_owned()
}

/// For `map_err`, because it passes the error by value.
#[expect(clippy::needless_pass_by_value, reason = "map_err gives the error away")]
fn broken(error: ArchiveError) -> anyhow::Error {
    anyhow!("the container's archive is broken {}: {}", error.place, error.reason)
}

#[cfg(test)]
mod tests;
