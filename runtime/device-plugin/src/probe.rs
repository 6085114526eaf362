//! A probe of the node's prerequisites for a VM, without starting one: a working KVM, and available memory.

use std::ffi::CStr;
use std::fs;

use kvm_ioctls::Kvm;

/// The version of KVM's interface, unchanged since Linux 2.6.22 (Documentation/virt/kvm/api.rst, 4.1).
const KVM_API_VERSION: i32 = 12;

/// A probe of the node. Probes run one after another, on threads that may block.
pub(crate) trait Probe: Send + Sync + 'static {
    /// Returns the available memory in bytes, or the reason why no VM can run.
    fn look(&self) -> Result<u64, String>;
}

/// The node itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeProbe;

impl Probe for NodeProbe {
    fn look(&self) -> Result<u64, String> {
        kvm(c"/dev/kvm")?;
        let path = "/proc/meminfo";
        let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        available(&text).ok_or_else(|| format!("{path} has no MemAvailable"))
    }
}

/// Checks that KVM can be opened and answers.
fn kvm(path: &CStr) -> Result<(), String> {
    let shown = path.to_string_lossy();
    let kvm = Kvm::new_with_path(path).map_err(|error| format!("{shown}: {error}"))?;
    match kvm.get_api_version() {
        KVM_API_VERSION => Ok(()),
        // Files of other kinds lack this ioctl.
        ..0 => Err(format!("{shown} is no KVM")),
        version => Err(format!("{shown} speaks version {version}, not {KVM_API_VERSION}")),
    }
}

/// Returns the available memory in bytes from the text of /proc/meminfo (proc_meminfo(5)). The file has it in
/// KiB.
fn available(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        let text = "MemTotal:        8123456 kB\nMemFree:          123456 kB\nMemAvailable:    4096000 kB\n";
        assert_eq!(available(text), Some(4_096_000 * 1024));
        for text in ["", "MemAvailable:", "MemAvailable: 12", "MemAvailable: x kB", "MemAvailable: -1 kB"] {
            assert_eq!(available(text), None, "{text:?}");
        }
        assert_eq!(available(&format!("MemAvailable: {} kB", u64::MAX)), None);
    }

    #[test]
    fn a_kvm_that_is_not_there_or_is_another_file_is_named() {
        for (path, said) in [
            (c"/no/such/kvm", "/no/such/kvm: No such file or directory"),
            (c"/dev/null", "/dev/null is no KVM"),
            (c"/tmp", "/tmp: Is a directory"),
        ] {
            let error = kvm(path).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn this_node_says_how_much_memory_is_available() {
        assert!(available(&fs::read_to_string("/proc/meminfo").unwrap()).is_some_and(|bytes| bytes > 0));
    }
}
