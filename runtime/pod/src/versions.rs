//! Versions of the files of a pod's VM, as recorded and published. `installation.rs` compares them with the
//! installed ones.

use serde::{Deserialize, Serialize};

/// Longest release kept, in bytes: as long as a kernel's may be (`__NEW_UTS_LEN`,
/// include/uapi/linux/utsname.h).
const RELEASE_BYTES_MAX: usize = 64;

/// A part of a VM replaced by an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The program `podvisor-vmm`.
    Vmm,
    /// The guest's kernel.
    Kernel,
    /// The guest's root image, with the agent.
    Agent,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 3] = [Part::Vmm, Part::Kernel, Part::Agent];

    /// The part's name in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Part::Vmm => "vmm",
            Part::Kernel => "kernel",
            Part::Agent => "agent",
        }
    }
}

/// Version of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartVersion {
    /// Release as reported by the part: Podvisor's, or for the kernel Linux's. At most 64 bytes, graphic
    /// ASCII; empty without a report. The kernel's and the agent's come from a guest before it runs anything
    /// else.
    pub release: String,
    /// Id of the build of the part's file; `None` if the file could not be read.
    pub build: Option<String>,
}

/// Versions of all parts of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VmVersions {
    /// See [`Part::Vmm`].
    pub vmm: PartVersion,
    /// See [`Part::Kernel`].
    pub kernel: PartVersion,
    /// See [`Part::Agent`].
    pub agent: PartVersion,
}

impl VmVersions {
    /// The version of one part.
    pub fn part(&self, part: Part) -> &PartVersion {
        match part {
            Part::Vmm => &self.vmm,
            Part::Kernel => &self.kernel,
            Part::Agent => &self.agent,
        }
    }
}

/// A release reported by a part, in its stored form.
pub(crate) fn release(said: &str) -> String {
    said.chars().filter(char::is_ascii_graphic).take(RELEASE_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_kept_short_and_printable() {
        assert_eq!(release("6.12.48 \u{1b}[31m\n"), "6.12.48[31m");
        assert_eq!(release(&"9".repeat(1000)).len(), RELEASE_BYTES_MAX);
    }
}
