//! The policy for settings left by plugins: replay in the guest, refuse, or warn. Pure.

use super::{
    left::{Left, PodSysctl},
    setting::{Setting, family_name},
};
use crate::NetError;

/// Most settings listed individually, in an error and in a pod's status.
const LISTED_MAX: usize = 32;

/// Most bytes of replayed sysctls, including their paths. A plugin sets some tens at most. The message to the
/// agent also holds the firewall rules, and its limit is 4 MiB (ttrpc).
const SYSCTL_BYTES_MAX: usize = 256 * 1024;

/// How to treat settings left by plugins in a pod's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SettingsPolicy {
    /// Replayable settings are set in the guest. The pod runs without the rest and reports it.
    #[default]
    Replay,
    /// Replayable settings are set in the guest. A pod with any others is refused.
    ReplayOrRefuse,
    /// The pod runs without the settings and reports it.
    Warn,
    /// The pod is refused.
    Refuse,
}

/// The settings of a pod's namespace, as they concern its VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSettings {
    /// Sysctls for the guest, in the order of writing.
    pub sysctls: Vec<PodSysctl>,
    /// Firewall tables for the guest.
    pub nft_tables: Vec<PodNftTable>,
    /// Human-readable list of settings without effect, each with its plugin; at most 33 lines.
    pub passed_by: Vec<String>,
    /// The policy for settings not accepted by the guest.
    pub policy: SettingsPolicy,
}

/// An nftables table left by a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNftTable {
    /// Family and name, as `nft` writes them.
    pub name: String,
    /// The plugin's name.
    pub plugin: String,
    /// The netlink messages to create the table, at most some MiB for all tables of a pod.
    pub messages: Vec<u8>,
}

impl SettingsPolicy {
    /// The policy's name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SettingsPolicy::Replay => "replay",
            SettingsPolicy::ReplayOrRefuse => "replay-or-refuse",
            SettingsPolicy::Warn => "warn",
            SettingsPolicy::Refuse => "refuse",
        }
    }

    /// Returns true if settings are replayed in the guest.
    pub(crate) fn replays(self) -> bool {
        matches!(self, SettingsPolicy::Replay | SettingsPolicy::ReplayOrRefuse)
    }

    /// Applies the policy to the settings.
    ///
    /// # Errors
    /// The guest will not have some setting, and the policy refuses such a pod.
    pub(crate) fn decide(self, left: Left) -> Result<PodSettings, NetError> {
        let settings = if self.replays() { self.divide(left) } else { self.keep_none(&left) };
        settings.check()?;
        Ok(settings)
    }

    fn keep_none(self, left: &Left) -> PodSettings {
        let unread = left.unread.iter().map(|why| unread(why));
        let settings = left.settings.iter().map(|(setting, plugin)| by(setting, plugin));
        let sysctls = left.sysctls.iter().map(PodSysctl::line);
        let passed_by = bounded(unread.chain(settings).chain(sysctls).collect());
        PodSettings { passed_by, policy: self, ..PodSettings::default() }
    }

    /// Splits the settings into those for the guest and those without effect.
    fn divide(self, mut left: Left) -> PodSettings {
        let mut passed_by: Vec<_> = left.unread.iter().map(|why| unread(why)).collect();
        let mut nft_tables = Vec::new();
        for (setting, plugin) in left.settings {
            match &setting {
                Setting::NftTable { family, name } => {
                    let place = left.tables.iter().position(|(key, _)| (key.0, &key.1) == (*family, name));
                    let made =
                        place.map(|place| std::mem::replace(&mut left.tables[place].1, Ok(Vec::new())));
                    let name = format!("{} {name}", family_name(*family));
                    match made.unwrap_or_else(|| Err("it has gone since".into())) {
                        Ok(messages) => nft_tables.push((place, PodNftTable { name, plugin, messages })),
                        Err(why) => passed_by.push(format!("{}: {why}", by(&setting, &plugin))),
                    }
                }
                Setting::LegacyTable { .. } => {
                    let line = by(&setting, &plugin);
                    passed_by.push(format!(
                        "{line}: guests have nftables alone; iptables-nft makes the same rules"
                    ));
                }
                _ => passed_by.push(by(&setting, &plugin)),
            }
        }
        let bytes: usize = left.sysctls.iter().map(|sysctl| sysctl.path.len() + sysctl.value.len()).sum();
        let mut sysctls = Vec::new();
        if bytes > SYSCTL_BYTES_MAX {
            let many = left.sysctls.len();
            passed_by.push(format!("{many} sysctls with more than {SYSCTL_BYTES_MAX} bytes together"));
        } else {
            sysctls = left.sysctls;
        }
        nft_tables.sort_by_key(|(place, _)| *place);
        let nft_tables = nft_tables.into_iter().map(|(_, table)| table).collect();
        PodSettings { sysctls, nft_tables, passed_by: bounded(passed_by), policy: self }
    }
}

impl PodSettings {
    /// Records the settings not accepted by the guest: sysctls and tables by their number, each with the
    /// reason. Numbers out of range are ignored.
    ///
    /// # Errors
    /// The guest did not accept some setting, and the policy refuses such a pod.
    pub fn not_taken(
        mut self,
        sysctls: &[(usize, String)],
        nft_tables: &[(usize, String)],
    ) -> Result<PodSettings, NetError> {
        let mut lines = std::mem::take(&mut self.passed_by);
        for (number, why) in nft_tables {
            if let Some(table) = self.nft_tables.get(*number) {
                lines.push(format!("{}: {why}", table.line()));
            }
        }
        for (number, why) in sysctls {
            if let Some(sysctl) = self.sysctls.get(*number) {
                lines.push(format!("{}: {why}", sysctl.line()));
            }
        }
        self.passed_by = bounded(lines);
        self.check()?;
        Ok(self)
    }

    /// Records all settings as not accepted, for an agent without support for them.
    ///
    /// # Errors
    /// As for [`PodSettings::not_taken`].
    pub fn taken_by_nobody(self, why: &str) -> Result<PodSettings, NetError> {
        let all = |count: usize| (0..count).map(|number| (number, why.to_owned())).collect::<Vec<_>>();
        let (sysctls, tables) = (all(self.sysctls.len()), all(self.nft_tables.len()));
        self.not_taken(&sysctls, &tables)
    }

    fn check(&self) -> Result<(), NetError> {
        let refuses = matches!(self.policy, SettingsPolicy::Refuse | SettingsPolicy::ReplayOrRefuse);
        if refuses && !self.passed_by.is_empty() {
            let left = self.passed_by.join("; ");
            return Err(NetError::SettingsRefused { left, policy: self.policy.name() });
        }
        Ok(())
    }
}

impl PodSysctl {
    fn line(&self) -> String {
        let (path, value) = (self.path.escape_debug(), self.value.escape_debug());
        format!("the sysctl {path} = {value}, left by {}", self.plugin)
    }
}

impl PodNftTable {
    fn line(&self) -> String {
        format!("the nftables table {}, left by {}", self.name.escape_debug(), self.plugin)
    }
}

fn by(setting: &Setting, plugin: &str) -> String {
    format!("{setting}, left by {plugin}")
}

fn unread(why: &str) -> String {
    format!("the pod's namespace could not be read: {why}")
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
    use super::*;

    const ALL: [SettingsPolicy; 4] = [
        SettingsPolicy::Replay,
        SettingsPolicy::ReplayOrRefuse,
        SettingsPolicy::Warn,
        SettingsPolicy::Refuse,
    ];

    fn table(name: &str) -> (Setting, String) {
        (Setting::NftTable { family: 2, name: name.into() }, "mesh".to_owned())
    }

    /// A sysctl, and this many tables suitable for a guest.
    fn left(tables: usize) -> Left {
        let sysctl =
            PodSysctl { path: "net/core/somaxconn".into(), value: "9".into(), plugin: "tuning".into() };
        let names = (0..tables).map(|number| format!("t{number}"));
        Left {
            sysctls: vec![sysctl],
            settings: names.clone().map(|name| table(&name)).collect(),
            tables: names.rev().map(|name| ((2, name), Ok(vec![1]))).collect(),
            unread: None,
        }
    }

    #[test]
    fn a_pod_whose_plugins_left_nothing_is_never_refused() {
        for policy in ALL {
            let expected = PodSettings { policy, ..PodSettings::default() };
            assert_eq!(policy.decide(Left::default()).unwrap(), expected);
        }
    }

    #[test]
    fn a_refusal_names_each_setting_its_plugin_and_the_key_that_refuses() {
        let error = SettingsPolicy::Refuse.decide(left(1)).unwrap_err().to_string();
        for part in [
            "the nftables table ip t0, left by mesh",
            "the sysctl net/core/somaxconn = 9, left by tuning",
            "cni.settings = \"refuse\"",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(SettingsPolicy::Warn.decide(left(1)).unwrap().passed_by.len(), 2);
    }

    #[test]
    fn what_a_guest_can_have_is_for_the_guest_in_the_kernels_order() {
        for policy in [SettingsPolicy::Replay, SettingsPolicy::ReplayOrRefuse] {
            let settings = policy.decide(left(2)).unwrap();
            assert_eq!((settings.sysctls.len(), settings.nft_tables.len()), (1, 2));
            assert_eq!((settings.nft_tables[0].name.as_str(), settings.passed_by.len()), ("ip t1", 0));
        }
    }

    #[test]
    fn what_no_guest_can_have_is_passed_by_or_refused() {
        let mut left = left(1);
        left.tables = vec![((2, "t0".into()), Err("a rule matches a cgroup".into()))];
        let legacy = Setting::LegacyTable { tool: "iptables", name: "nat".into() };
        left.settings.push((legacy, "istio-cni".into()));
        let settings = SettingsPolicy::Replay.decide(left.clone()).unwrap();
        assert_eq!((settings.sysctls.len(), settings.nft_tables.len()), (1, 0));
        assert!(settings.passed_by[0].ends_with("left by mesh: a rule matches a cgroup"));
        assert!(settings.passed_by[1].contains("iptables table nat (legacy iptables), left by istio-cni"));
        let error = SettingsPolicy::ReplayOrRefuse.decide(left).unwrap_err().to_string();
        assert!(error.contains("\"replay-or-refuse\" refuses") && error.contains("istio-cni"), "{error}");
    }

    #[test]
    fn what_a_guest_does_not_take_is_passed_by_or_refused() {
        let settings = |policy: SettingsPolicy| policy.decide(left(2)).unwrap();
        let sysctls = [(0, "no such file".to_owned()), (7, "beyond".to_owned())];
        let tables = [(1, "the kernel refused it".to_owned())];
        let after = settings(SettingsPolicy::Replay).not_taken(&sysctls, &tables).unwrap();
        let expected = [
            "the nftables table ip t0, left by mesh: the kernel refused it",
            "the sysctl net/core/somaxconn = 9, left by tuning: no such file",
        ];
        assert_eq!(after.passed_by, expected);
        assert!(settings(SettingsPolicy::ReplayOrRefuse).not_taken(&sysctls, &tables).is_err());
        assert!(settings(SettingsPolicy::ReplayOrRefuse).not_taken(&[], &[]).is_ok());
        let old = settings(SettingsPolicy::Replay).taken_by_nobody("an old agent").unwrap();
        assert_eq!(old.passed_by.len(), 3);
    }

    #[test]
    fn many_settings_are_counted_and_not_all_listed() {
        let listed = SettingsPolicy::Warn.decide(left(4000)).unwrap().passed_by;
        assert_eq!(listed.len(), LISTED_MAX + 1);
        assert_eq!(listed[LISTED_MAX], "3969 more");
    }

    #[test]
    fn sysctls_beyond_the_bound_are_counted_and_not_sent() {
        let mut left = left(0);
        left.sysctls[0].value = "x".repeat(SYSCTL_BYTES_MAX);
        let settings = SettingsPolicy::Replay.decide(left).unwrap();
        assert_eq!(settings.sysctls, []);
        assert!(settings.passed_by[0].starts_with("1 sysctls"), "{settings:?}");
    }

    #[test]
    fn a_namespace_that_could_not_be_read_is_refused_where_settings_are() {
        let left = Left { unread: Some("no such file".into()), ..Left::default() };
        assert!(SettingsPolicy::Refuse.decide(left.clone()).is_err());
        assert!(SettingsPolicy::ReplayOrRefuse.decide(left.clone()).is_err());
        assert!(SettingsPolicy::Warn.decide(left).unwrap().passed_by[0].contains("no such file"));
    }
}
