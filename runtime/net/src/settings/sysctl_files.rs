//! Reads the sysctls of a network namespace. This needs to happen on a thread inside the namespace, since the kernel shows
//! `/proc/sys/net` as the reader's namespace has it.
//!
//! A namespace is read after each plugin of its pod, and to open its files takes more than half of that: the files stay open in between,
//! as far as the process can spare the descriptors. The sysctls of an interface come and go with it, so that its directories are not listed
//! again either.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{CStr, CString},
    io,
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, openat},
    io::Errno,
};

use super::{
    rtnl::Rtnl,
    values::{Directory, Values},
};

/// Where the kernel shows sysctls.
const PROC_SYS: &str = "/proc/sys";

/// Most sysctls of a namespace that are read: a fresh one has some 600, and each interface adds about 120.
const SYSCTLS_MAX: usize = 32_768;

/// Most bytes of a value; the kernel's longest are a few hundred.
const VALUE_BYTES_MAX: usize = 4096;

/// Bytes that are asked for first, enough for nearly all values: the kernel clears as many for each read.
const VALUE_BYTES: usize = 128;

/// Directories below `net` at most; the kernel has four levels.
const DEPTH_MAX: usize = 8;

/// Sysctls that the kernel reads under its lock of networks. While another has it, it begins the call again and again until the lock is
/// free, all on the processor (`addrconf_sysctl_addr_gen_mode` and `addrconf_sysctl_stable_secret` in net/ipv6/addrconf.c).
const LOCKED: [&CStr; 2] = [c"addr_gen_mode", c"stable_secret"];

/// Most files that the process keeps open between two readings: those of two namespaces. Each program that it starts copies and
/// closes all of its descriptors.
const KEPT_MAX: usize = 1500;

/// Files that the process keeps open.
static KEPT: AtomicUsize = AtomicUsize::new(0);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// The sysctls of one namespace, with files that are open from the last reading.
#[derive(Debug)]
pub(crate) struct SysctlFiles {
    proc_sys: PathBuf,
    open: BTreeMap<String, KeptDirectory>,
}

/// The files of a directory that stay open.
#[derive(Debug, Default)]
struct KeptDirectory {
    files: VecDeque<KeptFile>,
    /// All that was read there has its file here, and there are no directories.
    whole: bool,
}

/// A file that stays open, one of [`KEPT`].
#[derive(Debug)]
struct KeptFile {
    name: CString,
    file: OwnedFd,
}

impl Default for SysctlFiles {
    /// None is open.
    fn default() -> SysctlFiles {
        SysctlFiles { proc_sys: PROC_SYS.into(), open: BTreeMap::new() }
    }
}

impl SysctlFiles {
    /// Number of the files that are open.
    pub(crate) fn count(&self) -> usize {
        self.open.values().map(|directory| directory.files.len()).sum()
    }

    /// Reads every sysctl below `net` that this process may write.
    ///
    /// Each file is opened by its directory and read once: by whole paths and to their ends, those of a fresh namespace cost three times as
    /// many instructions.
    ///
    /// # Errors
    /// A directory cannot be read, or there are more than [`SYSCTLS_MAX`].
    pub(super) fn read(&mut self) -> io::Result<Values> {
        let net = openat(CWD, self.proc_sys.join("net"), DIRECTORY, Mode::empty())?;
        let before = std::mem::take(&mut self.open);
        let (values, open) = (Values::default(), BTreeMap::new());
        let (buffer, rtnl) = (vec![0; VALUE_BYTES_MAX], Rtnl::open().ok());
        let mut reading = Reading { values, count: 0, buffer, rtnl, before, open };
        reading.directory(net, "net", 1)?;
        self.open = reading.open;
        Ok(reading.values)
    }
}

impl KeptFile {
    /// Keeps this file, if there is room for one more.
    fn new(name: &CStr, file: OwnedFd) -> Option<KeptFile> {
        let more = |kept: usize| (kept < KEPT_MAX).then_some(kept + 1);
        KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(KeptFile { name: name.to_owned(), file })
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The values that were read until now, and room for the next one.
struct Reading {
    values: Values,
    count: usize,
    buffer: Vec<u8>,
    /// Without it, those of [`LOCKED`] are read all the same.
    rtnl: Option<Rtnl>,
    /// Files that are open from the reading before, and not yet read in this one.
    before: BTreeMap<String, KeptDirectory>,
    /// Files that stay open after it.
    open: BTreeMap<String, KeptDirectory>,
}

impl Reading {
    fn directory(&mut self, dir: OwnedFd, path: &str, depth: usize) -> io::Result<()> {
        let mut dir = Dir::new(dir)?;
        let (mut inner, mut values) = (Vec::new(), Directory::default());
        let mut before = self.before.remove(path).unwrap_or_default().files;
        let mut open = VecDeque::new();
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            match entry.file_type() {
                FileType::Directory if depth < DEPTH_MAX && !matches!(name, "." | "..") => {
                    inner.push(name.to_owned());
                }
                FileType::RegularFile => {
                    // The kernel lists them in the same order each time.
                    let kept = before.iter().position(|kept| *kept.name == *entry.file_name());
                    let kept = kept.and_then(|place| before.remove(place));
                    if let Some((value, kept)) = self.value(dir.fd()?, entry.file_name(), kept) {
                        values.push(name, value);
                        open.extend(kept);
                    }
                }
                _ => {}
            }
            if self.count + values.len() > SYSCTLS_MAX {
                return Err(io::Error::other(format!("more than {SYSCTLS_MAX} sysctls")));
            }
        }
        let whole = inner.is_empty() && open.len() == values.len();
        self.add(path, values, KeptDirectory { files: open, whole });
        for name in inner {
            let inner = format!("{path}/{name}");
            if of_interfaces(path) && self.again(&inner) {
                continue;
            }
            match openat(dir.fd()?, &name, DIRECTORY, Mode::empty()) {
                // An interface that went in this moment.
                Err(Errno::NOENT) => {}
                found => self.directory(found?, &inner, depth + 1)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, mut values: Directory, open: KeptDirectory) {
        values.sort();
        self.count += values.len();
        if values.len() > 0 {
            self.values.insert(path.to_owned(), values);
            self.open.insert(path.to_owned(), open);
        }
    }

    /// Reads a directory by its files alone, if all of them are open and can be read: those of an interface that went cannot, also where
    /// there is another one of its name.
    fn again(&mut self, path: &str) -> bool {
        let Some(kept) = self.before.remove(path) else { return false };
        let mut values = Directory::default();
        let mut read = |file: &KeptFile| {
            let length = self.fill(&file.name, &file.file)?;
            values.push(file.name.to_str().ok()?, self.text(length)?);
            Some(())
        };
        let whole = kept.whole && kept.files.iter().all(|file| read(file).is_some());
        if whole {
            self.add(path, values, kept);
        } else {
            self.before.insert(path.to_owned(), kept);
        }
        whole
    }

    /// The value, if it can be read and written, and its file, if that stays open. A descriptor for both is refused by the kernel where
    /// the mode of the file lacks either, which leaves out counters and settings of the whole node; writing itself is never done.
    fn value(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        kept: Option<KeptFile>,
    ) -> Option<(&str, Option<KeptFile>)> {
        // That of an interface which went, and whose name another one has by now, cannot be read.
        let read = kept.and_then(|kept| Some((self.fill(name, &kept.file)?, Some(kept))));
        let (length, kept) = match read {
            Some(read) => read,
            None => {
                let file = openat(dir, name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
                (self.fill(name, &file)?, KeptFile::new(name, file))
            }
        };
        Some((self.text(length)?, kept))
    }

    /// The value of so many bytes that was read last.
    fn text(&self, length: usize) -> Option<&str> {
        Some(std::str::from_utf8(&self.buffer[..length]).ok()?.trim_end())
    }

    /// Reads the file of this name from its beginning, and returns the number of bytes; none where it cannot be read.
    fn fill(&mut self, name: &CStr, file: &OwnedFd) -> Option<usize> {
        if LOCKED.contains(&name)
            && let Some(rtnl) = &self.rtnl
        {
            // The lock is free now, and mostly in the moment after.
            let _ = rtnl.wait();
        }
        let length = rustix::io::pread(file, &mut self.buffer[..VALUE_BYTES], 0).ok()?;
        match length {
            // There may be more. A number that is not read from its beginning has none.
            VALUE_BYTES => rustix::io::pread(file, &mut *self.buffer, 0).ok(),
            length => Some(length),
        }
    }
}

/// Whether the directories in this one are an interface's each, whose sysctls come and go together (`__devinet_sysctl_register`,
/// `__addrconf_sysctl_register` and `neigh_sysctl_register` in the kernel's net/).
fn of_interfaces(path: &str) -> bool {
    matches!(path, "net/ipv4/conf" | "net/ipv6/conf" | "net/ipv4/neigh" | "net/ipv6/neigh")
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn files(root: &Path) -> SysctlFiles {
        SysctlFiles { proc_sys: root.to_owned(), open: BTreeMap::new() }
    }

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn files_below_net_are_read_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("net/ipv4/conf/eth0")).unwrap();
        fs::create_dir_all(root.path().join("kernel")).unwrap();
        fs::write(root.path().join("net/ipv4/conf/eth0/forwarding"), "1\n").unwrap();
        fs::write(root.path().join("net/ipv4/tcp_mem"), "1\t2\t3\n").unwrap();
        fs::write(root.path().join("net/ipv4/odd"), [0xff]).unwrap();
        fs::write(root.path().join("kernel/hostname"), "x").unwrap();
        let long = "x".repeat(3 * VALUE_BYTES);
        fs::write(root.path().join("net/ipv4/long"), &long).unwrap();
        let expected = [
            ("net/ipv4/conf/eth0/forwarding", "1"),
            ("net/ipv4/long", &long),
            ("net/ipv4/tcp_mem", "1\t2\t3"),
        ];
        assert_eq!(files(root.path()).read().unwrap(), values(&expected));
        assert!(files(&root.path().join("absent")).read().is_err());
    }

    #[test]
    fn a_second_reading_finds_what_changed_came_and_went() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join("net").join(path);
        fs::create_dir_all(at("conf/eth0")).unwrap();
        for path in ["changed", "gone", "same", "conf/eth0/forwarding"] {
            fs::write(at(path), "0\n").unwrap();
        }
        let mut files = files(root.path());
        files.read().unwrap();
        let open = files.count();
        assert!(open <= 4);
        fs::write(at("changed"), "1\n").unwrap();
        fs::write(at("new"), "2\n").unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::remove_dir_all(at("conf/eth0")).unwrap();
        fs::create_dir_all(at("conf/eth1")).unwrap();
        fs::write(at("conf/eth1/forwarding"), "3\n").unwrap();
        let expected =
            [("net/changed", "1"), ("net/conf/eth1/forwarding", "3"), ("net/new", "2"), ("net/same", "0")];
        for _ in 0..2 {
            assert_eq!(files.read().unwrap(), values(&expected));
        }
        assert!(files.count() <= 4);
    }

    #[test]
    fn an_interface_is_read_by_its_open_files_until_it_goes() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join("net/ipv4/conf").join(path);
        fs::create_dir_all(at("lo")).unwrap();
        fs::write(at("lo/forwarding"), "0\n").unwrap();
        let mut files = files(root.path());
        files.read().unwrap();
        fs::write(at("lo/forwarding"), "1\n").unwrap();
        fs::create_dir_all(at("eth0")).unwrap();
        fs::write(at("eth0/forwarding"), "2\n").unwrap();
        let expected = [("net/ipv4/conf/lo/forwarding", "1"), ("net/ipv4/conf/eth0/forwarding", "2")];
        assert_eq!(files.read().unwrap(), values(&expected));
        fs::remove_dir_all(at("lo")).unwrap();
        assert_eq!(files.read().unwrap(), values(&expected[1..]));
        assert_eq!(files.count(), 1);
    }

    #[test]
    fn no_more_files_stay_open_than_the_process_can_spare_and_all_are_read() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("net")).unwrap();
        let paths: Vec<String> = (0..900).map(|number| format!("net/sysctl{number}")).collect();
        paths.iter().for_each(|path| fs::write(root.path().join(path), "1\n").unwrap());
        let all: Values = paths.iter().map(|path| (path.clone(), "1".to_owned())).collect();
        let mut namespaces = [files(root.path()), files(root.path()), files(root.path())];
        for _ in 0..2 {
            for files in &mut namespaces {
                assert_eq!(files.read().unwrap(), all);
            }
            let open: usize = namespaces.iter().map(SysctlFiles::count).sum();
            assert!((900..=KEPT_MAX).contains(&open), "{open}");
        }
    }
}
