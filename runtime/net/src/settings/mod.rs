//! Settings that CNI plugins leave in a pod's namespace beside interfaces, addresses, routes and neighbours: sysctls, packet filters,
//! rules of routing, disciplines of queueing. The guest's frames pass the namespace by (`attach.rs`), so such a setting holds for nobody
//! there. Owns what becomes of it.
//!
//! ```text
//!   namespace ──► survey ──► plugin ──► survey ──► plugin ──► survey ──► Left ──► policy ──► PodSettings
//!                    └─────────── watch.rs ───────────┴──────────────────┘   └──► the pod is refused
//! ```
//!
//! `sysctl` and `setting` are what can be found, `survey` finds it (`netfilter` speaks nftables' netlink), `watch` knows the plugin.

mod netfilter;
mod setting;
mod survey;
mod sysctl;
mod watch;

pub(crate) use watch::Watch;

use watch::Left;

use crate::NetError;

/// Most settings that are listed one by one, in an error as in a pod's status.
const LISTED_MAX: usize = 32;

/// What becomes of the settings that plugins leave in a pod's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SettingsPolicy {
    /// The pod runs without them, and says so.
    #[default]
    Warn,
    /// The pod is refused.
    Refuse,
}

/// The settings of a pod's namespace, as they concern its VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSettings {
    /// The settings that hold nowhere, for people, each with its plugin; at most 33 lines.
    pub passed_by: Vec<String>,
}

impl SettingsPolicy {
    /// The policy's name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SettingsPolicy::Warn => "warn",
            SettingsPolicy::Refuse => "refuse",
        }
    }

    /// Decides about what is left.
    ///
    /// # Errors
    /// Something is left, and the policy refuses the pod.
    pub(crate) fn decide(self, left: &Left) -> Result<PodSettings, NetError> {
        let passed_by = left.list();
        if self == SettingsPolicy::Refuse && !passed_by.is_empty() {
            return Err(NetError::SettingsRefused { left: passed_by.join("; "), policy: self.name() });
        }
        Ok(PodSettings { passed_by })
    }
}

impl Left {
    /// One line for each setting, for people; of many the first ones, and how many more there are.
    fn list(&self) -> Vec<String> {
        let unread = self.unread.iter().map(|why| format!("the pod's namespace could not be read: {why}"));
        let settings = self.settings.iter().map(|(setting, plugin)| format!("{setting}, left by {plugin}"));
        let sysctls = self.sysctls.iter().map(|sysctl| {
            let (path, value) = (sysctl.path.escape_debug(), sysctl.value.escape_debug());
            format!("the sysctl {path} = {value}, left by {}", sysctl.plugin)
        });
        bounded(unread.chain(settings).chain(sysctls).collect())
    }
}

fn bounded(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LISTED_MAX {
        let more = lines.len() - LISTED_MAX;
        lines.truncate(LISTED_MAX);
        lines.push(format!("{more} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{setting::Setting, watch::LeftSysctl, *};

    fn left(tables: usize) -> Left {
        let table = |n| (Setting::NftTable { family: 2, name: format!("t{n}") }, "mesh".to_owned());
        let sysctl =
            LeftSysctl { path: "net/core/somaxconn".into(), value: "9".into(), plugin: "tuning".into() };
        Left { sysctls: vec![sysctl], settings: (0..tables).map(table).collect(), unread: None }
    }

    #[test]
    fn a_pod_whose_plugins_left_nothing_is_never_refused() {
        for policy in [SettingsPolicy::Warn, SettingsPolicy::Refuse] {
            assert_eq!(policy.decide(&Left::default()).unwrap(), PodSettings::default());
        }
    }

    #[test]
    fn a_refusal_names_each_setting_its_plugin_and_the_key_that_refuses() {
        let error = SettingsPolicy::Refuse.decide(&left(1)).unwrap_err().to_string();
        for part in [
            "the nftables table ip t0, left by mesh",
            "the sysctl net/core/somaxconn = 9, left by tuning",
            "cni.settings = \"refuse\"",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(SettingsPolicy::Warn.decide(&left(1)).unwrap().passed_by.len(), 2);
    }

    #[test]
    fn many_settings_are_counted_and_not_all_listed() {
        let listed = SettingsPolicy::Warn.decide(&left(4000)).unwrap().passed_by;
        assert_eq!(listed.len(), LISTED_MAX + 1);
        assert_eq!(listed[LISTED_MAX], "3969 more");
    }

    #[test]
    fn a_namespace_that_could_not_be_read_is_refused_where_settings_are() {
        let left = Left { unread: Some("no such file".into()), ..Left::default() };
        assert!(SettingsPolicy::Refuse.decide(&left).is_err());
        assert!(SettingsPolicy::Warn.decide(&left).unwrap().passed_by[0].contains("no such file"));
    }
}
