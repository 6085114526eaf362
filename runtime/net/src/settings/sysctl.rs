//! The sysctls of a network namespace, and which of them plugins changed. Reading needs to happen on a thread inside the namespace, since
//! the kernel shows `/proc/sys/net` as the reader's namespace has it; the comparison is pure.

use std::{
    ffi::CStr,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, openat},
    io::Errno,
};

use super::values::{Directory, Values};

/// Where the kernel shows sysctls.
pub(super) const PROC_SYS: &str = "/proc/sys";

/// Most sysctls of a namespace that are read: a fresh one has some 600, and each interface adds about 120.
const SYSCTLS_MAX: usize = 32_768;

/// Most bytes of a value; the kernel's longest are a few hundred.
const VALUE_BYTES_MAX: usize = 4096;

/// Bytes that are asked for first, enough for nearly all values: the kernel clears as many for each read.
const VALUE_BYTES: usize = 128;

/// Directories below `net` at most; the kernel has four levels.
const DEPTH_MAX: usize = 8;

/// Sysctls of an interface that plugins set so that the addresses which they put on it are announced at once, or that follow from the
/// link. The guest's interface gets its addresses and its MTU from the agent, so these mean nothing there.
const UPKEEP: &[&str] = &[
    "accept_dad",
    "arp_notify",
    "dad_transmits",
    "enhanced_dad",
    "keep_addr_on_down",
    "mtu",
    "ndisc_notify",
];

/// Reads every sysctl below `net` that this process may write. `proc_sys` is [`PROC_SYS`], but in tests.
///
/// Each file is opened by its directory and read once: by whole paths and to their ends, those of a fresh namespace cost three times as
/// many instructions.
///
/// # Errors
/// A directory cannot be read, or there are more than [`SYSCTLS_MAX`].
pub(super) fn read(proc_sys: &Path) -> io::Result<Values> {
    let mut reading = Reading { values: Values::default(), count: 0, buffer: vec![0; VALUE_BYTES_MAX] };
    let net = openat(CWD, proc_sys.join("net"), DIRECTORY, Mode::empty())?;
    reading.directory(net, "net", 1)?;
    Ok(reading.values)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// The values that were read until now, and room for the next one.
struct Reading {
    values: Values,
    count: usize,
    buffer: Vec<u8>,
}

impl Reading {
    fn directory(&mut self, dir: OwnedFd, path: &str, depth: usize) -> io::Result<()> {
        let mut dir = Dir::new(dir)?;
        let (mut inner, mut values) = (Vec::new(), Directory::default());
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            match entry.file_type() {
                FileType::Directory if depth < DEPTH_MAX && !matches!(name, "." | "..") => {
                    inner.push(name.to_owned());
                }
                FileType::RegularFile => {
                    if let Some(value) = self.value(dir.fd()?, entry.file_name()) {
                        values.push(name, value);
                    }
                }
                _ => {}
            }
            if self.count + values.len() > SYSCTLS_MAX {
                return Err(io::Error::other(format!("more than {SYSCTLS_MAX} sysctls")));
            }
        }
        values.sort();
        self.count += values.len();
        if values.len() > 0 {
            self.values.insert(path.to_owned(), values);
        }
        for name in inner {
            match openat(dir.fd()?, &name, DIRECTORY, Mode::empty()) {
                // An interface that went in this moment.
                Err(Errno::NOENT) => {}
                found => self.directory(found?, &format!("{path}/{name}"), depth + 1)?,
            }
        }
        Ok(())
    }

    /// The value, if it can be read and written. A descriptor for both is refused by the kernel where the mode of the file lacks either,
    /// which leaves out counters and settings of the whole node; writing itself is never done.
    fn value(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> Option<&str> {
        let file = openat(dir, name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut length = rustix::io::read(&file, &mut self.buffer[..VALUE_BYTES]).ok()?;
        if length == VALUE_BYTES {
            // There may be more. A number that is not read from its beginning has none.
            length = rustix::io::pread(&file, &mut *self.buffer, 0).ok()?;
        }
        let text = std::str::from_utf8(&self.buffer[..length]).ok()?;
        Some(text.trim_end())
    }
}

/// The paths in `after` whose values are not those of `before`. A sysctl of an interface that was not there is compared with the value
/// that the kernel gives new interfaces; any other sysctl that was not there belongs to a kernel module that was loaded in between, and has
/// nothing to be compared with.
pub(super) fn changes<'a>(before: &'a Values, after: &'a Values) -> impl Iterator<Item = (String, &'a str)> {
    after.unlike(before).flat_map(move |(directory, values)| {
        let known = before.directory(directory).into_iter().chain(of_new_interfaces(before, directory));
        let known: Vec<&Directory> = known.collect();
        values.iter().filter_map(move |(name, value)| {
            let was = known.iter().find_map(|known| known.get(name))?;
            if was == value {
                return None;
            }
            let path = format!("{directory}/{name}");
            (!is_upkeep(&path, value)).then_some((path, value))
        })
    })
}

/// Directories with the values that sysctls have on an interface that was just made, where this is an interface's: that of `default`, or,
/// where a namespace shows none (`neigh` has its default in the node's own namespace alone), that of the loopback, which nobody changes.
fn of_new_interfaces<'v>(values: &'v Values, directory: &str) -> impl Iterator<Item = &'v Directory> {
    let group = directory.rsplit_once('/').map(|(group, _)| group);
    let group =
        group.filter(|group| matches!(group.split('/').collect::<Vec<_>>()[..], [_, _, "conf" | "neigh"]));
    let of = move |group: &str| ["default", "lo"].map(|like| values.directory(&format!("{group}/{like}")));
    group.map(of).into_iter().flatten().flatten()
}

fn is_upkeep(path: &str, value: &str) -> bool {
    match split(path) {
        // IPv6 is switched on for an interface with an address of that family; a guest has it on.
        Some([_, _, "conf", _, "disable_ipv6"]) => value == "0",
        Some([_, _, "conf", interface, key]) => {
            !matches!(interface, "all" | "default") && UPKEEP.contains(&key)
        }
        _ => false,
    }
}

/// A path of the form `net/ipv4/conf/eth0/forwarding`.
fn split(path: &str) -> Option<[&str; 5]> {
    let parts: Vec<&str> = path.split('/').collect();
    parts.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
    }

    fn changed(before: &[(&str, &str)], after: &[(&str, &str)]) -> Vec<String> {
        let (before, after) = (values(before), values(after));
        changes(&before, &after).map(|(path, value)| format!("{path}={value}")).collect()
    }

    #[test]
    fn a_value_that_was_changed_is_found_and_the_others_are_not() {
        let before = [("net/ipv4/ip_forward", "0"), ("net/core/somaxconn", "4096")];
        let after = [("net/ipv4/ip_forward", "0"), ("net/core/somaxconn", "8192")];
        assert_eq!(changed(&before, &after), ["net/core/somaxconn=8192"]);
        assert_eq!(changed(&before, &before), Vec::<String>::new());
    }

    #[test]
    fn a_new_interface_is_compared_with_the_default_of_a_fresh_namespace() {
        let before = [
            ("net/ipv4/conf/default/rp_filter", "2"),
            ("net/ipv6/neigh/lo/gc_stale_time", "60"),
            ("net/ipv4/conf/default/forwarding", "0"),
        ];
        let after = [
            ("net/ipv4/conf/default/forwarding", "1"),
            ("net/ipv4/conf/default/rp_filter", "2"),
            ("net/ipv4/conf/eth0.5/forwarding", "1"),
            ("net/ipv4/conf/eth0.5/rp_filter", "2"),
            ("net/ipv6/neigh/eth0/gc_stale_time", "90"),
        ];
        let expected = [
            "net/ipv4/conf/default/forwarding=1",
            "net/ipv4/conf/eth0.5/forwarding=1",
            "net/ipv6/neigh/eth0/gc_stale_time=90",
        ];
        assert_eq!(changed(&before, &after), expected);
    }

    #[test]
    fn what_comes_with_a_module_is_no_change() {
        assert_eq!(changed(&[], &[("net/netfilter/nf_conntrack_acct", "0")]), Vec::<String>::new());
    }

    #[test]
    fn what_plugins_set_for_their_own_addresses_is_no_change() {
        let before = [
            ("net/ipv4/conf/default/arp_notify", "0"),
            ("net/ipv6/conf/all/disable_ipv6", "1"),
            ("net/ipv6/conf/default/accept_dad", "1"),
            ("net/ipv6/conf/default/disable_ipv6", "0"),
            ("net/ipv6/conf/default/mtu", "1280"),
        ];
        let after = [
            ("net/ipv4/conf/eth0/arp_notify", "1"),
            ("net/ipv6/conf/all/disable_ipv6", "0"),
            ("net/ipv6/conf/eth0/accept_dad", "0"),
            ("net/ipv6/conf/eth0/mtu", "1400"),
        ];
        assert_eq!(changed(&before, &after), Vec::<String>::new());
        // A pod without IPv6 is one that somebody wanted.
        let after = [("net/ipv6/conf/eth0/disable_ipv6", "1"), ("net/ipv4/conf/default/arp_notify", "1")];
        assert_eq!(
            changed(&before, &after),
            ["net/ipv4/conf/default/arp_notify=1", "net/ipv6/conf/eth0/disable_ipv6=1"]
        );
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
        assert_eq!(read(root.path()).unwrap(), values(&expected));
        assert!(read(&root.path().join("absent")).is_err());
    }
}
