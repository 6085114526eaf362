//! Manifests and indexes (OCI image-spec, `manifest.md` and `image-index.md`). Owns their checks; never fetches.

use std::fmt;

use oci_client::manifest::{OciImageIndex, OciImageManifest, Platform};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::cpu;
use crate::error::{ContentError, ImageError};
use crate::limits::Limits;
use crate::name::digest_hex;

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// Media types that are accepted as an answer to a request for a manifest.
pub(crate) const ACCEPTED: [&str; 4] = [MANIFESTS[0], MANIFESTS[1], INDEXES[0], INDEXES[1]];

/// Layer media types, those of OCI and of Docker. How a layer is compressed is known by its first bytes.
const LAYERS: [&str; 9] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
];

/// A blob that a manifest names. The digest's form and the size's bound were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) digest: String,
    pub(crate) size: u64,
    /// "config" or "layer 2".
    pub(crate) part: String,
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.part, self.digest)
    }
}

/// A single image.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    /// An index has named the image for this platform: whatever its config says.
    pub(crate) has_platform: bool,
}

/// A registry's document for a name.
#[derive(Debug)]
pub(crate) enum Document {
    Image(Manifest),
    /// The documents that may be for this node, the best first.
    Index(Vec<Choice>),
}

/// A document that an index names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) digest: String,
    /// Whether the index says for which platform the document is; the document's config says so otherwise.
    pub(crate) is_named: bool,
}

/// The fields that distinguish the two kinds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    schema_version: Option<i64>,
    media_type: Option<String>,
    manifests: Option<IgnoredAny>,
    config: Option<IgnoredAny>,
}

/// Parses a manifest or index. `what` names the document in errors.
pub(crate) fn parse(what: &str, bytes: &[u8], limits: &Limits) -> Result<Document, ImageError> {
    let json = |error: serde_json::Error| ImageError::content(what, ContentError::Json(error.to_string()));
    let wrong = |wrong| ImageError::content(what, wrong);
    let probe: Probe = serde_json::from_slice(bytes).map_err(json)?;
    if probe.schema_version != Some(2) {
        let found = probe.schema_version.map_or("none".to_owned(), |version| version.to_string());
        return Err(wrong(ContentError::Json(format!("schemaVersion must be 2, not {found}"))));
    }
    let index = match probe.media_type.as_deref() {
        Some(media_type) if INDEXES.contains(&media_type) => true,
        Some(media_type) if MANIFESTS.contains(&media_type) => false,
        Some(media_type) => return Err(wrong(ContentError::MediaType(media_type.to_owned()))),
        None if probe.manifests.is_some() && probe.config.is_some() => {
            return Err(wrong(ContentError::Json("it is both a manifest and an index".to_owned())));
        }
        None => probe.manifests.is_some(),
    };
    if index {
        choices(what, &serde_json::from_slice(bytes).map_err(json)?, cpu::level()).map(Document::Index)
    } else {
        check(what, &serde_json::from_slice(bytes).map_err(json)?, limits).map(Document::Image)
    }
}

/// The documents of an index for linux/amd64 on a processor of this level: the variant with the highest level first, as
/// other runtimes choose, and those without a platform last.
fn choices(what: &str, index: &OciImageIndex, level: u8) -> Result<Vec<Choice>, ImageError> {
    let mut found = Vec::new();
    for entry in &index.manifests {
        let media_type = entry.media_type.as_str();
        if !INDEXES.contains(&media_type) && !MANIFESTS.contains(&media_type) {
            continue;
        }
        let rank = match &entry.platform {
            None => 0,
            Some(platform) if !is_ours(platform) => continue,
            Some(platform) => match wanted_level(platform.variant.as_deref()) {
                Some(wanted) if wanted <= level => wanted,
                _ => continue,
            },
        };
        digest_hex(&entry.digest).map_err(|wrong| ImageError::content(what, wrong))?;
        found.push((rank, Choice { digest: entry.digest.clone(), is_named: rank > 0 }));
    }
    if found.is_empty() {
        return Err(ImageError::content(what, ContentError::Platform(platforms(index))));
    }
    found.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    Ok(found.into_iter().map(|(_, choice)| choice).collect())
}

fn is_ours(platform: &Platform) -> bool {
    let (os, architecture) = (platform.os.to_string(), platform.architecture.to_string());
    let architecture = architecture.to_ascii_lowercase();
    os.eq_ignore_ascii_case("linux") && matches!(architecture.as_str(), "amd64" | "x86_64" | "x86-64")
}

/// The level of processors that a variant of amd64 is for; none for a variant that is not known.
fn wanted_level(variant: Option<&str>) -> Option<u8> {
    match variant {
        None | Some("" | "v1") => Some(1),
        Some("v2") => Some(2),
        Some("v3") => Some(3),
        Some("v4") => Some(4),
        Some(_) => None,
    }
}

/// The platforms of an index, for people.
fn platforms(index: &OciImageIndex) -> String {
    let shown = |platform: &Platform| {
        let variant = platform.variant.as_ref().map(|variant| format!("/{variant}")).unwrap_or_default();
        format!("{}/{}{variant}", platform.os, platform.architecture)
    };
    let named = index.manifests.iter().filter_map(|entry| entry.platform.as_ref());
    let platforms: Vec<String> = named.take(20).map(shown).collect();
    if platforms.is_empty() { "nothing".to_owned() } else { platforms.join(", ") }
}

fn check(what: &str, manifest: &OciImageManifest, limits: &Limits) -> Result<Manifest, ImageError> {
    let wrong = |wrong| ImageError::content(what, wrong);
    if !CONFIGS.contains(&manifest.config.media_type.as_str()) {
        return Err(wrong(ContentError::MediaType(manifest.config.media_type.clone())));
    }
    if manifest.layers.len() > limits.layers {
        let (size, limit) = (manifest.layers.len() as u64, limits.layers as u64);
        return Err(wrong(ContentError::Limit { size, unit: "layers", limit }));
    }
    let descriptor = |part: String, digest: &str, size: i64, limit: u64| {
        digest_hex(digest).map_err(wrong)?;
        let size = u64::try_from(size)
            .map_err(|_| wrong(ContentError::Json(format!("{part} has the negative size {size}"))))?;
        let found = Descriptor { digest: digest.to_owned(), size, part };
        if size > limit {
            return Err(ImageError::content(
                found.to_string(),
                ContentError::Limit { size, unit: "bytes", limit },
            ));
        }
        Ok(found)
    };
    let config =
        descriptor("config".to_owned(), &manifest.config.digest, manifest.config.size, limits.config_bytes)?;
    let mut layers = Vec::new();
    for (number, layer) in manifest.layers.iter().enumerate() {
        let part = format!("layer {}", number + 1);
        let found = descriptor(part, &layer.digest, layer.size, limits.layer_bytes)?;
        if !LAYERS.contains(&layer.media_type.as_str()) {
            let wrong = ContentError::MediaType(layer.media_type.clone());
            return Err(ImageError::content(found.to_string(), wrong));
        }
        layers.push(found);
    }
    Ok(Manifest { config, layers, has_platform: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn manifest(layer_type: &str, size: i64) -> String {
        format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"{}","digest":"{DIGEST}","size":2}},
                "layers":[{{"mediaType":"{layer_type}","digest":"{DIGEST}","size":{size}}}]}}"#,
            CONFIGS[0]
        )
    }

    fn refused(text: &str) -> String {
        parse("manifest m", text.as_bytes(), &Limits::default()).unwrap_err().to_string()
    }

    #[test]
    fn every_layer_type_is_known() {
        for media_type in LAYERS {
            let found = parse("m", manifest(media_type, 5).as_bytes(), &Limits::default()).unwrap();
            let Document::Image(found) = found else { panic!("an image") };
            assert_eq!(found.layers[0].size, 5);
        }
    }

    #[test]
    fn what_is_not_an_image_is_refused_by_name() {
        assert!(refused("not json").starts_with("manifest m: it cannot be parsed"));
        assert!(refused(r#"{"schemaVersion":1}"#).contains("schemaVersion must be 2, not 1"));
        assert!(refused(r#"{"schemaVersion":2,"mediaType":"text/html"}"#).contains("\"text/html\""));
        assert!(
            refused(&manifest("application/x-iso", 1))
                .starts_with(&format!("layer 1 ({DIGEST}): media type"))
        );
        assert!(refused(&manifest(LAYERS[0], -1)).contains("negative size -1"));
        assert!(refused(&manifest(LAYERS[0], i64::MAX)).contains("more than the limit"));
        assert!(
            refused(&manifest(LAYERS[0], 1).replace(DIGEST, "sha256:/etc")).contains("not a sha256 digest")
        );
        assert!(refused(&manifest(LAYERS[0], 1).replace(CONFIGS[0], "application/wasm")).contains("wasm"));
    }

    /// An index of these platforms, whose digests are a digit each, from 1 on; what is chosen of them on this level.
    fn chosen(platforms: &[&str], level: u8) -> Result<String, String> {
        let entries = platforms.iter().zip('1'..).map(|(platform, digit)| {
            let mut entry = serde_json::json!({
                "mediaType": MANIFESTS[0], "digest": format!("sha256:{}", digit.to_string().repeat(64)), "size": 1
            });
            let parts: Vec<&str> = platform.split('/').collect();
            if let [os, architecture, variant @ ..] = &parts[..] {
                entry["platform"] = serde_json::json!({ "os": os, "architecture": architecture });
                variant.iter().for_each(|variant| entry["platform"]["variant"] = (*variant).into());
            }
            entry
        });
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": entries.collect::<Vec<_>>() });
        let chosen = choices("i", &serde_json::from_value(index).unwrap(), level);
        let shown =
            |choice: &Choice| format!("{}{}", &choice.digest[7..8], if choice.is_named { "" } else { "?" });
        chosen.map(|all| all.iter().map(shown).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_index_gives_the_manifest_for_our_architecture() {
        assert_eq!(
            chosen(&["linux/arm64", "linux/amd64", "windows/amd64", "unknown/unknown"], 1).unwrap(),
            "2"
        );
        let error = chosen(&["linux/arm64", "linux/amd64/v3"], 2).unwrap_err();
        assert_eq!(error, "i: it has nothing for linux/amd64, but for linux/arm64, linux/amd64/v3");
    }

    #[test]
    fn the_best_variant_for_the_processor_comes_first() {
        let all = ["linux/amd64", "linux/amd64/v2", "linux/amd64/v4", "linux/amd64/v3", "linux/amd64/v9"];
        for (level, expected) in [(1, "1"), (2, "21"), (3, "421"), (4, "3421")] {
            assert_eq!(chosen(&all, level).unwrap(), expected, "v{level}");
        }
    }

    #[test]
    fn an_entry_without_a_platform_may_be_ours_and_comes_last() {
        assert_eq!(chosen(&["", "linux/arm64", "linux/amd64", ""], 1).unwrap(), "31?4?");
    }
}
