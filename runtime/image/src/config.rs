//! Reads an image's config (OCI image-spec, `config.md`). Owns the choice of the fields kept by Podvisor.
//! Never resolves it against a pod's settings; `runtime/spec` does.

use std::collections::BTreeMap;

use runtime_spec::ImageConfig;
use serde::{Deserialize, Serialize};

use crate::cpu;
use crate::digest::digest_hex;
use crate::error::{ContentError, ImageError};
use crate::json::Json;
use crate::platform::Platform;

/// Most bytes of declarations in one config, in the index's form. They are in memory for each image of the
/// node, and the index is written with all of them. Large ones, of builders with many labels, have some
/// hundred KiB.
const DECLARED_BYTES_MAX: u64 = 1 << 20;

/// The declarations of an image's config: how to run the image, and fields only shown to clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredConfig {
    /// How to run the image.
    #[serde(flatten)]
    pub run: ImageConfig,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Ports of the image's program, as `port/protocol`.
    pub exposed: Vec<String>,
}

/// A parsed config for a pull: its declarations, and the layers' diff ids.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) config: DeclaredConfig,
    pub(crate) diff_ids: Vec<String>,
    pub(crate) platform: Platform,
}

impl Parsed {
    /// Refuses a config for a platform not supported by this node. `what` names the config.
    pub(crate) fn check_platform(&self, what: &str) -> Result<(), ImageError> {
        match self.platform.rank(cpu::level()) {
            Some(_) => Ok(()),
            None => Err(ImageError::content(what, ContentError::Platform(self.platform.to_string()))),
        }
    }
}

/// Parses a config. `what` names the config in errors.
pub(crate) fn parse(what: &str, bytes: &[u8]) -> Result<Parsed, ImageError> {
    let wrong = |wrong| ImageError::content(what, wrong);
    let parsed = read(bytes).map_err(|error| wrong(ContentError::Json(error)))?;
    for id in &parsed.diff_ids {
        digest_hex(id).map_err(wrong)?;
    }
    let size = serde_json::to_vec(&parsed.config).map_or(0, |bytes| bytes.len() as u64);
    if size > DECLARED_BYTES_MAX {
        let unit = "bytes of settings and labels";
        return Err(wrong(ContentError::Limit { size, unit, limit: DECLARED_BYTES_MAX }));
    }
    Ok(parsed)
}

fn read(bytes: &[u8]) -> Result<Parsed, String> {
    let document = Json::parse(bytes)?.fields()?;
    // Builders writing no platform mean their own.
    let platform = Platform::read(&document)?.or_ours();
    let diff_ids = document.object("rootfs")?.texts("diff_ids")?;
    let section = document.object("config")?;
    let keys = |name| section.map(name).map(|map| map.into_keys().collect::<Vec<String>>());
    let run = ImageConfig {
        user: section.text("User")?,
        env: section.texts("Env")?,
        entrypoint: section.texts("Entrypoint")?,
        cmd: section.texts("Cmd")?,
        working_dir: section.text("WorkingDir")?,
        stop_signal: section.text("StopSignal")?,
        volumes: keys("Volumes")?,
    };
    let config = DeclaredConfig { run, labels: section.text_map("Labels")?, exposed: keys("ExposedPorts")? };
    Ok(Parsed { config, diff_ids, platform })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::tests::document;

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
    fn only_what_is_kept_of_a_config_counts_for_its_bound() {
        let long = "x".repeat(2 << 20);
        let history = format!(r#"{{"history":[{{"comment":"{long}"}}],"rootfs":{{"diff_ids":[]}}}}"#);
        parse("config", history.as_bytes()).unwrap();
        for section in [format!(r#"{{"Labels":{{"a":"{long}"}}}}"#), format!(r#"{{"Env":["A={long}"]}}"#)] {
            let error = parse("config", format!(r#"{{"config":{section}}}"#).as_bytes()).unwrap_err();
            assert!(error.to_string().contains("bytes of settings and labels are more than"), "{error}");
        }
    }

    #[test]
    fn an_image_for_another_architecture_is_refused() {
        let text = br#"{"architecture":"arm64","os":"linux","rootfs":{"diff_ids":[]}}"#;
        let parsed = parse("config", text).unwrap();
        assert!(parsed.check_platform("config").unwrap_err().to_string().contains("linux/arm64"));
    }

    #[test]
    fn names_are_known_in_any_case_and_the_last_one_counts() {
        let text = br#"{"ARCHITECTURE":"amd64","RootFS":{"Diff_IDs":[]},
            "Config":{"Cmd":["exact"],"cmd":["small"],"ENV":["A=1",null],"labels":{"a":null,"b":"c"}}}"#;
        let config = parse("config", text).unwrap().config;
        assert_eq!(config.run.cmd, ["small"]);
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

    /// A name in mixed case; each bit chooses the case of a letter.
    fn cased(name: &str, bits: u32) -> String {
        let upper = |(at, letter): (usize, char)| match bits >> (at % 32) & 1 {
            1 => letter.to_ascii_uppercase(),
            _ => letter.to_ascii_lowercase(),
        };
        name.char_indices().map(upper).collect()
    }

    proptest! {
        #[test]
        fn no_case_no_null_no_field_twice_and_no_field_of_others_changes_a_config(
            bits: u32, unknown in document(), texts in prop::collection::vec(".{0,6}", 9), nulls in 0..3_usize
        ) {
            let texts = |range: std::ops::Range<usize>| serde_json::json!(&texts[range]);
            let wanted = [
                ("User", texts(0..1)[0].clone()), ("Env", texts(1..3)), ("Entrypoint", texts(3..4)), ("Cmd", texts(4..6)),
                ("WorkingDir", texts(6..7)[0].clone()), ("StopSignal", texts(7..8)[0].clone()),
                ("Volumes", serde_json::json!({ "/v": {} })), ("Labels", serde_json::json!({ "k": texts(8..9)[0] })),
            ];
            let (mut plain, mut odd) = (Vec::new(), vec![format!("\"Unknown\":{unknown}")]);
            for (name, value) in wanted {
                plain.push(format!("\"{name}\":{value}"));
                odd.extend((0..nulls).map(|_| format!("\"{name}\":null")));
                odd.push(format!("\"{}\": {value}\n", cased(name, bits)));
            }
            let config = |fields: Vec<String>, name: &str| {
                let text = format!("{{\"{name}\":{{{}}},\"unknown\":{unknown}}}", fields.join(","));
                parse("config", text.as_bytes()).unwrap().config
            };
            prop_assert_eq!(config(plain, "config"), config(odd, &cased("config", bits)));
        }
    }
}
