//! Changes of a configuration: the keys with changed values, and those used after a reload. The table in
//! `keys.rs` decides this for each key. Pure.

use super::check;
use super::keys::Takes;
use super::setting::{Setting, find};
use super::{Config, Loaded};

/// A key with a changed value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// The key, as in [`Setting`].
    pub(crate) key: String,
    /// The old value; `None` for a key that was unset or missing.
    pub(crate) from: Option<toml::Value>,
    /// The new value; `None` for a key that is unset or missing.
    pub(crate) to: Option<toml::Value>,
    /// When the new value takes effect.
    pub(crate) takes: Takes,
}

/// The keys with different values, in the order of the table of keys. Those of removed handlers come last.
pub(crate) fn changes(before: &[Setting], now: &[Setting]) -> Vec<Change> {
    let value = |all: &[Setting], key: &str| all.iter().find(|setting| setting.key == key)?.value.clone();
    let gone = before.iter().filter(|old| now.iter().all(|new| new.key != old.key));
    let keys = now.iter().chain(gone).map(|setting| &setting.key);
    let changes = keys.map(|key| Change {
        key: key.clone(),
        from: value(before, key),
        to: value(now, key),
        takes: takes(key),
    });
    changes.filter(|change| change.from != change.to).collect()
}

/// When a key's new value takes effect.
pub(super) fn takes(key: &str) -> Takes {
    find(key).map_or(Takes::Restart, |(_, key)| key.takes)
}

/// Returns `now` for the keys of a reload. All other keys stay as in `before`.
///
/// # Errors
/// The new values of a reload contradict values that stay; for people.
pub(crate) fn taken_up(before: &Loaded, now: &Loaded) -> Result<Loaded, String> {
    let config = Config {
        paths: before.config.paths.clone(),
        isolation: now.config.isolation.clone(),
        cni: super::Cni { cache_dir: before.config.cni.cache_dir.clone(), ..now.config.cni.clone() },
        cgroup: super::Cgroup { driver: before.config.cgroup.driver, ..now.config.cgroup.clone() },
        registries: now.config.registries.clone(),
        streaming: before.config.streaming.clone(),
        metrics: now.config.metrics.clone(),
        traces: before.config.traces.clone(),
        log: super::Log { format: before.config.log.format, ..now.config.log.clone() },
        nri: before.config.nri.clone(),
        upstream: before.config.upstream.clone(),
        handler: now.config.handler.clone(),
    };
    check::check(&config).map_err(|found| {
        format!(
            "{}: {}, with keys that count after a restart only as they are in force",
            found.key, found.message
        )
    })?;
    let in_force = |setting: &Setting| {
        let old = before.settings.iter().find(|old| old.key == setting.key);
        match old.filter(|old| takes(&setting.key) == Takes::Restart && old.value != setting.value) {
            Some(old) => old.clone(),
            None => setting.clone(),
        }
    };
    Ok(Loaded { config, settings: now.settings.iter().map(in_force).collect(), ..now.clone() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::parse;
    use super::super::setting::settings;
    use super::*;

    fn loaded(text: &str) -> Loaded {
        parse(Path::new("/c"), text).unwrap()
    }

    /// A configuration with no key at its default, except for the tenancy: it contradicts some of the others.
    const OTHER: &str = r#"
        [paths]
        state = "/x/s"
        run = "/x/r"
        socket = "/x/k"
        vmm = "/x/v"
        guest_image = "/x/g"
        [isolation]
        walls = "require"
        [cni]
        conf_dir = "/x/c"
        bin_dirs = ["/x/b"]
        cache_dir = "/x/h"
        conf_template = "/x/t"
        settings = "refuse"
        spare_namespaces = 9
        [cgroup]
        driver = "cgroupfs"
        strict = true
        [registries]
        insecure = ["lab"]
        config_dir = "/x/m"
        pinned = ["r.example/x"]
        [streaming]
        address = "127.0.0.1:9"
        certificate = "/x/p"
        key = "/x/q"
        [metrics]
        address = "127.0.0.1:8"
        [traces]
        endpoint = "http://127.0.0.1:7"
        sample = 0.5
        [log]
        level = "debug"
        format = "json"
        [nri]
        enabled = false
        socket = "/nri"
        connections = false
        plugin_dir = "/nri"
        plugin_conf_dir = "/nri"
        registration_timeout_seconds = 9
        request_timeout_seconds = 9
        unsupported = "ignore"
        [upstream]
        socket = "/x/u"
        handlers = ["crun"]
        unnamed_pods = "none"
        [[handler]]
        name = "podvisor"
        default = true
        memory_mib = 1
        memory_max_mib = 2
        vcpus_max = 3
        scratch_mib = 4
        scratch_sum_mib = 5
        writable_layer_mib = 6
        share_all_volumes = true
        volume_cache = "auto"
        host_sockets = ["/x/z"]
        kernel = "full"
        template = "namespace"
        spare_vms = 7
    "#;

    #[test]
    fn a_reload_takes_up_each_key_that_the_reference_says_and_no_other() {
        let (before, now) = (loaded(""), loaded(OTHER));
        let all = changes(&before.settings, &now.settings);
        // All keys but the handler's name and the tenancy.
        assert_eq!(all.len(), before.settings.len() - 2);
        let after = taken_up(&before, &now).unwrap();
        let (old, new) = (settings_of(&before.config), settings_of(&now.config));
        for (index, setting) in settings_of(&after.config).into_iter().enumerate() {
            let expected = if takes(&setting.key) == Takes::Reload { &new } else { &old };
            assert_eq!(setting.value, expected[index].value, "{}", setting.key);
            assert_eq!(after.settings[index].value, setting.value, "{}", setting.key);
        }
        let waiting = changes(&after.settings, &now.settings);
        assert!(!waiting.is_empty() && waiting.iter().all(|change| change.takes == Takes::Restart));
    }

    fn settings_of(config: &Config) -> Vec<Setting> {
        settings(config, |_| super::super::setting::Origin::Default)
    }

    #[test]
    fn hostile_tenants_are_taken_up_with_what_they_change_unless_what_stays_contradicts() {
        let after = taken_up(&loaded(""), &loaded("[isolation]\ntenancy = \"hostile\"\n")).unwrap();
        assert!(after.config.cgroup.strict);
        let changed = changes(&loaded("").settings, &after.settings);
        assert!(
            changed.len() == 5 && changed.iter().all(|change| change.takes == Takes::Reload),
            "{changed:?}"
        );
        let before = loaded("[upstream]\nsocket = \"/u\"\nunnamed_pods = \"all\"\n");
        let now = loaded("[isolation]\ntenancy = \"hostile\"\n[upstream]\nsocket = \"/u\"\n");
        let why = taken_up(&before, &now).unwrap_err();
        assert!(why.starts_with("upstream.unnamed_pods: ") && why.contains("restart"), "{why}");
    }

    #[test]
    fn a_key_that_moved_to_another_line_has_not_changed() {
        let (before, now) = (loaded("[paths]\nrun = \"/r\"\n"), loaded("\n\n[paths]\nrun = \"/r\"\n"));
        assert_eq!(changes(&before.settings, &now.settings), []);
        let after = taken_up(&before, &now).unwrap();
        assert_eq!(after.settings, now.settings);
    }

    #[test]
    fn handlers_are_compared_by_their_names_and_not_by_their_order() {
        let before = loaded("[[handler]]\nname = \"a\"\n[[handler]]\nname = \"b\"\nvcpus_max = 2\n");
        let now = loaded("[[handler]]\nname = \"b\"\nvcpus_max = 3\n[[handler]]\nname = \"a\"\n");
        let all = changes(&before.settings, &now.settings);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!((all[0].key.as_str(), all[0].takes), ("handler.b.vcpus_max", Takes::Reload));
        let gone = changes(&before.settings, &loaded("[[handler]]\nname = \"b\"\nvcpus_max = 2\n").settings);
        assert!(!gone.is_empty() && gone.iter().all(|change| change.key.starts_with("handler.a.")));
        assert!(gone.iter().all(|change| change.to.is_none()));
    }

    #[test]
    fn a_handler_that_moves_between_runtimes_needs_a_restart() {
        let before = loaded("[upstream]\nsocket = \"/u\"\nhandlers = [\"a\"]\n");
        let now = loaded("[upstream]\nsocket = \"/u\"\nhandlers = [\"b\"]\n[[handler]]\nname = \"a\"\n");
        let why = taken_up(&before, &now).unwrap_err();
        assert!(why.contains("handler \"a\" is there twice") && why.contains("restart"), "{why}");
    }
}
