//! Archives of containers that mean well, and of those that do not.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::*;

/// Writes an archive of these entries: path, kind, and content or target. Paths are not checked.
fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (path, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o6755);
        header.set_mtime(1_000_000);
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        if is_link {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        let content = if is_link { &[][..] } else { content.as_bytes() };
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, content).unwrap();
    }
    archive.into_inner().unwrap()
}

fn unpacked(dir: &TempDir, name: &str, rename: Option<&str>, archive: &[u8]) -> Result<(), String> {
    unpack(archive, &Target { into: dir.path(), name, rename }).map_err(|error| format!("{error:#}"))
}

use EntryType::{Directory, Fifo, Link, Regular, Symlink};

#[test]
fn a_tree_is_unpacked_without_special_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let tree = archive(&[
        ("./site/", Directory, ""),
        ("site/a", Regular, "text"),
        ("site/link", Symlink, "/etc/passwd"),
        ("site/hard", Link, "site/a"),
        ("site/pipe", Fifo, ""),
        ("site/new/b", Regular, "b"),
    ]);
    for _ in 0..2 {
        unpacked(&dir, "site", None, &tree).unwrap();
        let site = dir.path().join("site");
        let file = fs::metadata(site.join("a")).unwrap();
        assert_eq!((file.permissions().mode() & 0o7777, file.mtime(), file.nlink()), (0o755, 1_000_000, 2));
        assert_eq!(fs::metadata(&site).unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(fs::read_to_string(site.join("hard")).unwrap(), "text");
        assert_eq!(fs::read_link(site.join("link")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(fs::read_to_string(site.join("new/b")).unwrap(), "b");
        assert!(!site.join("pipe").exists());
    }
}

#[test]
fn one_file_gets_its_new_name() {
    let dir = tempfile::tempdir().unwrap();
    symlink("/no/such", dir.path().join("new")).unwrap();
    unpacked(&dir, "a", Some("new"), &archive(&[("a", Regular, "text")])).unwrap();
    // A link in its place is replaced, not followed.
    assert!(fs::symlink_metadata(dir.path().join("new")).unwrap().is_file());
    let refused = |entries| unpacked(&dir, "a", Some("new"), &archive(entries)).unwrap_err();
    assert!(refused(&[("a", Directory, "")]).contains("sent a directory"));
    assert!(refused(&[("a/b", Regular, "x")]).contains("one file was asked for"));
}

#[test]
fn nothing_is_written_that_was_not_asked_for() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let away = outside.path().to_str().unwrap();
    for (name, entries, expected) in [
        ("data", vec![(".bashrc", Regular, "x")], "this was not asked for"),
        ("data", vec![("data/../../x", Regular, "x")], "leads out"),
        ("data", vec![("/data/x", Regular, "x")], "leads out"),
        (".", vec![("../x", Regular, "x")], "leads out"),
        (".", vec![("l", Symlink, away), ("l/x", Regular, "x")], "is a link or a file"),
        (".", vec![("l", Symlink, away), ("l/", Directory, "")], "is a link or a file"),
        (".", vec![("h", Link, "../../../etc/passwd")], "leads out"),
        (".", vec![("l", Symlink, "/etc"), ("h", Link, "l/passwd")], "is a link or a file"),
        (".", vec![("d", Directory, ""), ("d", Regular, "x")], "here it is a directory"),
    ] {
        let error = unpacked(&dir, name, None, &archive(&entries)).unwrap_err();
        assert!(error.contains(expected), "{entries:?}: {error}");
    }
    // A file through a link to a file replaces the link.
    let target = outside.path().join("file");
    fs::write(&target, "kept").unwrap();
    let through = archive(&[("f", Symlink, target.to_str().unwrap()), ("f", Regular, "x")]);
    unpacked(&dir, ".", None, &through).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_broken_archive_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = unpacked(&dir, ".", None, &[b'?'; 1024]).unwrap_err();
    assert!(error.starts_with("the container's archive is broken at byte 512"), "{error}");
    let whole = archive(&[("a", Regular, "text")]);
    let error = unpacked(&dir, ".", None, &whole[..514]).unwrap_err();
    assert!(error.contains("it ends 2 bytes before the entry does"), "{error}");
}
