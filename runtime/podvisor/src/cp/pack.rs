//! Packs files of this host into a tar archive for a container. Links are packed as links. The owner is
//! root, as in Docker: users of this host mean nothing in the container.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header, HeaderMode};

use crate::show::{escape, out};

/// Bits of a file's mode in an archive.
const MODE: u32 = 0o7777;

/// Packs `source` as `name`, or the contents of the directory if the name is `.`. Blocks.
///
/// # Errors
/// A file cannot be read, or the archive cannot be written.
pub(super) fn pack(source: &Path, name: &str, to: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(to);
    // The next one is the last. A directory is packed before its files.
    let mut open = match name {
        "." => entries(source, Path::new(""))?,
        name => vec![(source.to_owned(), PathBuf::from(name))],
    };
    while let Some((path, name)) = open.pop() {
        if append(&mut archive, &path, &name).map_err(of(&path))? {
            open.append(&mut entries(&path, &name).map_err(of(&path))?);
        }
    }
    archive.finish()
}

/// Appends one file. Returns true if it is a directory.
fn append(archive: &mut Builder<impl Write>, path: &Path, name: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = metadata.file_type();
    let mut header = Header::new_gnu();
    header.set_metadata_in_mode(&metadata, HeaderMode::Complete);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(metadata.mode() & MODE);
    if kind.is_dir() {
        header.set_entry_type(EntryType::Directory);
        header.set_size(0);
        archive.append_data(&mut header, name, io::empty())?;
    } else if kind.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, name, fs::read_link(path)?)?;
    } else if kind.is_file() {
        let file = File::open(path)?;
        // The header has the length already, whatever a writer does meanwhile.
        archive.append_data(&mut header, name, file.chain(io::repeat(0)).take(metadata.len()))?;
    } else {
        let what = if kind.is_socket() { "socket" } else { "pipe or device" };
        out::complain(format_args!("a {what} is not copied: {}", escape::line(&path.to_string_lossy())));
    }
    Ok(kind.is_dir())
}

/// The files of a directory with their names in the archive, last first.
fn entries(directory: &Path, name: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let named =
        |entry: io::Result<fs::DirEntry>| entry.map(|entry| (entry.path(), name.join(entry.file_name())));
    let mut found = fs::read_dir(directory)?.map(named).collect::<io::Result<Vec<_>>>()?;
    found.sort_unstable_by(|one, other| other.cmp(one));
    Ok(found)
}

/// Names the file in an error, unless the archive cannot be written: its reader has the reason.
fn of(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| match error.kind() {
        io::ErrorKind::BrokenPipe => error,
        kind => io::Error::new(kind, format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn packed(source: &Path, name: &str) -> Vec<(String, EntryType, u32, u64)> {
        let mut bytes = Vec::new();
        pack(source, name, &mut bytes).unwrap();
        let entry = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let entry = entry.unwrap();
            let header = entry.header();
            let (mode, uid) = (header.mode().unwrap(), header.uid().unwrap());
            (entry.path().unwrap().to_str().unwrap().to_owned(), header.entry_type(), mode, uid)
        };
        tar::Archive::new(&bytes[..]).entries().unwrap().map(entry).collect()
    }

    #[test]
    fn a_tree_is_packed_in_order_under_its_name_and_belongs_to_root() {
        use EntryType::{Directory, Regular, Symlink};
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("site");
        fs::create_dir_all(root.join("b")).unwrap();
        for (name, mode) in [("a", 0o640), ("b/c", 0o4755)] {
            fs::write(root.join(name), name).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("/nowhere", root.join("link")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o750)).unwrap();
        let below = [
            ("a", Regular, 0o640),
            ("b", Directory, 0o750),
            ("b/c", Regular, 0o4755),
            ("link", Symlink, 0o777),
        ];
        let of = |prefix: &str| {
            below
                .map(|(name, kind, mode)| (format!("{prefix}{name}"), kind, mode, 0))
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(packed(&root, "."), of(""));
        assert_eq!(packed(&root, "new")[1..], of("new/"));
        assert_eq!(packed(&root.join("a"), "other"), [("other".to_owned(), Regular, 0o640, 0)]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = pack(Path::new("/no/such"), "x", io::sink()).unwrap_err().to_string();
        assert!(error.starts_with("/no/such: "), "{error}");
    }
}
