//! Watches a pod's namespace while plugins run. It surveys the namespace before the first plugin and after
//! each one, and so attributes every remaining setting to a plugin. An unreadable namespace stops no plugin;
//! the final result then reports it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    left::{Left, PodSysctl},
    netfilter,
    nft::{self, TableKey, TableMessages},
    setting::Setting,
    survey::Survey,
    sysctl,
    sysctl_files::SysctlFiles,
};
use crate::{NetError, netns};

/// A namespace under watch.
#[derive(Debug)]
pub(crate) struct Watch {
    netns: PathBuf,
    fresh: Arc<Survey>,
    last: Arc<Survey>,
    files: SysctlFiles,
    sysctl_plugins: BTreeMap<String, String>,
    setting_plugins: BTreeMap<Setting, String>,
    unread: Option<String>,
}

impl Watch {
    /// Starts with a namespace before any plugin.
    pub(crate) async fn begin(netns: &Path) -> Watch {
        let mut watch = Watch::of(netns, Survey::default(), SysctlFiles::default());
        if let Some(fresh) = watch.survey().await {
            watch.fresh = Arc::new(fresh);
            watch.last = Arc::clone(&watch.fresh);
        }
        watch
    }

    /// Starts with a namespace before any plugin, with its survey and its open files.
    pub(crate) fn of(netns: &Path, fresh: Survey, files: SysctlFiles) -> Watch {
        let fresh = Arc::new(fresh);
        Watch {
            netns: netns.to_owned(),
            last: Arc::clone(&fresh),
            fresh,
            files,
            sysctl_plugins: BTreeMap::new(),
            setting_plugins: BTreeMap::new(),
            unread: None,
        }
    }

    /// Surveys the namespace after this plugin.
    pub(crate) async fn after(&mut self, plugin: &str) {
        if self.unread.is_none()
            && let Some(now) = self.survey().await
        {
            self.note(plugin, now);
        }
    }

    async fn survey(&mut self) -> Option<Survey> {
        let files = std::mem::take(&mut self.files);
        match netns::within(&self.netns, |handle| Survey::take(handle, files)).await {
            Ok((survey, files)) => {
                self.files = files;
                Some(survey)
            }
            Err(error) => {
                self.unread = Some(error.chain());
                None
            }
        }
    }

    /// Attributes the new settings to this plugin.
    fn note(&mut self, plugin: &str, now: Survey) {
        let new_interfaces = |path: &String| !self.last.sysctls.contains(path);
        let changed = sysctl::changes(&self.last.sysctls, &now.sysctls).map(|(path, _)| path);
        // If an earlier plugin changed a default, a new interface shows no difference to that default. Only
        // the fresh namespace shows it.
        let against_fresh = (!Arc::ptr_eq(&self.fresh, &self.last))
            .then(|| sysctl::changes(&self.fresh.sysctls, &now.sysctls).map(|(path, _)| path));
        for path in changed.chain(against_fresh.into_iter().flatten().filter(new_interfaces)) {
            self.sysctl_plugins.insert(path, plugin.to_owned());
        }
        for setting in now.settings.difference(&self.last.settings) {
            self.setting_plugins.insert(setting.clone(), plugin.to_owned());
        }
        self.last = Arc::new(now);
    }

    /// Takes the open files after the last survey.
    pub(crate) fn take_files(&mut self) -> SysctlFiles {
        std::mem::take(&mut self.files)
    }

    /// Ends the watch and returns the remaining settings. With `with_tables`, they include the contents of
    /// the nftables tables.
    pub(crate) async fn end(self, with_tables: bool) -> Left {
        let netns = self.netns.clone();
        let mut left = self.left();
        let keys = left.settings.iter().filter_map(|(setting, _)| match setting {
            Setting::NftTable { family, name } => Some((*family, name.clone())),
            _ => None,
        });
        let keys: Vec<TableKey> = keys.collect();
        if with_tables && !keys.is_empty() {
            left.tables = netns::within(&netns, read_tables).await.unwrap_or_else(|error| {
                let why = error.chain();
                keys.into_iter().map(|key| (key, Err(why.clone()))).collect()
            });
        }
        left
    }

    fn left(mut self) -> Left {
        let mut sysctls: Vec<PodSysctl> = sysctl::changes(&self.fresh.sysctls, &self.last.sysctls)
            .map(|(path, value)| {
                let plugin = self.sysctl_plugins.remove(&path).unwrap_or_default();
                PodSysctl { path, value: value.to_owned(), plugin }
            })
            .collect();
        sysctls.sort_by_key(|sysctl| rank(&sysctl.path));
        let settings = self.last.settings.difference(&self.fresh.settings);
        let settings = settings
            .map(|setting| (setting.clone(), self.setting_plugins.remove(setting).unwrap_or_default()))
            .collect();
        Left { sysctls, settings, tables: Vec::new(), unread: self.unread }
    }
}

async fn read_tables(_: rtnetlink::Handle) -> Result<Vec<TableMessages>, NetError> {
    let ruleset = netfilter::ruleset()
        .map_err(|source| NetError::Settings { what: "the contents of the nftables tables", source })?;
    Ok(nft::messages(&ruleset))
}

/// Returns a sysctl's place in the write order. A sysctl of the whole namespace (`ip_forward`) writes to
/// `all`, and `all` writes to every interface. No other sysctl writes to another.
fn rank(path: &str) -> u8 {
    match path.split('/').nth(3) {
        Some("all") => 1,
        Some("default") => 2,
        Some(_) if path.split('/').count() > 4 => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(sysctls: &[(&str, &str)], tables: &[&str]) -> Survey {
        let sysctls = sysctls.iter().map(|(path, value)| ((*path).into(), (*value).into())).collect();
        let settings =
            tables.iter().map(|name| Setting::NftTable { family: 2, name: (*name).into() }).collect();
        Survey { sysctls, settings }
    }

    fn watch(fresh: Survey) -> Watch {
        Watch::of(Path::new("/n"), fresh, SysctlFiles::default())
    }

    #[test]
    fn what_is_left_has_the_name_of_the_plugin_that_did_it() {
        let mut watch = watch(survey(&[("net/a", "0"), ("net/b", "0")], &[]));
        watch.note("bridge", survey(&[("net/a", "1"), ("net/b", "0")], &["filter"]));
        watch.note("mesh", survey(&[("net/a", "2"), ("net/b", "3")], &["filter", "nat"]));
        let left = watch.left();
        let sysctls: Vec<_> = left.sysctls.iter().map(|s| (&*s.path, &*s.value, &*s.plugin)).collect();
        assert_eq!(sysctls, [("net/a", "2", "mesh"), ("net/b", "3", "mesh")]);
        let settings: Vec<_> = left.settings.iter().map(|(s, plugin)| (s.to_string(), &**plugin)).collect();
        assert_eq!(
            settings,
            [
                ("the nftables table ip filter".to_owned(), "bridge"),
                ("the nftables table ip nat".to_owned(), "mesh")
            ]
        );
        assert_eq!(left.unread, None);
    }

    #[test]
    fn what_a_later_plugin_takes_back_is_not_left() {
        let fresh = survey(&[("net/a", "0")], &[]);
        let mut watch = watch(fresh.clone());
        watch.note("one", survey(&[("net/a", "1")], &["nat"]));
        watch.note("two", fresh);
        assert_eq!(watch.left(), Left::default());
    }

    #[test]
    fn an_interface_made_under_a_changed_default_is_named_with_its_own_plugin() {
        let fresh = survey(&[("net/ipv4/conf/default/rp_filter", "0")], &[]);
        let mut watch = watch(fresh);
        watch.note("first", survey(&[("net/ipv4/conf/default/rp_filter", "1")], &[]));
        let both = [("net/ipv4/conf/default/rp_filter", "1"), ("net/ipv4/conf/eth0/rp_filter", "1")];
        watch.note("second", survey(&both, &[]));
        let plugins: Vec<_> = watch.left().sysctls.into_iter().map(|sysctl| sysctl.plugin).collect();
        assert_eq!(plugins, ["first", "second"]);
    }

    #[test]
    fn a_sysctl_that_sets_others_comes_before_them() {
        let paths = [
            "net/ipv4/conf/all/forwarding",
            "net/ipv4/conf/default/forwarding",
            "net/ipv4/conf/eth0/forwarding",
            "net/ipv4/ip_forward",
        ];
        let with = |value| paths.map(|path| (path, value));
        let mut watch = watch(survey(&with("0"), &[]));
        watch.note("tuning", survey(&with("1"), &[]));
        let order: Vec<_> = watch.left().sysctls.into_iter().map(|sysctl| sysctl.path).collect();
        assert_eq!(order, [paths[3], paths[0], paths[1], paths[2]]);
    }

    #[tokio::test]
    async fn a_namespace_that_cannot_be_read_is_said_to_be_so() {
        let mut watch = Watch::begin(Path::new("/nowhere/netns")).await;
        watch.after("bridge").await;
        let unread = watch.end(true).await.unread.unwrap();
        assert!(unread.contains("/nowhere/netns"), "{unread}");
    }
}
