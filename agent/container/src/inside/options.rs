//! Mount options of the OCI runtime specification ("Linux mount options"). Pure.

/// Attributes of `struct mount_attr`, `include/uapi/linux/mount.h`.
const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_ATIME: u64 = libc::MOUNT_ATTR_NOATIME;
const STRICT_ATIME: u64 = libc::MOUNT_ATTR_STRICTATIME;
const ATIME: u64 = libc::MOUNT_ATTR__ATIME;

/// Options to set an attribute, and options to clear it.
const ATTRIBUTES: [(&str, &str, u64); 5] = [
    ("ro", "rw", READ_ONLY),
    ("nosuid", "suid", libc::MOUNT_ATTR_NOSUID),
    ("nodev", "dev", libc::MOUNT_ATTR_NODEV),
    ("noexec", "exec", libc::MOUNT_ATTR_NOEXEC),
    ("nodiratime", "diratime", libc::MOUNT_ATTR_NODIRATIME),
];

/// Attributes to set and to clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) set: u64,
    pub(super) clear: u64,
}

impl Attributes {
    pub(super) fn is_empty(self) -> bool {
        self == Attributes::default()
    }

    /// Takes an option's attribute. Returns false if the option names none.
    fn take(&mut self, option: &str) -> bool {
        for (set, clear, attribute) in ATTRIBUTES {
            // Of two contradicting options the later one counts.
            if option == set {
                self.set |= attribute;
                self.clear &= !attribute;
            } else if option == clear {
                self.clear |= attribute;
                self.set &= !attribute;
            } else {
                continue;
            }
            return true;
        }
        let atime = match option {
            "noatime" => NO_ATIME,
            "strictatime" => STRICT_ATIME,
            "relatime" | "atime" | "norelatime" | "nostrictatime" => 0,
            _ => return false,
        };
        // The three are one field, and the kernel clears it as a whole.
        self.set = self.set & !ATIME | atime;
        self.clear |= ATIME;
        true
    }
}

/// A mount's propagation, `MS_PRIVATE` and its like of mount(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Propagation {
    pub(super) kind: u64,
    pub(super) recursive: bool,
}

/// The options of one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// The source is a path. With true its submounts are included.
    pub(super) bind: Option<bool>,
    /// Attributes of the mount itself.
    pub(super) own: Attributes,
    /// Attributes of the mount and of all below it.
    pub(super) all: Attributes,
    pub(super) propagation: Option<Propagation>,
    /// The file system's own options: `key` or `key=value`.
    pub(super) of_file_system: Vec<String>,
}

impl Options {
    pub(super) fn parse(options: &[String]) -> Options {
        let mut parsed = Options::default();
        for option in options {
            parsed.take(option);
        }
        parsed
    }

    fn take(&mut self, option: &str) {
        match option {
            "bind" => self.bind = Some(self.bind.unwrap_or(false)),
            "rbind" => self.bind = Some(true),
            "defaults" => {}
            _ if self.own.take(option) => {}
            _ if option.strip_prefix('r').is_some_and(|rest| self.all.take(rest)) => {}
            _ => match propagation(option) {
                Some(propagation) => self.propagation = Some(propagation),
                None => self.of_file_system.push(option.to_owned()),
            },
        }
    }
}

fn propagation(option: &str) -> Option<Propagation> {
    let kind = |name: &str| {
        Some(match name {
            "private" => libc::MS_PRIVATE,
            "slave" => libc::MS_SLAVE,
            "shared" => libc::MS_SHARED,
            "unbindable" => libc::MS_UNBINDABLE,
            _ => return None,
        })
    };
    let own = kind(option).map(|kind| Propagation { kind, recursive: false });
    own.or_else(|| kind(option.strip_prefix('r')?).map(|kind| Propagation { kind, recursive: true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Options {
        Options::parse(&options.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn attributes_propagation_and_the_file_systems_own_are_kept_apart() {
        let parsed = parse(&["rbind", "rprivate", "nosuid", "ro", "mode=755", "size=64k", "newinstance"]);
        assert_eq!(parsed.bind, Some(true));
        assert_eq!(parsed.own, Attributes { set: READ_ONLY | libc::MOUNT_ATTR_NOSUID, clear: 0 });
        assert_eq!(parsed.propagation, Some(Propagation { kind: libc::MS_PRIVATE, recursive: true }));
        assert_eq!(parsed.of_file_system, ["mode=755", "size=64k", "newinstance"]);
        assert!(parsed.all.is_empty());
    }

    #[test]
    fn the_later_of_two_that_contradict_each_other_counts() {
        assert_eq!(parse(&["ro", "rw"]).own, Attributes { set: 0, clear: READ_ONLY });
        assert_eq!(parse(&["rw", "ro"]).own, Attributes { set: READ_ONLY, clear: 0 });
    }

    #[test]
    fn recursive_attributes_are_those_of_all_mounts() {
        let parsed = parse(&["rbind", "rro", "rnosuid"]);
        assert_eq!(parsed.all, Attributes { set: READ_ONLY | libc::MOUNT_ATTR_NOSUID, clear: 0 });
        assert!(parsed.own.is_empty());
    }

    #[test]
    fn times_of_access_are_one_field() {
        let parsed = parse(&["noatime", "strictatime"]);
        assert_eq!(parsed.own, Attributes { set: STRICT_ATIME, clear: ATIME });
        assert_eq!(parse(&["relatime"]).own, Attributes { set: 0, clear: ATIME });
    }

    #[test]
    fn a_plain_bind_does_not_take_back_a_recursive_one() {
        assert_eq!(parse(&["rbind", "bind"]).bind, Some(true));
        assert_eq!(parse(&["bind"]).bind, Some(false));
    }
}
