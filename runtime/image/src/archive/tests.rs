//! Archives written by the `tar` crate and read back, and broken archives.

use proptest::prelude::*;

use super::*;

fn header(path: &str, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_path(path).unwrap();
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_uid(1);
    header.set_gid(2);
    header.set_mtime(3);
    header.set_size(size);
    header.set_cksum();
    header
}

fn archive(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    build(&mut builder);
    builder.into_inner().unwrap()
}

fn read_all(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, ArchiveError> {
    let mut archive = Archive::new(bytes);
    let mut entries = Vec::new();
    while let Some(entry) = archive.next_entry()? {
        let mut content = Vec::new();
        if entry.holes > 1 << 30 {
            return Err(archive.broken("more holes than a test waits for"));
        }
        if let Err(error) = archive.content().read_to_end(&mut content) {
            return Err(archive.broken(error.to_string()));
        }
        assert!(!archive.content_failed());
        entries.push((entry, content));
    }
    Ok(entries)
}

#[test]
fn plain_entries_are_read() {
    let bytes = archive(|builder| {
        builder.append(&header("d/", EntryType::Directory, 0), io::empty()).unwrap();
        builder.append(&header("d/f", EntryType::Regular, 5), &b"hello"[..]).unwrap();
    });
    let entries = read_all(&bytes).unwrap();
    assert_eq!(entries[0].0.kind, Kind::Directory);
    assert_eq!(entries[1].0.path, b"d/f");
    assert_eq!(entries[1].1, b"hello");
    assert_eq!((entries[1].0.mode, entries[1].0.uid, entries[1].0.gid), (0o4755, 1, 2));
    assert_eq!(entries[1].0.mtime.seconds, 3);
}

#[test]
fn a_checksum_of_signed_bytes_is_one_too() {
    let mut header = header("\u{e4}", EntryType::Regular, 0);
    let unsigned = header.cksum().unwrap();
    for (checksum, right) in [(unsigned, true), (unsigned - 2 * 256, true), (unsigned - 256, false)] {
        header.as_mut_bytes()[148..156].copy_from_slice(format!("{checksum:06o}\0 ").as_bytes());
        assert_eq!(read_all(header.as_bytes()).is_ok(), right, "{checksum}");
    }
}

#[test]
fn long_names_and_targets_are_read() {
    let (path, target) = ("p/".repeat(150) + "end", "t/".repeat(150));
    let bytes = archive(|builder| {
        builder.append_link(&mut header("x", EntryType::Symlink, 0), &path, &target).unwrap();
    });
    let entries = read_all(&bytes).unwrap();
    assert_eq!(entries[0].0.path, path.as_bytes());
    assert_eq!(entries[0].0.kind, Kind::Symlink(target.into_bytes()));
}

#[test]
fn extended_headers_apply_to_the_next_entry_only() {
    let bytes = archive(|builder| {
        let records: [(&str, &[u8]); 4] =
            [("uid", b"70000"), ("mtime", b"5.25"), ("path", b"renamed"), ("SCHILY.xattr.user.x", b"1")];
        builder.append_pax_extensions(records).unwrap();
        builder.append(&header("a", EntryType::Regular, 0), io::empty()).unwrap();
        builder.append(&header("b", EntryType::Regular, 0), io::empty()).unwrap();
    });
    let entries = read_all(&bytes).unwrap();
    let (first, second) = (&entries[0].0, &entries[1].0);
    assert_eq!((first.path.as_slice(), first.uid), (&b"renamed"[..], 70000));
    assert_eq!(first.mtime, Timestamp { seconds: 5, nanoseconds: 250_000_000 });
    assert_eq!(first.xattrs.len(), 1);
    assert_eq!((second.path.as_slice(), second.uid), (&b"b"[..], 1));
    assert!(second.xattrs.is_empty());
}

#[test]
fn empty_numbers_are_zero() {
    let mut bytes = header("a", EntryType::Regular, 0).as_bytes().to_vec();
    bytes[108..124].fill(0);
    let sum: u32 = bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte }))
        .sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let entries = read_all(&bytes).unwrap();
    assert_eq!((entries[0].0.uid, entries[0].0.gid, entries[0].0.mtime.seconds), (0, 0, 3));
}

#[test]
fn a_global_header_is_passed_over() {
    let bytes = archive(|builder| {
        let record = b"52 comment=0123456789012345678901234567890123456789\n";
        builder.append(&header("g", EntryType::XGlobalHeader, record.len() as u64), &record[..]).unwrap();
        builder.append(&header("a", EntryType::Regular, 0), io::empty()).unwrap();
    });
    assert_eq!(read_all(&bytes).unwrap().len(), 1);
}

#[test]
fn an_archive_cut_within_an_entry_says_which() {
    let mut bytes = archive(|builder| {
        builder.append(&header("big", EntryType::Regular, 2000), &[7; 2000][..]).unwrap();
    });
    bytes.truncate(1000);
    let broken = read_all(&bytes).unwrap_err();
    assert_eq!(broken.place, "in entry \"big\"");
    assert_eq!(broken.reason, "it ends 1512 bytes before the entry does");
    bytes.truncate(100);
    assert_eq!(read_all(&bytes).unwrap_err().reason, "it ends within a header");
}

#[test]
fn bytes_that_are_no_archive_are_refused() {
    let broken = read_all(&[b'x'; 1024]).unwrap_err();
    assert_eq!(
        broken,
        ArchiveError { place: "at byte 512".into(), reason: "the bytes before it are no tar header".into() }
    );
}

#[test]
fn entries_of_vendors_are_passed_over_with_what_they_hold() {
    let bytes = archive(|builder| {
        builder.append(&header("label", EntryType::new(b'V'), 0), io::empty()).unwrap();
        builder.append_pax_extensions([("path", &b"of the access list"[..])]).unwrap();
        builder.append(&header("list", EntryType::new(b'A'), 600), &[b'x'; 600][..]).unwrap();
        builder.append(&header("d", EntryType::new(b'D'), 5), &b"Yf\0\0\0"[..]).unwrap();
        builder.append(&header("d/f", EntryType::Regular, 5), &b"hello"[..]).unwrap();
    });
    let entries = read_all(&bytes).unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!((&entries[0].0.path[..], &entries[0].0.kind), (&b"d"[..], &Kind::Directory));
    assert_eq!((&entries[1].0.path[..], &entries[1].1[..]), (&b"d/f"[..], &b"hello"[..]));
}

#[test]
fn what_is_not_supported_is_named() {
    for kind in [b'M', b'N', b'!', b'z'] {
        let odd = archive(|builder| {
            builder.append(&header("o", EntryType::new(kind), 0), io::empty()).unwrap();
        });
        let expected = format!("entries of type '{}' are not supported", char::from(kind));
        assert_eq!(read_all(&odd).unwrap_err().reason, expected);
    }
}

/// Returns GNU tar's archive of a file with holes, and the file's content.
fn sparse(format: &[&str]) -> (Vec<u8>, Vec<u8>) {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("holes")).unwrap();
    file.set_len(3 << 20).unwrap();
    // More pieces than one header has room for.
    for number in 0..40_u8 {
        file.write_all_at(&[number + 1; 5000], 10_000 + u64::from(number) * 65_536).unwrap();
    }
    std::fs::write(dir.path().join("plain"), "after").unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.arg("-C").arg(dir.path()).args(["-cSf", "-"]).args(format).args(["holes", "plain"]);
    let output = tar.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.stdout, std::fs::read(dir.path().join("holes")).unwrap())
}

#[test]
fn sparse_files_of_every_form_are_read_with_their_holes() {
    for format in [
        &["--format=gnu"][..],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
    ] {
        let (bytes, content) = sparse(format);
        assert!(bytes.len() < content.len() / 2, "{format:?}");
        let entries = read_all(&bytes).unwrap();
        assert_eq!(entries.len(), 2, "{format:?}");
        assert_eq!(entries[0].0.path, b"holes", "{format:?}");
        assert!(entries[0].1 == content, "{format:?}");
        assert!(entries[0].0.holes > 2 << 20, "{format:?}");
        assert_eq!(entries[1].1, b"after", "{format:?}");
        let cut = read_all(&bytes[..bytes.len() / 2]).unwrap_err();
        assert!(cut.reason.contains("before the entry does"), "{cut:?}");
    }
}

#[test]
fn an_extended_header_without_bound_is_refused() {
    let mut bytes = header("x", EntryType::XHeader, 1 << 40).as_bytes().to_vec();
    bytes.extend_from_slice(&[b'x'; 4096]);
    assert!(read_all(&bytes).unwrap_err().reason.contains("extended header of 1099511627776 bytes"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 512..2048), kind in any::<u8>()) {
        bytes[156] = kind;
        let sum: u32 = bytes[..512].iter().enumerate()
            .map(|(at, byte)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte })).sum();
        bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let _ = read_all(&bytes);
    }
}
