//! The preset for hostile tenants. `isolation.tenancy = "hostile"` presets keys all over the file. A file
//! with a contradiction to it is refused. Pure.

use runtime_spec::{TemplateScope, VolumeCache};

use super::isolation::Walls;
use super::{Config, Handler, Settings, UnnamedPods};

/// The preset's own key.
pub(super) const TENANCY: &str = "isolation.tenancy";

/// Sets keys missing in the file to the preset's values, if the file asks for a preset. Returns these keys,
/// as in `cgroup.strict` and `handler[0].template`. `is_set` returns true if the file has such a key.
pub(super) fn preset(config: &mut Config, is_set: impl Fn(&str) -> bool) -> Vec<String> {
    let mut preset = Vec::new();
    if !config.isolation.is_hostile() {
        return preset;
    }
    let mut is_free = |key: String| {
        let is_free = !is_set(&key);
        preset.extend(is_free.then_some(key));
        is_free
    };
    if is_free("isolation.walls".into()) {
        config.isolation.walls = Walls::Require;
    }
    if is_free("cgroup.strict".into()) {
        config.cgroup.strict = true;
    }
    if is_free("cni.settings".into()) {
        config.cni.settings = Settings::ReplayOrRefuse;
    }
    // The default handler, without any table.
    if config.handler.is_empty() {
        config.handler = vec![Handler::default()];
    }
    for (index, handler) in config.handler.iter_mut().enumerate() {
        if is_free(format!("handler[{index}].template")) {
            handler.template = TemplateScope::Namespace;
        }
    }
    preset
}

/// Returns the first key in contradiction to hostile tenants, and the reason.
pub(super) fn wrong(config: &Config) -> Option<(String, String)> {
    if !config.isolation.is_hostile() {
        return None;
    }
    let of_handlers = config.handler.iter().enumerate().find_map(|(index, handler)| {
        let (key, why) = wrong_for_handler(handler)?;
        Some((format!("handler[{index}].{key}"), why))
    });
    let of_node = || wrong_for_node(config).map(|(key, why)| (key.to_owned(), why));
    let (key, why) = of_node().or(of_handlers)?;
    Some((key, format!("{why}, and {TENANCY} is \"hostile\"")))
}

fn wrong_for_node(config: &Config) -> Option<(&'static str, &'static str)> {
    let Config { isolation, cgroup, cni, metrics, upstream, .. } = config;
    if isolation.walls != Walls::Require {
        return Some(("isolation.walls", "pods would start in spite of walls missing on the node"));
    }
    if !cgroup.strict {
        return Some(("cgroup.strict", "a VMM could be where nothing limits it"));
    }
    if matches!(cni.settings, Settings::Replay | Settings::Warn) {
        return Some(("cni.settings", "a pod would run without a CNI plugin's filter for it"));
    }
    if metrics.address.is_some_and(|address| !address.ip().is_loopback()) {
        let why = "pods with a way to the node could read the names of others' pods and images there";
        return Some(("metrics.address", why));
    }
    if upstream.socket.is_some() && upstream.unnamed_pods == UnnamedPods::All {
        return Some(("upstream.unnamed_pods", "every pod without a named handler would run without a VM"));
    }
    None
}

fn wrong_for_handler(handler: &Handler) -> Option<(&'static str, &'static str)> {
    if handler.template == TemplateScope::Node {
        return Some(("template", "pods of different namespaces would share the pages of one booted VM"));
    }
    if handler.volume_cache == VolumeCache::Always {
        return Some((
            "volume_cache",
            "a guest would miss for a day if the node takes a right to a file away",
        ));
    }
    if !handler.host_sockets.is_empty() {
        return Some(("host_sockets", "pods would speak with programs of the node"));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::setting::Origin;
    use super::super::{Loaded, file};
    use super::*;

    fn parse(text: &str) -> Result<Loaded, String> {
        file::parse(Path::new("/c"), text).map_err(|error| error.to_string())
    }

    fn hostile(rest: &str) -> Result<Loaded, String> {
        parse(&format!("[isolation]\ntenancy = \"hostile\"\n{rest}"))
    }

    #[test]
    fn hostile_tenants_change_the_defaults_of_what_keeps_them_apart() {
        let loaded = hostile("").unwrap();
        let config = &loaded.config;
        assert_eq!((config.isolation.walls, config.cgroup.strict), (Walls::Require, true));
        assert_eq!(config.cni.settings, Settings::ReplayOrRefuse);
        let (handlers, default) = config.handlers();
        assert_eq!((handlers.len(), handlers[0].template), (1, TemplateScope::Namespace));
        assert_eq!(default.as_deref(), Some("podvisor"));
        let of_preset = Origin::Preset { key: TENANCY.into() };
        let keys = loaded.settings.iter().filter(|setting| setting.origin == of_preset);
        let keys: Vec<_> = keys.map(|setting| setting.key.as_str()).collect();
        let expected = ["cni.settings", "cgroup.strict", "isolation.walls", "handler.podvisor.template"];
        assert_eq!(keys.len(), expected.len());
        assert!(expected.iter().all(|key| keys.contains(key)), "{keys:?}");
        let trusted = parse("").unwrap().config;
        assert_eq!((trusted.isolation.walls, trusted.cgroup.strict), (Walls::Report, false));
        assert_eq!(trusted.handlers().0[0].template, TemplateScope::Node);
    }

    #[test]
    fn what_is_stricter_than_the_preset_stays() {
        let loaded = hostile(
            "[cni]\nsettings = \"refuse\"\n[[handler]]\ntemplate = \"off\"\n[[handler]]\nname = \"b\"\n",
        );
        let config = loaded.unwrap().config;
        assert_eq!(config.cni.settings, Settings::Refuse);
        let templates: Vec<_> = config.handler.iter().map(|handler| handler.template).collect();
        assert_eq!(templates, [TemplateScope::Off, TemplateScope::Namespace]);
    }

    #[test]
    fn what_contradicts_hostile_tenants_is_refused_by_its_key() {
        for (text, key) in [
            ("walls = \"report\"\n", "isolation.walls"),
            ("[cgroup]\nstrict = false\n", "cgroup.strict"),
            ("[cni]\nsettings = \"replay\"\n", "cni.settings"),
            ("[cni]\nsettings = \"warn\"\n", "cni.settings"),
            ("[metrics]\naddress = \"0.0.0.0:9134\"\n", "metrics.address"),
            ("[upstream]\nsocket = \"/c\"\nunnamed_pods = \"all\"\n", "upstream.unnamed_pods"),
            ("[[handler]]\ntemplate = \"node\"\n", "handler[0].template"),
            ("[[handler]]\nvolume_cache = \"always\"\n", "handler[0].volume_cache"),
            ("[[handler]]\nhost_sockets = [\"/run/a\"]\n", "handler[0].host_sockets"),
        ] {
            let refused = hostile(text).unwrap_err();
            assert!(refused.contains(&format!(": {key}: ")) && refused.contains(TENANCY), "{refused}");
            assert!(refused.contains("line "), "{refused}");
            parse(&text.replace("walls", "[isolation]\nwalls")).unwrap();
        }
        hostile("[metrics]\naddress = \"127.0.0.1:9134\"\n[upstream]\nsocket = \"/c\"\n").unwrap();
    }
}
