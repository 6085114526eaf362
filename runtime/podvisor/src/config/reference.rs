//! The operator's reference of the configuration, rendered from the table in `keys.rs`. It generates
//! `docs/configuration.md` and `dist/config.toml`. Tests compare the table with the structs of `config.rs`,
//! and the files with the rendered text. This module never reads a configuration.

use std::fmt::Write;

use super::keys::{Key, SECTIONS, Section, Takes};
use super::{Config, Handler};

/// Characters in a line of the commented configuration.
const LINE_CHARS: usize = 100;

/// The reference as Markdown, one table for each TOML table.
pub(crate) fn markdown() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let name = header(section);
        let _ = write!(text, "### `{name}`\n\n{}\n\n", section.text);
        text.push_str("| key | type | default | takes effect | meaning |\n|---|---|---|---|---|\n");
        for key in section.keys {
            let default = match key.unset {
                Some((_, meaning)) => format!("unset: {meaning}"),
                None => format!("`{}`", default(section, key)),
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | {} | {} |",
                key.name,
                key.kind,
                occasion(key),
                key.text
            );
        }
        text.push('\n');
    }
    text
}

/// The configuration file with every table and key commented out: a key with a default shows the default, a
/// key without one an example. Without tables of its own the file takes those that are appended to it.
pub(crate) fn commented() -> String {
    let mut text = String::from(
        "# Podvisor's configuration, read from /etc/podvisor/config.toml when the daemon starts and\n\
         # when it is reloaded.\n\
         # A commented-out key has its default. A key without a default shows an example.\n\
         # To set a key, uncomment the header of its table, too.\n",
    );
    for section in SECTIONS {
        text.push('\n');
        comment(&mut text, section.text);
        let _ = writeln!(text, "#{}", header(section));
        for key in section.keys {
            text.push('\n');
            comment(&mut text, key.text);
            comment(&mut text, &format!("Takes effect after a {}.", occasion(key)));
            let value = match key.unset {
                Some((example, meaning)) => {
                    comment(&mut text, &format!("Unset: {meaning}."));
                    example.to_owned()
                }
                None => default(section, key),
            };
            let _ = writeln!(text, "#{} = {value}", key.name);
        }
    }
    text
}

/// When a key's new value takes effect.
pub(super) fn occasion(key: &Key) -> &'static str {
    match key.takes {
        Takes::Reload => "reload",
        Takes::Restart => "restart",
    }
}

/// The table's header in TOML.
pub(super) fn header(section: &Section) -> String {
    if section.repeated { format!("[[{}]]", section.name) } else { format!("[{}]", section.name) }
}

/// The default of a key in TOML, from the default configuration itself.
pub(super) fn default(section: &Section, key: &Key) -> String {
    let config = Config { handler: vec![Handler::default()], ..Config::default() };
    let tables = toml::Table::try_from(&config).expect("a configuration is TOML");
    let table = match tables.get(section.name) {
        Some(toml::Value::Array(several)) => several.first(),
        one => one,
    };
    let value = table.and_then(|table| table.get(key.name));
    value.map(ToString::to_string).unwrap_or_default()
}

/// Appends comment lines of at most [`LINE_CHARS`] characters.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > LINE_CHARS {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use runtime_spec::{Kernel, TemplateScope, VolumeCache};

    use super::super::file::parse;
    use super::super::isolation::Tenancy;
    use super::super::nri::Unsupported;
    use super::super::{
        Cgroup, CgroupDriver, Cni, Isolation, Log, LogFormat, Metrics, Nri, Paths, Registries, Settings,
        Streaming, Traces, UnnamedPods, Upstream, Walls,
    };
    use super::*;

    /// A configuration with every key set. The literals name all fields, so each new field must be added
    /// here. Then its absence from the reference fails a test.
    fn everything_set() -> Config {
        let path = || Some("/x".into());
        Config {
            paths: Paths {
                state: "/x".into(),
                run: "/x".into(),
                socket: path(),
                vmm: path(),
                guest_image: "/x".into(),
            },
            isolation: Isolation { tenancy: Tenancy::Hostile, walls: Walls::Require },
            cni: Cni {
                conf_dir: "/x".into(),
                bin_dirs: Vec::new(),
                cache_dir: "/x".into(),
                conf_template: path(),
                settings: Settings::Refuse,
                spare_namespaces: 1,
            },
            cgroup: Cgroup { driver: Some(CgroupDriver::Systemd), strict: true },
            registries: Registries { insecure: Vec::new(), config_dir: "/x".into(), pinned: Vec::new() },
            streaming: Streaming { address: ([127, 0, 0, 1], 0).into(), certificate: path(), key: path() },
            metrics: Metrics { address: Some(([127, 0, 0, 1], 0).into()) },
            traces: Traces { endpoint: Some("http://x:1".into()), sample: 0.5 },
            log: Log { level: "info".into(), format: LogFormat::Json },
            nri: Nri {
                enabled: true,
                socket: path(),
                connections: true,
                plugin_dir: "/x".into(),
                plugin_conf_dir: "/x".into(),
                registration_timeout_seconds: 1,
                request_timeout_seconds: 1,
                unsupported: Unsupported::Ignore,
            },
            upstream: Upstream { socket: path(), handlers: Vec::new(), unnamed_pods: UnnamedPods::All },
            handler: vec![Handler {
                name: "x".into(),
                default: true,
                memory_mib: 1,
                memory_max_mib: Some(1),
                vcpus_max: Some(1),
                scratch_mib: 1,
                scratch_sum_mib: Some(1),
                writable_layer_mib: Some(1),
                share_all_volumes: true,
                volume_cache: VolumeCache::None,
                host_sockets: Vec::new(),
                kernel: Kernel::Full,
                template: TemplateScope::Node,
                spare_vms: 1,
            }],
        }
    }

    /// Keys as `paths.state`, in no particular order.
    fn keys_of(config: &Config) -> Vec<String> {
        let mut keys = Vec::new();
        for (section, value) in toml::Table::try_from(config).unwrap() {
            let table = match value {
                toml::Value::Array(several) => several[0].clone(),
                one => one,
            };
            keys.extend(table.as_table().unwrap().keys().map(|key| format!("{section}.{key}")));
        }
        keys.sort();
        keys
    }

    fn keys_of_the_reference() -> Vec<String> {
        let keys = |section: &'static Section| {
            section.keys.iter().map(move |key| format!("{}.{}", section.name, key.name))
        };
        let mut keys: Vec<String> = SECTIONS.iter().flat_map(keys).collect();
        keys.sort();
        keys
    }

    fn file(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The commented configuration with every key in force.
    fn uncommented(text: &str) -> String {
        let lines = text.lines().map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') => key,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_reference_has_every_key_of_the_configuration_and_no_other() {
        assert_eq!(keys_of_the_reference(), keys_of(&everything_set()));
    }

    #[test]
    fn a_key_is_unset_in_the_reference_where_it_has_no_default() {
        let defaults = keys_of(&Config { handler: vec![Handler::default()], ..Config::default() });
        for section in SECTIONS {
            for key in section.keys {
                let name = format!("{}.{}", section.name, key.name);
                assert_eq!(key.unset.is_none(), defaults.contains(&name), "{name}");
            }
        }
    }

    #[test]
    fn the_page_for_operators_has_the_reference() {
        let page = file("docs/configuration.md");
        assert!(
            page.contains(&markdown()),
            "docs/configuration.md differs from `podvisor config reference`; write its output there"
        );
    }

    #[test]
    fn the_configuration_to_install_is_the_commented_one() {
        assert_eq!(
            file("dist/config.toml"),
            commented(),
            "dist/config.toml differs from `podvisor config example`; write its output there"
        );
    }

    #[test]
    fn the_configuration_to_install_is_taken_as_it_is_and_with_every_key_in_force() {
        let text = commented();
        let config = parse(Path::new("dist/config.toml"), &text).unwrap().config;
        assert_eq!(toml::to_string(&config).unwrap(), toml::to_string(&Config::default()).unwrap());
        let all = parse(Path::new("dist/config.toml"), &uncommented(&text)).unwrap().config;
        assert_eq!(keys_of(&all), keys_of_the_reference());
    }

    #[test]
    fn the_product_stays_at_fifty_choices() {
        // A certificate and its key are one choice.
        assert!(keys_of_the_reference().len() - 1 <= 50);
    }
}
