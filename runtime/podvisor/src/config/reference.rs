//! The operator's reference of the configuration: every key with its type, its default and its meaning, in
//! one table. `docs/configuration.md` and `dist/config.toml` are made from the table, and a test compares
//! the table with the structs of `config.rs`. This module never reads a configuration.

use std::fmt::Write;

use super::{Config, Handler};

/// Characters in a line of the commented configuration.
const LINE_CHARS: usize = 100;

/// One table of the configuration file.
#[derive(Debug)]
pub(crate) struct Section {
    /// Name of the TOML table.
    pub(crate) name: &'static str,
    /// Whether the file may hold the table several times.
    pub(crate) repeated: bool,
    /// Meaning of the table.
    pub(crate) text: &'static str,
    /// Keys, in the order of the struct's fields.
    pub(crate) keys: &'static [Key],
}

/// One key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    /// Name of the key.
    pub(crate) name: &'static str,
    /// Type of the value, for people.
    pub(crate) kind: &'static str,
    /// A key without a default: an example of its value in TOML, and what holds while the key is unset.
    pub(crate) unset: Option<(&'static str, &'static str)>,
    /// Meaning of the key.
    pub(crate) text: &'static str,
}

/// The whole configuration.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        name: "paths",
        repeated: false,
        text: "Where Podvisor finds its parts and keeps its files.",
        keys: &[
            Key {
                name: "state",
                kind: "path",
                unset: None,
                text: "Directory of what outlives a restart of the node: images, the records of pods and \
                       containers, and the pods' scratch disks.",
            },
            Key {
                name: "run",
                kind: "path",
                unset: None,
                text: "Directory of what ends with the node: sockets, and one directory for each pod. The path \
                       has at most 64 bytes, because sockets below it must fit into a socket address.",
            },
            Key {
                name: "socket",
                kind: "path",
                unset: Some(("\"/run/podvisor/podvisor.sock\"", "`podvisor.sock` in `paths.run`")),
                text: "The CRI socket. Its mode is 0660.",
            },
            Key {
                name: "vmm",
                kind: "path",
                unset: Some(("\"/usr/bin/podvisor-vmm\"", "`podvisor-vmm` in the directory of `podvisor`")),
                text: "The program that runs a pod's VM.",
            },
            Key {
                name: "guest_image",
                kind: "path",
                unset: None,
                text: "Directory of `vmlinux`, `root.erofs` and `scratch.ext4`, which `make guest-image` builds.",
            },
        ],
    },
    Section {
        name: "cni",
        repeated: false,
        text: "Networks of pods. The files are read again for each pod, so a change needs no restart.",
        keys: &[
            Key {
                name: "conf_dir",
                kind: "path",
                unset: None,
                text: "Directory of CNI network configurations. The first valid one by name is used.",
            },
            Key {
                name: "bin_dirs",
                kind: "list of paths",
                unset: None,
                text: "Directories of CNI plugins, searched in this order.",
            },
            Key {
                name: "cache_dir",
                kind: "path",
                unset: None,
                text: "Directory where the results of plugins are kept until a pod's network is removed.",
            },
            Key {
                name: "conf_template",
                kind: "path",
                unset: Some(("\"/etc/podvisor/cni.template\"", "no configuration is made")),
                text: "Template of a CNI configuration. When the kubelet sends the node's pod ranges, the result \
                       is written to `10-podvisor.conflist` in `cni.conf_dir`, unless another configuration is \
                       in use there.",
            },
        ],
    },
    Section {
        name: "cgroup",
        repeated: false,
        text: "Cgroups of the node.",
        keys: &[Key {
            name: "driver",
            kind: "`systemd` or `cgroupfs`",
            unset: Some(("\"systemd\"", "`systemd` where systemd runs the node, else `cgroupfs`")),
            text: "The cgroup driver that the kubelet is asked to use (RuntimeConfig).",
        }],
    },
    Section {
        name: "registries",
        repeated: false,
        text: "Image registries.",
        keys: &[
            Key {
                name: "insecure",
                kind: "list of `host[:port]`",
                unset: None,
                text: "Registries that are asked over plain HTTP. Loopback addresses always are.",
            },
            Key {
                name: "config_dir",
                kind: "path",
                unset: None,
                text: "Directory of mirrors, as containerd has it: `<registry>/hosts.toml`, or \
                       `_default/hosts.toml` for all others. The directory may be absent. The files are read \
                       at each pull.",
            },
        ],
    },
    Section {
        name: "streaming",
        repeated: false,
        text: "The server of exec, attach and port-forward.",
        keys: &[
            Key {
                name: "address",
                kind: "`address:port`",
                unset: None,
                text: "Address that the server listens on; port 0 is any free port. The URLs that the kubelet \
                       gets name the address, so it must be an address of a host. The kubelet is the client, so \
                       loopback is enough.",
            },
            Key {
                name: "certificate",
                kind: "path",
                unset: Some(("\"/etc/podvisor/tls.crt\"", "plain HTTP")),
                text: "Certificate chain in PEM for TLS. The certificate must have the address as an IP subject \
                       alternative name, and its authority must be among those that the node's system trusts. \
                       Certificate and key are set together, and read again when the files change.",
            },
            Key {
                name: "key",
                kind: "path",
                unset: Some(("\"/etc/podvisor/tls.key\"", "plain HTTP")),
                text: "Private key of the certificate, in PEM.",
            },
        ],
    },
    Section {
        name: "handler",
        repeated: true,
        text: "A runtime handler, which a RuntimeClass names. The table may be there several times. Without any \
               table there is one handler, `podvisor`, with the defaults below.",
        keys: &[
            Key {
                name: "name",
                kind: "string",
                unset: None,
                text: "Name of the handler. Each name may be there once.",
            },
            Key {
                name: "default",
                kind: "boolean",
                unset: None,
                text: "Whether this handler runs pods that name no handler. At most one handler may say so; the \
                       only handler does without saying so. Without such a handler, pods that name none are \
                       refused.",
            },
            Key {
                name: "memory_mib",
                kind: "number, MiB",
                unset: None,
                text: "Memory for the containers of a pod without a memory limit, and for the containers \
                       without a limit in a pod that has one.",
            },
            Key {
                name: "memory_max_mib",
                kind: "number, MiB",
                unset: Some(("4096", "the memory of the node")),
                text: "Most memory of one pod's VM, its overhead included. A pod that needs more is refused.",
            },
            Key {
                name: "vcpus_max",
                kind: "number, 1 to 64",
                unset: Some(("8", "the number of the node's CPUs")),
                text: "Most vCPUs of one pod's VM.",
            },
            Key {
                name: "scratch_mib",
                kind: "number, MiB",
                unset: None,
                text: "Size of a pod's scratch disk, which holds what containers write. The disk is a sparse \
                       file in `paths.state`.",
            },
        ],
    },
];

/// The reference as Markdown, one table for each TOML table.
pub(crate) fn markdown() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let name = header(section);
        let _ = write!(text, "### `{name}`\n\n{}\n\n", section.text);
        text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
        for key in section.keys {
            let default = match key.unset {
                Some((_, meaning)) => format!("unset: {meaning}"),
                None => format!("`{}`", default(section, key)),
            };
            let _ = writeln!(text, "| `{}` | {} | {default} | {} |", key.name, key.kind, key.text);
        }
        text.push('\n');
    }
    text
}

/// The configuration file with every key commented out: a key with a default shows the default, a key
/// without one an example.
pub(crate) fn commented() -> String {
    let mut text = String::from(
        "# Podvisor's configuration, read from /etc/podvisor/config.toml when the daemon starts.\n\
         # A key that is commented out has its default; a key that is unset by default shows an example.\n",
    );
    for section in SECTIONS {
        text.push('\n');
        comment(&mut text, section.text);
        let _ = writeln!(text, "{}", header(section));
        for key in section.keys {
            text.push('\n');
            comment(&mut text, key.text);
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

fn header(section: &Section) -> String {
    if section.repeated { format!("[[{}]]", section.name) } else { format!("[{}]", section.name) }
}

/// The default of a key in TOML, from the default configuration itself.
fn default(section: &Section, key: &Key) -> String {
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

    use super::super::{Cgroup, CgroupDriver, Cni, Paths, Registries, Streaming, parse};
    use super::*;

    /// A configuration in which every key is set. The literals name all fields, so that a new field has to
    /// be written here, and is then missed in the reference.
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
            cni: Cni {
                conf_dir: "/x".into(),
                bin_dirs: Vec::new(),
                cache_dir: "/x".into(),
                conf_template: path(),
            },
            cgroup: Cgroup { driver: Some(CgroupDriver::Systemd) },
            registries: Registries { insecure: Vec::new(), config_dir: "/x".into() },
            streaming: Streaming { address: ([127, 0, 0, 1], 0).into(), certificate: path(), key: path() },
            handler: vec![Handler {
                name: "x".into(),
                default: true,
                memory_mib: 1,
                memory_max_mib: Some(1),
                vcpus_max: Some(1),
                scratch_mib: 1,
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
        let config = parse(Path::new("dist/config.toml"), &text).unwrap();
        let defaults = Config { handler: vec![Handler::default()], ..Config::default() };
        assert_eq!(toml::to_string(&config).unwrap(), toml::to_string(&defaults).unwrap());
        let all = parse(Path::new("dist/config.toml"), &uncommented(&text)).unwrap();
        assert_eq!(keys_of(&all), keys_of_the_reference());
    }

    #[test]
    fn the_product_stays_at_twenty_choices() {
        // A certificate and its key are one choice.
        assert!(keys_of_the_reference().len() - 1 <= 20);
    }
}
