//! Listings of directories.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use super::*;

impl Guest {
    fn opendir(&mut self, node: u64) -> u64 {
        le64(&self.ask(Opcode::Opendir, node, &[0; 8]).unwrap(), 0)
    }

    /// One page of a listing from `offset` on: names, their numbers, and the offset of the next page.
    fn page(
        &mut self,
        node: u64,
        handle: u64,
        offset: u64,
        size: u32,
    ) -> Result<(Vec<(String, u64)>, u64), i32> {
        let mut body = [handle.to_le_bytes(), offset.to_le_bytes()].concat();
        body.extend(size.to_le_bytes());
        body.resize(40, 0);
        let listing = self.ask(Opcode::Readdir, node, &body)?;
        let (mut names, mut at, mut next) = (Vec::new(), 0, offset);
        while at < listing.len() {
            let length = le32(&listing, at + 16) as usize;
            let name = std::str::from_utf8(&listing[at + 24..at + 24 + length]).unwrap();
            names.push((name.to_owned(), le64(&listing, at)));
            next = le64(&listing, at + 8);
            at += (24 + length).next_multiple_of(8);
        }
        Ok((names, next))
    }

    /// All pages of a listing, without the directory itself and the one above.
    fn listed(&mut self, node: u64, handle: u64, size: u32) -> Vec<(String, u64)> {
        let (mut all, mut offset) = (Vec::new(), 0);
        loop {
            let (names, next) = self.page(node, handle, offset, size).unwrap();
            if names.is_empty() {
                all.retain(|(name, _): &(String, u64)| !matches!(name.as_str(), "." | ".."));
                return all;
            }
            all.extend(names);
            offset = next;
        }
    }
}

#[test]
fn a_listing_has_the_inode_numbers_of_stat() {
    let mut guest = Guest::new();
    symlink("nowhere", guest.dir.path().join("link")).unwrap();
    let handle = guest.opendir(ROOT);
    let mut listed = guest.listed(ROOT, handle, 4096);
    listed.sort();
    let (all, _) = guest.page(ROOT, handle, 0, 4096).unwrap();
    let number = |name: &str| fs::symlink_metadata(guest.dir.path().join(name)).unwrap().ino();
    let expected = ["file", "link", "sub"].map(|name| (name.to_owned(), number(name)));
    assert_eq!(listed, expected);
    // The one above is the host's own.
    for name in [".", ".."] {
        assert!(all.contains(&(name.to_owned(), number(""))), "{name} is not in {all:?}");
    }
}

#[test]
fn a_directory_of_many_pages_is_listed_once_and_whole() {
    let mut guest = Guest::new();
    let sub = guest.dir.path().join("sub");
    for number in 0..1000 {
        fs::write(sub.join(format!("a-file-with-a-long-name-{number}")), "").unwrap();
    }
    let node = guest.node("sub");
    let handle = guest.opendir(node);
    for size in [512, 4096] {
        let names = guest.listed(node, handle, size);
        let distinct: BTreeSet<&String> = names.iter().map(|(name, _)| name).collect();
        assert_eq!((names.len(), distinct.len()), (1000, 1000), "pages of {size} bytes");
    }
}

#[test]
fn names_that_go_meanwhile_hide_no_others() {
    let mut guest = Guest::new();
    let sub = guest.dir.path().join("sub");
    let name = |number: u32| format!("{number:04}");
    for number in 0..3000 {
        fs::write(sub.join(name(number)), "").unwrap();
    }
    fs::write(sub.join("stays"), "").unwrap();
    let node = guest.node("sub");
    let order: Vec<String> = {
        let handle = guest.opendir(node);
        guest.listed(node, handle, 4096).into_iter().map(|(name, _)| name).collect()
    };
    let removing = std::thread::spawn(move || {
        for name in order.iter().filter(|name| *name != "stays") {
            fs::remove_file(sub.join(name)).unwrap();
        }
    });
    let mut listings = 0;
    while !removing.is_finished() || listings == 0 {
        let handle = guest.opendir(node);
        let names = guest.listed(node, handle, 4096);
        assert!(names.iter().any(|(name, _)| name == "stays"), "of {} names", names.len());
        let release = [handle.to_le_bytes().to_vec(), vec![0; 16]].concat();
        guest.ask(Opcode::Releasedir, node, &release).unwrap();
        listings += 1;
    }
    removing.join().unwrap();
}

#[test]
fn names_that_cannot_be_looked_up_are_listed() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let mut guest = Guest::new();
    let sub = guest.dir.path().join("sub");
    fs::write(sub.join("one"), "").unwrap();
    fs::set_permissions(&sub, fs::Permissions::from_mode(0o744)).unwrap();
    let node = guest.node("sub");
    let handle = guest.opendir(node);
    // A user who may read the directory, and look nothing up in it.
    guest.caller = (1000, 1000);
    let names = guest.listed(node, handle, 4096);
    assert_eq!(names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["one"]);
}

#[test]
fn a_released_directory_and_one_that_was_never_opened_are_not_listed() {
    let mut guest = Guest::new();
    let handle = guest.opendir(ROOT);
    let release = [handle.to_le_bytes().to_vec(), vec![0; 16]].concat();
    guest.ask(Opcode::Releasedir, ROOT, &release).unwrap();
    assert_eq!(guest.page(ROOT, handle, 0, 4096).unwrap_err(), libc::EBADF);
    assert_eq!(guest.page(ROOT, u64::MAX, 0, 4096).unwrap_err(), libc::EBADF);
    let file = guest.node("file");
    assert_eq!(guest.ask(Opcode::Opendir, file, &[0; 8]).unwrap_err(), libc::ENOTDIR);
}
