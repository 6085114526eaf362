//! Reads an image's config (OCI image-spec, `config.md`). Owns the choice of what Podvisor keeps of it; never
//! resolves it against what a pod asks for, which is `runtime/spec`'s.

use std::collections::BTreeMap;

use runtime_spec::ImageConfig;
use serde::{Deserialize, Serialize};

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
}

#[derive(Deserialize)]
struct Document {
    architecture: Option<String>,
    os: Option<String>,
    config: Option<Section>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Option<Vec<String>>,
}

/// Builders write `null` for what is empty.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Section {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    volumes: Option<BTreeMap<String, serde_json::Value>>,
}

/// Parses a config and checks that it is for linux/amd64. `what` names the config in errors.
pub(crate) fn parse(what: &str, bytes: &[u8]) -> Result<Parsed, ImageError> {
    let wrong = |wrong| ImageError::content(what, wrong);
    let document: Document =
        serde_json::from_slice(bytes).map_err(|error| wrong(ContentError::Json(error.to_string())))?;
    let platform =
        (document.os.as_deref().unwrap_or("linux"), document.architecture.as_deref().unwrap_or("amd64"));
    if platform != ("linux", "amd64") {
        return Err(wrong(ContentError::Platform(format!("{}/{}", platform.0, platform.1))));
    }
    let diff_ids = document.rootfs.diff_ids.unwrap_or_default();
    for id in &diff_ids {
        digest_hex(id).map_err(wrong)?;
    }
    let section = document.config.unwrap_or_default();
    let keys =
        |map: Option<BTreeMap<String, serde_json::Value>>| map.unwrap_or_default().into_keys().collect();
    let run = ImageConfig {
        user: section.user.unwrap_or_default(),
        env: section.env.unwrap_or_default(),
        entrypoint: section.entrypoint.unwrap_or_default(),
        cmd: section.cmd.unwrap_or_default(),
        working_dir: section.working_dir.unwrap_or_default(),
        stop_signal: section.stop_signal.unwrap_or_default(),
        volumes: keys(section.volumes),
    };
    let config = DeclaredConfig {
        run,
        labels: section.labels.unwrap_or_default(),
        exposed: keys(section.exposed_ports),
    };
    Ok(Parsed { config, diff_ids })
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
        assert!(parse("config", text).unwrap_err().to_string().contains("linux/arm64"));
    }
}
