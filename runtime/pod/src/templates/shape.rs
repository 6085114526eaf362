//! The pods for a template: everything fixed when a VM is built, and the pods allowed to share it. A
//! template's key is a digest of these and of everything its content depends on: the builds of VMM, kernel
//! and agent, the node's processors and the node's kernel.

use std::fs;

use proto_vmm::PROTOCOL_VERSION;
use runtime_spec::{Kernel, TemplateScope, VmBounds};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::installation::Builds;

/// Fields of `/proc/cpuinfo` about a processor's type and abilities; other fields vary over time.
const PROCESSOR: [&str; 6] = ["vendor_id", "cpu family", "model", "stepping", "microcode", "flags"];

/// The format of the files; other formats are not read.
const FORMAT: u32 = 1;

/// The sizes and the kernel of a VM, and the pods allowed to share a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct TemplateShape {
    memory_bytes: u64,
    memory_max_bytes: u64,
    vcpus: u8,
    full_kernel: bool,
    /// The namespace of the pods sharing it; empty for all pods of the node.
    namespace: String,
}

impl TemplateShape {
    /// The shape for pods with these bounds, of this namespace, or of all namespaces if it is empty.
    pub(crate) fn of(bounds: &VmBounds, namespace: &str) -> TemplateShape {
        TemplateShape {
            memory_bytes: bounds.boot.memory_bytes,
            memory_max_bytes: bounds.most.memory_bytes,
            vcpus: bounds.most.vcpus,
            full_kernel: bounds.kernel == Kernel::Full,
            namespace: namespace.to_owned(),
        }
    }

    /// The shape for a pod with these bounds of this namespace; none if the handler has no templates.
    pub(crate) fn wanted(scope: TemplateScope, bounds: &VmBounds, namespace: &str) -> Option<TemplateShape> {
        match scope {
            TemplateScope::Off => None,
            TemplateScope::Namespace => Some(TemplateShape::of(bounds, namespace)),
            TemplateScope::Node => Some(TemplateShape::of(bounds, "")),
        }
    }

    /// Bounds for building a VM of this shape.
    pub(crate) fn bounds(&self) -> VmBounds {
        let mut bounds = VmBounds { kernel: self.kernel(), ..VmBounds::default() };
        // Each pod makes its initial vCPUs.
        (bounds.boot.memory_bytes, bounds.boot.vcpus) = (self.memory_bytes, 1);
        (bounds.most.memory_bytes, bounds.most.vcpus) = (self.memory_max_bytes, self.vcpus);
        bounds
    }

    pub(super) fn kernel(&self) -> Kernel {
        if self.full_kernel { Kernel::Full } else { Kernel::Small }
    }

    /// Memory of the guest, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The key of this shape's template, used as a directory's name. `None` if a part's build is unknown: a
    /// template could not be matched with it.
    pub(super) fn key(&self, builds: &Builds, host: &str) -> Option<String> {
        let (vmm, kernel) = (builds.vmm.as_deref()?, builds.kernel(self.kernel())?);
        let agent = builds.agent.as_deref()?;
        let mut digest = Sha256::new();
        let protocol = (FORMAT, PROTOCOL_VERSION);
        let parts = serde_json::to_vec(&(protocol, self, vmm, kernel, agent, host)).ok()?;
        digest.update(parts);
        Some(hex::encode(&digest.finalize()[..16]))
    }
}

/// The node's kernel and processors, as far as a saved VM depends on them. Reads `/proc`.
pub(super) fn host() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease") + &read("/proc/sys/kernel/version");
    kernel + &processor(&read("/proc/cpuinfo"))
}

/// The relevant lines of `cpuinfo`, each kind once. Normally the processors of one node do not differ in
/// them. On an unusual node, templates fit only some processors.
fn processor(cpuinfo: &str) -> String {
    let mut seen = Vec::new();
    for line in cpuinfo.lines() {
        let name = line.split(':').next().unwrap_or_default().trim_end();
        if PROCESSOR.contains(&name) && !seen.contains(&line) {
            seen.push(line);
        }
    }
    seen.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> TemplateShape {
        let mut bounds = VmBounds::default();
        bounds.boot.memory_bytes = 128 << 20;
        (bounds.most.memory_bytes, bounds.most.vcpus) = (1 << 30, 4);
        TemplateShape::of(&bounds, "")
    }

    fn builds() -> Builds {
        let of = |build: &str| Some(build.to_owned());
        Builds { vmm: of("v"), small_kernel: of("k"), full_kernel: None, agent: of("a") }
    }

    #[test]
    fn whatever_a_template_depends_on_changes_its_key() {
        let key = shape().key(&builds(), "host").unwrap();
        assert_eq!(shape().key(&builds(), "host"), Some(key.clone()));
        let others = [
            shape().key(&Builds { vmm: Some("w".into()), ..builds() }, "host"),
            shape().key(&Builds { small_kernel: Some("l".into()), ..builds() }, "host"),
            shape().key(&Builds { agent: Some("b".into()), ..builds() }, "host"),
            shape().key(&builds(), "other host"),
            TemplateShape { memory_bytes: 256 << 20, ..shape() }.key(&builds(), "host"),
            TemplateShape { memory_max_bytes: 2 << 30, ..shape() }.key(&builds(), "host"),
            TemplateShape { vcpus: 5, ..shape() }.key(&builds(), "host"),
            TemplateShape { namespace: "web".into(), ..shape() }.key(&builds(), "host"),
        ];
        for (number, other) in others.into_iter().enumerate() {
            assert!(other.is_some_and(|other| other != key), "{number}");
        }
    }

    #[test]
    fn a_part_of_an_unknown_build_has_no_key() {
        assert_eq!(shape().key(&Builds { agent: None, ..builds() }, "host"), None);
        let full = TemplateShape { full_kernel: true, ..shape() };
        assert_eq!(full.key(&builds(), "host"), None);
    }

    #[test]
    fn what_a_processor_does_at_the_moment_does_not_count() {
        let info = |mhz| {
            format!("model\t\t: 7\ncpu MHz\t\t: {mhz}\nflags\t\t: fpu\n\nmodel\t\t: 7\nmicrocode\t: 0x1\n")
        };
        assert_eq!(processor(&info(1)), processor(&info(2)));
        assert_eq!(processor(&info(1)), "model\t\t: 7\nflags\t\t: fpu\nmicrocode\t: 0x1");
    }
}
