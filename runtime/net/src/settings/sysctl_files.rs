//! Reads the sysctls of a network namespace. This must run on a thread inside the namespace, because the
//! kernel shows `/proc/sys/net` for the reader's namespace.
//!
//! A namespace is read after each plugin of its pod, and opening the files takes more than half of the time.
//! The files therefore stay open in between, as far as the process can spare the descriptors. The sysctls of
//! an interface come and go with it, so its directories need no second listing either.

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

/// Most sysctls read per namespace: a fresh one has some 600, and each interface adds about 120.
const SYSCTLS_MAX: usize = 32_768;

/// Most bytes of a value; the kernel's longest are a few hundred.
const VALUE_BYTES_MAX: usize = 4096;

/// Bytes of the first read. This is enough for nearly all values, and the kernel clears as many bytes for
/// each read.
const VALUE_BYTES: usize = 128;

/// Most directory levels below `net`; the kernel has four.
const DEPTH_MAX: usize = 8;

/// Sysctls read by the kernel under its network lock. While the lock is held elsewhere, the kernel restarts
/// the call again and again and uses the processor all the time (`addrconf_sysctl_addr_gen_mode` and
/// `addrconf_sysctl_stable_secret` in net/ipv6/addrconf.c).
const LOCKED: [&CStr; 2] = [c"addr_gen_mode", c"stable_secret"];

/// Most files kept open by the process between two readings: those of two namespaces. Each started program
/// copies and closes all descriptors of the process.
const KEPT_MAX: usize = 1500;

/// Number of files kept open.
static KEPT: AtomicUsize = AtomicUsize::new(0);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// The sysctls of one namespace, with files still open from the last reading.
#[derive(Debug)]
pub(crate) struct SysctlFiles {
    proc_sys: PathBuf,
    open: BTreeMap<String, KeptDirectory>,
}

/// The open files of a directory.
#[derive(Debug, Default)]
struct KeptDirectory {
    files: VecDeque<KeptFile>,
    /// True if every sysctl of the directory is among the files, and it has no subdirectories.
    whole: bool,
}

/// An open file, counted in [`KEPT`].
#[derive(Debug)]
struct KeptFile {
    name: CString,
    file: OwnedFd,
}

impl Default for SysctlFiles {
    /// Starts without open files.
    fn default() -> SysctlFiles {
        SysctlFiles { proc_sys: PROC_SYS.into(), open: BTreeMap::new() }
    }
}

impl SysctlFiles {
    /// Number of open files.
    pub(crate) fn count(&self) -> usize {
        self.open.values().map(|directory| directory.files.len()).sum()
    }

    /// Reads every sysctl below `net` writable by this process.
    ///
    /// Each file is opened relative to its directory and read once. With whole paths and reads to the end, a
    /// fresh namespace costs three times as many instructions.
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
    /// Keeps this file if the limit allows.
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

/// The values read so far, and a buffer for the next one.
struct Reading {
    values: Values,
    count: usize,
    buffer: Vec<u8>,
    /// Without it, the sysctls in [`LOCKED`] are still read.
    rtnl: Option<Rtnl>,
    /// Files open from the previous reading and not yet read in this one.
    before: BTreeMap<String, KeptDirectory>,
    /// Files staying open after this reading.
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
                    // The kernel lists the files in the same order each time.
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
                // The interface was removed just now.
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

    /// Reads a directory by its open files only, if all of them are open and readable. The files of a removed
    /// interface are not readable, even if a new interface has the same name.
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

    /// Returns the value if it is readable and writable, and its file if it stays open. Opening for both
    /// fails if the file's mode lacks either. This excludes counters and settings of the whole node. Nothing
    /// is ever written.
    fn value(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        kept: Option<KeptFile>,
    ) -> Option<(&str, Option<KeptFile>)> {
        // The file of a removed interface is unreadable, even if another interface has its name by now.
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

    /// Returns the last value read, of this many bytes.
    fn text(&self, length: usize) -> Option<&str> {
        Some(std::str::from_utf8(&self.buffer[..length]).ok()?.trim_end())
    }

    /// Reads the file of this name from its start. Returns the number of bytes, or `None` if it is
    /// unreadable.
    fn fill(&mut self, name: &CStr, file: &OwnedFd) -> Option<usize> {
        if LOCKED.contains(&name)
            && let Some(rtnl) = &self.rtnl
        {
            // The lock is free now, and usually still is a moment later.
            let _ = rtnl.wait();
        }
        let length = rustix::io::pread(file, &mut self.buffer[..VALUE_BYTES], 0).ok()?;
        match length {
            // There may be more. Numbers cannot be read from an offset, so the second read starts again.
            VALUE_BYTES => rustix::io::pread(file, &mut *self.buffer, 0).ok(),
            length => Some(length),
        }
    }
}

/// Returns true if each subdirectory belongs to one interface. Its sysctls then come and go together
/// (`__devinet_sysctl_register`, `__addrconf_sysctl_register` and `neigh_sysctl_register` in the kernel's
/// net/).
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
