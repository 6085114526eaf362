//! Each key with its value and the value's origin. The order is that of the table in `keys.rs`. Keys of
//! handlers include the handler's name, as in `handler.podvisor.memory_mib`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::keys::{Key, SECTIONS, Section};
use super::{Config, Handler};

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// The key, as in `paths.state`.
    pub(crate) key: String,
    /// The value; `None` for a key that is unset.
    pub(crate) value: Option<toml::Value>,
    /// The origin of the value.
    pub(crate) origin: Origin,
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub(crate) enum Origin {
    /// The key is not set.
    Default,
    /// A line of the configuration file.
    File { file: PathBuf, line: usize },
    /// Another key changed the default.
    Preset { key: String },
    /// A variable of the process's environment.
    Environment { variable: String },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File { file, line } => write!(f, "{}:{line}", file.display()),
            Origin::Preset { key } => write!(f, "{key}"),
            Origin::Environment { variable } => write!(f, "environment variable {variable}"),
        }
    }
}

/// All keys of a configuration. `origin` gets keys as in `paths.state` and `handler[0].name`.
pub(super) fn settings(config: &Config, origin: impl Fn(&str) -> Origin) -> Vec<Setting> {
    let all = table(config);
    let mut settings = Vec::new();
    for section in SECTIONS {
        if section.repeated {
            for (index, handler) in config.handlers().0.iter().enumerate() {
                let place = format!("{}[{index}]", section.name);
                let name = format!("{}.{}", section.name, handler.name);
                add(&mut settings, section, &name, &table(handler), |key| origin(&format!("{place}.{key}")));
            }
        } else if let Some(values) = all.get(section.name).and_then(toml::Value::as_table) {
            let name = section.name;
            add(&mut settings, section, name, values, |key| origin(&format!("{name}.{key}")));
        }
    }
    settings
}

fn add(
    settings: &mut Vec<Setting>,
    section: &Section,
    name: &str,
    values: &toml::Table,
    origin: impl Fn(&str) -> Origin,
) {
    settings.extend(section.keys.iter().map(|key| Setting {
        key: format!("{name}.{}", key.name),
        value: values.get(key.name).cloned(),
        origin: origin(key.name),
    }));
}

fn table(part: &impl Serialize) -> toml::Table {
    toml::Table::try_from(part).expect("a configuration is TOML")
}

/// The row of the table of keys for a key of a [`Setting`].
pub(super) fn find(key: &str) -> Option<(&'static Section, &'static Key)> {
    // A handler's name may contain points.
    let (section, rest) = key.split_once('.')?;
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    let section = SECTIONS.iter().find(|known| known.name == section)?;
    Some((section, section.keys.iter().find(|known| known.name == name)?))
}

/// The default of a key of a [`Setting`]; `None` for a key that is unset by default.
pub(super) fn default_of(key: &str) -> Option<toml::Value> {
    let (section, known) = find(key)?;
    if section.repeated {
        // A handler's name has no default.
        return (known.name != "name").then(|| table(&Handler::default()).remove(known.name)).flatten();
    }
    table(&Config::default()).get(section.name)?.get(known.name).cloned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::parse;
    use super::*;

    #[test]
    fn every_key_has_a_value_or_is_unset_and_says_where_from() {
        let text = "[paths]\nstate = \"/s\"\n[[handler]]\nname = \"a.b\"\n[[handler]]\nname = \"c\"\nvcpus_max = 2\n";
        let loaded = parse(Path::new("f"), text).unwrap();
        let find = |key: &str| loaded.settings.iter().find(|setting| setting.key == key).unwrap();
        let of_file = |line| Origin::File { file: "f".into(), line };
        assert_eq!(
            (&find("paths.state").value, &find("paths.state").origin),
            (&Some("/s".into()), &of_file(2))
        );
        assert_eq!(find("paths.socket").value, None);
        assert_eq!(find("handler.a.b.name").origin, of_file(4));
        assert_eq!(find("handler.a.b.vcpus_max").value, None);
        let vcpus = find("handler.c.vcpus_max");
        assert_eq!((&vcpus.value, &vcpus.origin), (&Some(2.into()), &of_file(7)));
        assert_eq!(find("handler.c.memory_mib").origin, Origin::Default);
        for setting in &loaded.settings {
            assert!(super::find(&setting.key).is_some(), "{}", setting.key);
        }
    }

    #[test]
    fn without_a_file_every_value_is_the_default() {
        for setting in parse(Path::new("f"), "").unwrap().settings {
            assert_eq!(setting.origin, Origin::Default);
            if setting.key != "handler.podvisor.name" {
                assert_eq!(setting.value, default_of(&setting.key), "{}", setting.key);
            }
        }
    }

    #[test]
    fn settings_survive_json() {
        let settings = parse(Path::new("f"), "[cni]\nbin_dirs = [\"/b\"]\n").unwrap().settings;
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Setting>>(&text).unwrap(), settings);
    }
}
