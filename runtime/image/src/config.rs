//! Reads an image's config (OCI image-spec, `config.md`). Owns the choice of what Podvisor keeps of it; never
//! resolves it against what a pod asks for, which is `runtime/spec`'s.

use std::collections::BTreeMap;

use runtime_spec::ImageConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{ContentError, ImageError};
use crate::name::digest_hex;

/// The declarations of an image's config: how to run the image, and what is only shown to clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredConfig {
    /// How to run the image.
    #[serde(flatten)]
    pub run: ImageConfig,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Ports that the image's program listens on, as `port/protocol`.
    pub exposed: Vec<String>,
}

/// A config as a pull needs it: what it declares, and the layers' diff ids.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) config: DeclaredConfig,
    pub(crate) diff_ids: Vec<String>,
    /// `os/architecture`, in the words of the OCI image specification.
    pub(crate) platform: String,
}

impl Parsed {
    /// Refuses a config for another platform than linux/amd64. `what` names the config.
    pub(crate) fn check_platform(&self, what: &str) -> Result<(), ImageError> {
        match self.platform.as_str() {
            "linux/amd64" => Ok(()),
            other => Err(ImageError::content(what, ContentError::Platform(other.to_owned()))),
        }
    }
}

/// A JSON object that is read as Go's `encoding/json` reads it, since every builder writes for that: names in any case, and null for what
/// is empty.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn of(value: Value) -> Result<Fields, String> {
        match value {
            Value::Null => Ok(Fields::default()),
            Value::Object(fields) => Ok(Fields(fields)),
            other => Err(format!("{} where an object is wanted", kind(&other))),
        }
    }

    /// The field of this name. Of several that differ in case the exact one counts, else the last.
    fn take(&mut self, name: &str) -> Value {
        let is_exact = self.0.contains_key(name);
        let found = match is_exact {
            true => Some(name.to_owned()),
            false => self.0.keys().rfind(|key| key.eq_ignore_ascii_case(name)).cloned(),
        };
        found.and_then(|key| self.0.remove(&key)).unwrap_or_default()
    }

    fn text(&mut self, name: &str) -> Result<String, String> {
        text(name, self.take(name))
    }

    fn texts(&mut self, name: &str) -> Result<Vec<String>, String> {
        match self.take(name) {
            Value::Null => Ok(Vec::new()),
            Value::Array(all) => all.into_iter().map(|value| text(name, value)).collect(),
            other => Err(format!("{name}: {} where a list is wanted", kind(&other))),
        }
    }

    fn fields(&mut self, name: &str) -> Result<Fields, String> {
        Fields::of(self.take(name)).map_err(|wrong| format!("{name}: {wrong}"))
    }

    /// The names of an object's fields.
    fn keys(&mut self, name: &str) -> Result<Vec<String>, String> {
        let mut keys: Vec<String> = self.fields(name)?.0.into_iter().map(|(key, _)| key).collect();
        keys.sort();
        Ok(keys)
    }
}

fn text(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        other => Err(format!("{name}: {} where a text is wanted", kind(&other))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Parses a config. `what` names the config in errors.
pub(crate) fn parse(what: &str, bytes: &[u8]) -> Result<Parsed, ImageError> {
    let wrong = |wrong| ImageError::content(what, wrong);
    let document =
        serde_json::from_slice(bytes).map_err(|error| wrong(ContentError::Json(error.to_string())))?;
    let parsed = read(document).map_err(|error| wrong(ContentError::Json(error)))?;
    for id in &parsed.diff_ids {
        digest_hex(id).map_err(wrong)?;
    }
    Ok(parsed)
}

fn read(document: Value) -> Result<Parsed, String> {
    let mut document = Fields::of(document)?;
    let (os, architecture) = (document.text("os")?, document.text("architecture")?);
    let diff_ids = document.fields("rootfs")?.texts("diff_ids")?;
    let mut section = document.fields("config")?;
    let run = ImageConfig {
        user: section.text("User")?,
        env: section.texts("Env")?,
        entrypoint: section.texts("Entrypoint")?,
        cmd: section.texts("Cmd")?,
        working_dir: section.text("WorkingDir")?,
        stop_signal: section.text("StopSignal")?,
        volumes: section.keys("Volumes")?,
    };
    let labels = section.fields("Labels")?.0.into_iter();
    let labels =
        labels.map(|(key, value)| Ok((key, text("Labels", value)?))).collect::<Result<_, String>>()?;
    let config = DeclaredConfig { run, labels, exposed: section.keys("ExposedPorts")? };
    Ok(Parsed { config, diff_ids, platform: platform(&os, &architecture) })
}

/// The platform in the specification's words. Builders write other names for it, in any case, and none for their own.
fn platform(os: &str, architecture: &str) -> String {
    let (os, architecture) = (os.to_ascii_lowercase(), architecture.to_ascii_lowercase());
    let os = if os.is_empty() { "linux" } else { &os };
    let architecture = match architecture.as_str() {
        "" | "x86_64" | "x86-64" => "amd64",
        other => other,
    };
    format!("{os}/{architecture}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_and_missing_parts_are_empty() {
        let text =
            br#"{"architecture":"amd64","os":"linux","config":{"User":"1:2","Entrypoint":null,"Cmd":["sh"],
            "ExposedPorts":{"80/tcp":{}},"Volumes":{"/data":{},"/b":{}},"Labels":null},"rootfs":{"type":"layers","diff_ids":null}}"#;
        let parsed = parse("config", text).unwrap();
        assert_eq!(parsed.config.run.user, "1:2");
        assert_eq!(parsed.config.run.cmd, ["sh"]);
        assert_eq!(parsed.config.exposed, ["80/tcp"]);
        assert_eq!(parsed.config.run.stop_signal, "");
        assert_eq!(parsed.config.run.volumes, ["/b", "/data"]);
        assert!(parsed.diff_ids.is_empty());
    }

    #[test]
    fn a_config_that_is_not_json_is_refused_by_name() {
        let error = parse("config sha256:12", b"<html>").unwrap_err().to_string();
        assert!(error.starts_with("config sha256:12: it cannot be parsed: "), "{error}");
    }

    #[test]
    fn an_image_for_another_architecture_is_refused() {
        let text = br#"{"architecture":"arm64","os":"linux","rootfs":{"diff_ids":[]}}"#;
        let parsed = parse("config", text).unwrap();
        assert!(parsed.check_platform("config").unwrap_err().to_string().contains("linux/arm64"));
    }

    #[test]
    fn a_platform_is_ours_by_every_name_that_builders_give_it() {
        for (os, architecture) in
            [("linux", "amd64"), ("Linux", "AMD64"), ("", ""), ("linux", "x86_64"), ("LINUX", "x86-64")]
        {
            assert_eq!(platform(os, architecture), "linux/amd64", "{os} {architecture}");
        }
        assert_eq!(platform("windows", ""), "windows/amd64");
    }

    #[test]
    fn names_are_known_in_any_case_and_the_exact_one_first() {
        let text = br#"{"ARCHITECTURE":"amd64","RootFS":{"Diff_IDs":[]},
            "Config":{"cmd":["small"],"Cmd":["exact"],"ENV":["A=1",null],"labels":{"a":null,"b":"c"}}}"#;
        let config = parse("config", text).unwrap().config;
        assert_eq!(config.run.cmd, ["exact"]);
        assert_eq!(config.run.env, ["A=1", ""]);
        assert_eq!(config.labels, [("a".into(), String::new()), ("b".into(), "c".into())].into());
    }

    #[test]
    fn a_value_of_another_kind_is_refused_by_its_name() {
        for (text, words) in [
            (r#"{"config":{"Labels":{"a":1}}}"#, "Labels: a number where a text is wanted"),
            (r#"{"config":{"Cmd":"sh"}}"#, "Cmd: a text where a list is wanted"),
            (r#"{"config":[]}"#, "config: a list where an object is wanted"),
            ("[]", "a list where an object is wanted"),
        ] {
            let error = parse("config", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
