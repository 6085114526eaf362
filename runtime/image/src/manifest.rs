//! Manifests and indexes (OCI image-spec, `manifest.md` and `image-index.md`). Owns their checks; never
//! fetches.

use std::fmt;

use crate::cpu;
use crate::digest::digest_hex;
use crate::error::{ContentError, ImageError};
use crate::json::{Fields, Json};
use crate::limits::Limits;
use crate::platform::Platform;

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// Media types accepted in an answer to a request for a manifest.
pub(crate) const ACCEPTED: [&str; 4] = [MANIFESTS[0], MANIFESTS[1], INDEXES[0], INDEXES[1]];

/// Config media types: those of OCI and Docker, and the replacements used by old builders and registries
/// (moby has the same list).
const CONFIGS: [&str; 6] = [
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
    "application/octet-stream",
    "application/json",
    "text/html",
    "",
];

/// Layer media types without their compression. It is detected from the layer's first bytes: builders and
/// mirrors have mislabelled gzip in both directions.
const LAYERS: [&str; 4] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

/// Suffixes of layer media types for the compression, in OCI's and Docker's forms.
const COMPRESSED: [&str; 5] = ["", "+gzip", "+zstd", ".gzip", ".zstd"];

/// A blob named by a manifest. The digest's form and the size's limit are checked.
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
    /// How the image was chosen.
    pub(crate) chosen: Chosen,
}

/// How an image was chosen. It decides if the platform in the config counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// By an index naming it for this platform. The config's platform does not count.
    Index,
    /// By an index without a platform for it. The config decides.
    Config,
    /// By its own name. Builders get architectures wrong, so another one only causes a warning, as in
    /// containerd.
    Name,
}

/// A registry's document for a name.
#[derive(Debug)]
pub(crate) enum Document {
    Image(Manifest),
    /// The documents suitable for this node, the best first.
    Index(Vec<Choice>),
}

/// A document named by an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) digest: String,
    /// Whether the index names the document's platform. Otherwise the document's config does.
    pub(crate) is_named: bool,
}

/// Parses a manifest or index. `what` names the document in errors.
pub(crate) fn parse(what: &str, bytes: &[u8], limits: &Limits) -> Result<Document, ImageError> {
    let json = |wrong| ImageError::content(what, ContentError::Json(wrong));
    let document = Json::parse(bytes).and_then(Json::fields).map_err(json)?;
    let media_type = document.text("mediaType").map_err(json)?;
    let version = document.integer("schemaVersion").map_err(json)?.unwrap_or_default();
    if document.has("fsLayers") || version == 1 {
        return Err(ImageError::content(what, ContentError::FirstSchema));
    }
    // 0 is Go's value for an absent version; other runtimes do not check it.
    if !matches!(version, 0 | 2) {
        return Err(json(format!("schemaVersion: {version} where 2 is wanted")));
    }
    let (has_manifests, has_config) = (document.has("manifests"), document.has("config"));
    let is_index = match media_type.as_str() {
        known if INDEXES.contains(&known) => true,
        known if MANIFESTS.contains(&known) => false,
        "" => has_manifests,
        // Some hosts name something else here and still serve the requested kind.
        other if has_manifests == has_config => {
            return Err(ImageError::content(what, ContentError::MediaType(other.to_owned())));
        }
        _ => has_manifests,
    };
    // A document with both could be read one way by us and the other way by a scanner.
    let (wrong, kind) = match is_index {
        true => (["config", "layers"], "an index"),
        false => (["manifests"; 2], "a manifest"),
    };
    if let Some(wrong) = wrong.into_iter().find(|name| document.has(name)) {
        return Err(json(format!("{wrong}: {kind} has none")));
    }
    match is_index {
        true => choices(what, &document, cpu::level()).map(Document::Index),
        false if !has_config => Err(json("it has neither config nor manifests".to_owned())),
        false => check(what, &document, limits).map(Document::Image),
    }
}

/// Returns the documents of an index suitable for a processor of this level, the best first, as other
/// runtimes choose. Those without a platform are last.
fn choices(what: &str, index: &Fields<'_>, level: u8) -> Result<Vec<Choice>, ImageError> {
    let json = |wrong| ImageError::content(what, ContentError::Json(wrong));
    let (mut found, mut named) = (Vec::new(), Vec::new());
    for entry in index.list("manifests").map_err(json)? {
        let entry = entry.fields().map_err(|wrong| json(format!("manifests: {wrong}")))?;
        let media_type = entry.text("mediaType").map_err(json)?;
        if !INDEXES.contains(&media_type.as_str()) && !MANIFESTS.contains(&media_type.as_str()) {
            continue;
        }
        let platform = match entry.has("platform") {
            true => Some(Platform::read(&entry.object("platform").map_err(json)?).map_err(json)?),
            false => None,
        };
        let rank = platform.as_ref().map(|platform| platform.rank(level));
        named.extend(platform);
        if rank == Some(None) {
            continue;
        }
        let digest = entry.text("digest").map_err(json)?;
        digest_hex(&digest).map_err(|wrong| ImageError::content(what, wrong))?;
        found.push((rank.flatten(), Choice { digest, is_named: rank.is_some() }));
    }
    if found.is_empty() {
        return Err(ImageError::content(what, ContentError::Platform(shown(&named))));
    }
    found.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    Ok(found.into_iter().map(|(_, choice)| choice).collect())
}

/// Formats platforms for an error message.
fn shown(platforms: &[Platform]) -> String {
    let platforms: Vec<String> = platforms.iter().take(20).map(Platform::to_string).collect();
    if platforms.is_empty() { "nothing".to_owned() } else { platforms.join(", ") }
}

fn check(what: &str, manifest: &Fields<'_>, limits: &Limits) -> Result<Manifest, ImageError> {
    let json = |wrong| ImageError::content(what, ContentError::Json(wrong));
    let config = manifest.object("config").map_err(json)?;
    let media_type = config.text("mediaType").map_err(json)?;
    if !CONFIGS.contains(&media_type.as_str()) {
        return Err(ImageError::content(what, ContentError::Artifact(media_type)));
    }
    let listed = manifest.list("layers").map_err(json)?;
    if listed.len() > limits.layers {
        let (size, limit) = (listed.len() as u64, limits.layers as u64);
        return Err(ImageError::content(what, ContentError::Limit { size, unit: "layers", limit }));
    }
    let config = descriptor(what, "config".to_owned(), &config, limits.config_bytes)?;
    let mut layers = Vec::new();
    for (number, layer) in listed.into_iter().enumerate() {
        let layer = layer.fields().map_err(|wrong| json(format!("layers: {wrong}")))?;
        let found = descriptor(what, format!("layer {}", number + 1), &layer, limits.layer_bytes)?;
        let media_type = layer.text("mediaType").map_err(json)?;
        if !is_layer(&media_type) {
            return Err(ImageError::content(found.to_string(), ContentError::MediaType(media_type)));
        }
        layers.push(found);
    }
    Ok(Manifest { config, layers, chosen: Chosen::Config })
}

fn is_layer(media_type: &str) -> bool {
    LAYERS.iter().any(|base| media_type.strip_prefix(base).is_some_and(|end| COMPRESSED.contains(&end)))
}

fn descriptor(what: &str, part: String, fields: &Fields<'_>, limit: u64) -> Result<Descriptor, ImageError> {
    let json = |wrong| ImageError::content(what, ContentError::Json(format!("{part}: {wrong}")));
    let digest = fields.text("digest").map_err(json)?;
    digest_hex(&digest).map_err(|wrong| ImageError::content(what, wrong))?;
    let size = fields.integer("size").map_err(json)?.unwrap_or_default();
    let size = u64::try_from(size).map_err(|_| json(format!("it has the negative size {size}")))?;
    let found = Descriptor { digest, size, part };
    if size > limit {
        return Err(ImageError::content(
            found.to_string(),
            ContentError::Limit { size, unit: "bytes", limit },
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
