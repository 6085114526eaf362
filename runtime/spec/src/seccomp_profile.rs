//! Converts a seccomp profile of the node, in the JSON of Moby and Kubernetes, to the OCI form for one
//! container. The module is pure. The reader of the file bounds its size.
//!
//! Beyond OCI's form, the file may choose architectures (`archMap`), name one call by `name`, and make a rule
//! depend on capabilities, architecture and kernel (`includes`, `excludes`). This module decides such
//! conditions for the guest's architecture and kernel. Unknown keys are skipped, as by every other reader of
//! this format.

use oci_spec::runtime::{
    Arch, Capabilities, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompBuilder,
    LinuxSeccompFilterFlag, LinuxSyscall, LinuxSyscallBuilder,
};
use serde::Deserialize;

use crate::plan::ContainerPlan;
use crate::{ContainerSpec, Profile, SpecError};

/// Longest profile, in bytes. The largest in use have some 20 KiB.
pub const SECCOMP_PROFILE_BYTES_MAX: u64 = 512 << 10;

/// The guest's architecture, as spelled in profiles' conditions and in `archMap`.
const ARCHITECTURE: &str = "amd64";
const NATIVE: Arch = Arch::ScmpArchX86_64;

/// Version of the guest's kernel.
const KERNEL: (u32, u32) = (6, 12);

const FIELD: &str = "security_context.seccomp";

/// A parsed profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeccompProfile {
    default_action: LinuxSeccompAction,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Option<Vec<Arch>>,
    #[serde(default)]
    arch_map: Option<Vec<ArchitectureMap>>,
    #[serde(default)]
    flags: Option<Vec<LinuxSeccompFilterFlag>>,
    #[serde(default)]
    listener_path: String,
    #[serde(default)]
    syscalls: Option<Vec<Rule>>,
}

/// An entry of `archMap`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchitectureMap {
    // A string, because the map may name architectures missing in OCI's list.
    architecture: String,
    #[serde(default)]
    sub_architectures: Option<Vec<serde_json::Value>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    name: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    action: LinuxSeccompAction,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<LinuxSeccompArg>>,
    #[serde(default)]
    includes: Option<Condition>,
    #[serde(default)]
    excludes: Option<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(default)]
    caps: Option<Vec<String>>,
    #[serde(default)]
    arches: Option<Vec<String>>,
    #[serde(default)]
    min_kernel: Option<String>,
}

impl SeccompProfile {
    /// Reads the profile's text.
    ///
    /// # Errors
    /// The profile is no JSON, has an unknown action or operator, or needs a listener on the node. The error
    /// names the reason.
    pub fn parse(text: &[u8]) -> Result<SeccompProfile, SpecError> {
        let refuse =
            |reason: String| Err(SpecError::invalid(FIELD, format!("the profile is not valid: {reason}")));
        let profile: SeccompProfile = match serde_json::from_slice(text) {
            Ok(profile) => profile,
            Err(error) => return refuse(error.to_string()),
        };
        let rules = profile.syscalls.iter().flatten();
        let mut actions = rules.clone().map(|rule| rule.action).chain([profile.default_action]);
        if !profile.listener_path.is_empty()
            || actions.any(|action| action == LinuxSeccompAction::ScmpActNotify)
        {
            return refuse("a listener of the node cannot hear a guest's kernel".to_owned());
        }
        if profile.architectures.is_some() && profile.arch_map.is_some() {
            return refuse("it has both architectures and archMap".to_owned());
        }
        for rule in rules {
            if rule.name.is_empty() == rule.names.is_none() {
                return refuse("a rule needs either name or names".to_owned());
            }
            for condition in rule.includes.iter().chain(&rule.excludes) {
                if let Some(version) = condition.min_kernel.as_deref()
                    && kernel(version).is_none()
                {
                    return refuse(format!("minKernel {version:?} is no kernel version"));
                }
            }
        }
        Ok(profile)
    }

    /// OCI's form for a container with these capabilities.
    fn for_capabilities(&self, capabilities: &Capabilities) -> Result<LinuxSeccomp, SpecError> {
        let part = |error: oci_spec::OciSpecError| {
            SpecError::invalid(FIELD, format!("the profile is not valid: {error}"))
        };
        let rules = self.syscalls.iter().flatten().filter(|rule| rule.counts(capabilities));
        let syscalls = rules.map(|rule| rule.oci().map_err(part)).collect::<Result<Vec<_>, _>>()?;
        let mut seccomp = LinuxSeccompBuilder::default()
            .default_action(self.default_action)
            .syscalls(syscalls)
            .build()
            .map_err(part)?;
        seccomp.set_default_errno_ret(self.default_errno_ret);
        seccomp.set_architectures(self.architectures());
        seccomp.set_flags(self.flags.clone());
        Ok(seccomp)
    }

    fn architectures(&self) -> Option<Vec<Arch>> {
        let parse = |text: &str| serde_json::from_value::<Arch>(text.into()).ok();
        let Some(map) = &self.arch_map else { return self.architectures.clone() };
        let ours = map.iter().find(|entry| parse(&entry.architecture) == Some(NATIVE))?;
        let others = ours.sub_architectures.iter().flatten().filter_map(|text| parse(text.as_str()?));
        Some(std::iter::once(NATIVE).chain(others).collect())
    }
}

impl Rule {
    /// Returns true if the rule applies to a container with these capabilities in the guest.
    fn counts(&self, capabilities: &Capabilities) -> bool {
        let has = |name: &String| capabilities.iter().any(|capability| is_named(capability, name));
        let included = self.includes.as_ref().is_none_or(|condition| {
            condition.caps.iter().flatten().all(has)
                && condition.arches().is_none_or(|arches| arches.iter().any(|arch| arch == ARCHITECTURE))
                && condition.kernel_is_new_enough().unwrap_or(true)
        });
        let excluded = self.excludes.as_ref().is_some_and(|condition| {
            condition.caps.iter().flatten().any(has)
                || condition.arches().is_some_and(|arches| arches.iter().any(|arch| arch == ARCHITECTURE))
                || condition.kernel_is_new_enough().unwrap_or(false)
        });
        included && !excluded
    }

    fn oci(&self) -> Result<LinuxSyscall, oci_spec::OciSpecError> {
        let names = self.names.clone().unwrap_or_else(|| vec![self.name.clone()]);
        let mut rule = LinuxSyscallBuilder::default().names(names).action(self.action).build()?;
        rule.set_errno_ret(self.errno_ret);
        rule.set_args(self.args.clone().filter(|args| !args.is_empty()));
        Ok(rule)
    }
}

impl Condition {
    /// An empty list counts as none.
    fn arches(&self) -> Option<&[String]> {
        self.arches.as_deref().filter(|arches| !arches.is_empty())
    }

    fn kernel_is_new_enough(&self) -> Option<bool> {
        kernel(self.min_kernel.as_deref()?).map(|wanted| KERNEL >= wanted)
    }
}

/// "4.8", without any further parts, as in Moby.
fn kernel(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn is_named(capability: &oci_spec::runtime::Capability, name: &str) -> bool {
    capability.to_string() == name.strip_prefix("CAP_").unwrap_or(name)
}

impl ContainerSpec {
    /// The file on the node with the container's own seccomp profile, if it has one.
    pub fn seccomp_profile_path(&self) -> Option<&str> {
        match &self.security.seccomp {
            Some(Profile::Localhost(path)) if !self.security.privileged => Some(path),
            _ => None,
        }
    }
}

impl ContainerPlan {
    /// Puts the container under `profile` instead of the default one. The default stands in for it until
    /// then.
    ///
    /// # Errors
    /// The profile is invalid for the container.
    pub fn confine(&mut self, profile: &SeccompProfile) -> Result<(), SpecError> {
        let process = self.oci.process().as_ref();
        let sets = process.and_then(|process| process.capabilities().as_ref());
        let capabilities = sets.and_then(|sets| sets.bounding().clone()).unwrap_or_default();
        let seccomp = profile.for_capabilities(&capabilities)?;
        if let Some(linux) = self.oci.linux_mut() {
            linux.set_seccomp(Some(seccomp));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::Capability;

    use super::*;

    fn names(text: &str, capabilities: &[Capability]) -> Vec<String> {
        let profile = SeccompProfile::parse(text.as_bytes()).unwrap();
        let seccomp = profile.for_capabilities(&capabilities.iter().copied().collect()).unwrap();
        seccomp.syscalls().iter().flatten().flat_map(|rule| rule.names().clone()).collect()
    }

    #[test]
    fn a_plain_profile_becomes_itself() {
        let text = r#"{ "defaultAction": "SCMP_ACT_ALLOW", "defaultErrnoRet": 38,
            "architectures": ["SCMP_ARCH_X86_64"], "flags": ["SECCOMP_FILTER_FLAG_LOG"],
            "syscalls": [{ "names": ["chmod"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13, "args":
              [{ "index": 1, "value": 2, "valueTwo": 3, "op": "SCMP_CMP_MASKED_EQ" }] }] }"#;
        let seccomp =
            SeccompProfile::parse(text.as_bytes()).unwrap().for_capabilities(&Capabilities::new()).unwrap();
        let direct: LinuxSeccomp = serde_json::from_str(text).unwrap();
        assert_eq!(seccomp, direct);
    }

    #[test]
    fn rules_count_by_capability_architecture_and_kernel() {
        let text = r#"{ "defaultAction": "SCMP_ACT_ERRNO", "comment": "x", "syscalls": [
            { "name": "read", "action": "SCMP_ACT_ALLOW", "comment": "" },
            { "names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": { "caps": ["CAP_SYS_ADMIN"] } },
            { "names": ["clone"], "action": "SCMP_ACT_ALLOW", "excludes": { "caps": ["CAP_SYS_ADMIN"] } },
            { "names": ["arm"], "action": "SCMP_ACT_ALLOW", "includes": { "arches": ["arm64"] } },
            { "names": ["modify_ldt"], "action": "SCMP_ACT_ALLOW", "includes": { "arches": ["amd64", "x32"] } },
            { "names": ["not_here"], "action": "SCMP_ACT_ALLOW", "excludes": { "arches": ["amd64"] } },
            { "names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": { "minKernel": "4.8" } },
            { "names": ["future"], "action": "SCMP_ACT_ALLOW", "includes": { "minKernel": "7.0" } }
        ] }"#;
        assert_eq!(names(text, &[]), ["read", "clone", "modify_ldt", "ptrace"]);
        assert_eq!(names(text, &[Capability::SysAdmin]), ["read", "mount", "modify_ldt", "ptrace"]);
    }

    #[test]
    fn the_architecture_map_gives_the_guests_and_its_companions() {
        let text = r#"{ "defaultAction": "SCMP_ACT_ERRNO", "archMap": [
            { "architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"] },
            { "architecture": "SCMP_ARCH_SOME_NEW_ONE", "subArchitectures": null },
            { "architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"] } ] }"#;
        let profile = SeccompProfile::parse(text.as_bytes()).unwrap();
        let expected = vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32];
        assert_eq!(profile.architectures(), Some(expected));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, why) in [
            ("", "EOF"),
            ("{}", "defaultAction"),
            (r#"{ "defaultAction": "SCMP_ACT_MAYBE" }"#, "SCMP_ACT_MAYBE"),
            (r#"{ "defaultAction": "SCMP_ACT_NOTIFY" }"#, "listener"),
            (r#"{ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/x" }"#, "listener"),
            (r#"{ "defaultAction": "SCMP_ACT_ALLOW", "architectures": [], "archMap": [] }"#, "archMap"),
            (
                r#"{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "action": "SCMP_ACT_ERRNO" }] }"#,
                "names",
            ),
            (
                r#"{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                    { "name": "a", "action": "SCMP_ACT_ERRNO", "includes": { "minKernel": "new" } }] }"#,
                "minKernel",
            ),
        ] {
            let error = SeccompProfile::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("security_context.seccomp") && error.contains(why), "{error}");
        }
    }
}
