//! Errors of pulling and storing images. Owns messages only.
//!
//! The callers of a joined pull share its error, hence `Clone` and the `Arc` around sources.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oci_client::errors::OciDistributionError;

/// A failure to pull, open or remove an image.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageError {
    /// The name is not an image reference.
    #[error("\"{name}\" is not an image reference: {reason}")]
    Name {
        /// The name as given.
        name: String,
        /// The problem with it.
        reason: String,
    },
    /// No answer from the registry.
    #[error("registry {registry} cannot be reached while getting {what}")]
    Unreachable {
        /// Host and port.
        registry: String,
        /// The requested manifest, blob or token.
        what: String,
        /// The client's error.
        #[source]
        source: Arc<OciDistributionError>,
    },
    /// The registry does not have it.
    #[error("registry {registry} has no {what}")]
    NotFound {
        /// Host and port.
        registry: String,
        /// The requested manifest, blob or token.
        what: String,
    },
    /// The registry wants other credentials.
    #[error("registry {registry} refuses {what}: the credentials are missing or do not suffice{said}")]
    Unauthorized {
        /// Host and port.
        registry: String,
        /// The requested manifest, blob or token.
        what: String,
        /// The registry's words, after a colon.
        said: String,
    },
    /// The registry knows the caller and denies access.
    #[error("registry {registry} denies {what} to these credentials{said}")]
    Denied {
        /// Host and port.
        registry: String,
        /// The requested manifest, blob or token.
        what: String,
        /// The registry's words, after a colon.
        said: String,
    },
    /// The registry accepts no more requests for now.
    #[error("registry {registry} wants fewer requests, and does not give {what} for now")]
    Busy {
        /// Host and port.
        registry: String,
        /// The requested manifest, blob or token.
        what: String,
        /// How long to wait before the next request, if the registry says so.
        wait: Option<Duration>,
        /// The registry's answer.
        #[source]
        source: Arc<OciDistributionError>,
    },
    /// The registry answered with another error.
    #[error("registry {registry} failed to give {what}")]
    Registry {
        /// Host and port.
        registry: String,
        /// The requested manifest, blob or token.
        what: String,
        /// The registry's answer.
        #[source]
        source: Arc<OciDistributionError>,
    },
    /// Several hosts serve the registry, and none of them had the content.
    #[error("no host gives {what}{}", each(failures))]
    Hosts {
        /// The requested manifest or blob.
        what: String,
        /// Each host's failure, the upstream's last.
        failures: Vec<ImageError>,
    },
    /// A registry's file of hosts cannot be used.
    #[error("{}: {reason}", path.display())]
    HostsFile {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        reason: String,
    },
    /// The transfer broke off.
    #[error("the transfer of {what} broke off after {received} bytes")]
    Transfer {
        /// The requested blob.
        what: String,
        /// Bytes received by then.
        received: u64,
        /// The connection's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// Something took longer than its bound.
    #[error("{what} took longer than {seconds} s")]
    Deadline {
        /// The work in progress.
        what: String,
        /// The bound.
        seconds: u64,
    },
    /// The registry sent something not requested, or not an image.
    #[error("{what}: {error}")]
    Content {
        /// The part of the image: "manifest sha256:…", "layer 2 (sha256:…)".
        what: String,
        /// The problem with that part.
        error: ContentError,
    },
    /// This node's disk failed.
    #[error("{action} {} failed", path.display())]
    Disk {
        /// The action: "reading", "writing", …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The disk has no room for the image.
    #[error("{} has {free} bytes of room, and the image takes {wanted} at least", path.display())]
    NoRoom {
        /// The image directory.
        path: PathBuf,
        /// Bytes of missing blobs and of their unpacked layers.
        wanted: u64,
        /// Free bytes.
        free: u64,
    },
    /// A part of the image is missing in the archive.
    #[error("the archive has no {what}")]
    Missing {
        /// The part: a file, a manifest or a blob.
        what: String,
    },
    /// The archive does not hold images, or not the requested one.
    #[error("{0}")]
    NoArchive(String),
    /// The image is not on this node.
    #[error("image {0} is not on this node")]
    Unknown(String),
    /// The work ended without a result: the daemon is shutting down, or has a bug.
    #[error("{0} was interrupted")]
    Interrupted(&'static str),
}

/// Kinds of failures, by how a caller can react.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageErrorKind {
    /// The name is not an image's.
    Name,
    /// The registry does not answer, or answers with its own error. A later attempt may succeed.
    Unavailable,
    /// There is no such image, or none for this platform.
    NotFound,
    /// The registry wants credentials, or others.
    Unauthenticated,
    /// The registry denies the image to these credentials.
    Denied,
    /// The image is broken, or an operator's hosts file is.
    Unusable,
    /// The node's disk is full.
    Full,
    /// The node failed otherwise.
    Node,
}

/// A problem with a part of an image.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum ContentError {
    /// Content and digest differ.
    #[error("its digest is {actual}, not {expected}")]
    Digest {
        /// The digest in the manifest.
        expected: String,
        /// The digest of the content.
        actual: String,
    },
    /// The uncompressed content and the config's diff id differ.
    #[error("its uncompressed digest is {actual}, not the diff id {expected}")]
    DiffId {
        /// The diff id in the config.
        expected: String,
        /// The digest of the content.
        actual: String,
    },
    /// The content ended early.
    #[error("it ends after {actual} of {expected} bytes")]
    Truncated {
        /// Bytes by the descriptor.
        expected: u64,
        /// Bytes received.
        actual: u64,
    },
    /// The content is longer than declared by the descriptor.
    #[error("it is longer than the {expected} bytes of its descriptor")]
    TooLong {
        /// Bytes by the descriptor.
        expected: u64,
    },
    /// A bound of [`crate::Limits`].
    #[error("{size} {unit} are more than the limit of {limit}")]
    Limit {
        /// The size of the image's part, or of its first bytes if not all was read.
        size: u64,
        /// The unit of both.
        unit: &'static str,
        /// The bound.
        limit: u64,
    },
    /// Not JSON, or JSON with required fields missing.
    #[error("it cannot be parsed: {0}")]
    Json(String),
    /// A digest of an unknown algorithm, or no digest.
    #[error("\"{0}\" is not a digest of sha256, sha384 or sha512")]
    DigestFormat(String),
    /// A media type of something other than an image.
    #[error("media type \"{0}\" is not supported")]
    MediaType(String),
    /// The config belongs to another artifact, such as a chart or a signature.
    #[error("it is an artifact and not an image to run: its config has the media type \"{0}\"")]
    Artifact(String),
    /// A manifest of Docker's first schema.
    #[error(
        "it is a manifest of Docker's schema 1, long unsupported: push the image again, as schema 2 or OCI"
    )]
    FirstSchema,
    /// The image has no variant for linux/amd64; the text names its variants.
    #[error("it has nothing for linux/amd64, but for {0}")]
    Platform(String),
    /// Manifest and config disagree.
    #[error("the manifest has {layers} layers, the config {diff_ids} diff ids")]
    LayerCount {
        /// Layers in the manifest.
        layers: usize,
        /// Diff ids in the config.
        diff_ids: usize,
    },
    /// The compressed stream is broken.
    #[error("it cannot be decompressed: {0}")]
    Decompress(String),
    /// The archive is broken.
    #[error("the archive is broken {place}: {reason}")]
    Archive {
        /// The entry or byte: "in entry …", "at byte …".
        place: String,
        /// The problem there.
        reason: String,
    },
    /// An entry cannot become part of the image.
    #[error("{0}")]
    Entry(#[from] runtime_erofs::TreeError),
    /// The layer's tree on this node does not have the expected form.
    #[error("its tree on this node is damaged: {0}")]
    Tree(String),
    /// The image is too large for one file system.
    #[error("it is too large for one file system")]
    TooLarge,
}

/// Lists the failures with their causes: several failures have no single chain.
fn each(failures: &[ImageError]) -> String {
    match failures {
        [] => ", for none may resolve or pull, or none answers".to_owned(),
        _ => failures.iter().map(|failure| format!("; {}", chain(failure))).collect(),
    }
}

/// Returns true if a disk, or its quota, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Formats an error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl ImageError {
    /// Returns the kind of the failure. If several hosts failed, the upstream's failure counts. It is asked
    /// last.
    pub fn kind(&self) -> ImageErrorKind {
        use ImageErrorKind as Kind;
        match self {
            ImageError::Name { .. } => Kind::Name,
            ImageError::Unreachable { .. }
            | ImageError::Registry { .. }
            | ImageError::Busy { .. }
            | ImageError::Transfer { .. }
            | ImageError::Deadline { .. } => Kind::Unavailable,
            ImageError::NotFound { .. } | ImageError::Unknown(_) => Kind::NotFound,
            ImageError::Content { error: ContentError::Platform(_), .. } => Kind::NotFound,
            ImageError::Unauthorized { .. } => Kind::Unauthenticated,
            ImageError::Denied { .. } => Kind::Denied,
            ImageError::Hosts { failures, .. } => failures.last().map_or(Kind::Unavailable, ImageError::kind),
            ImageError::Content { .. }
            | ImageError::HostsFile { .. }
            | ImageError::Missing { .. }
            | ImageError::NoArchive(_) => Kind::Unusable,
            ImageError::NoRoom { .. } => Kind::Full,
            ImageError::Disk { source, .. } if is_full(source) => Kind::Full,
            ImageError::Disk { .. } | ImageError::Interrupted(_) => Kind::Node,
        }
    }

    /// Returns true if the same request may succeed soon.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ImageError::Unreachable { .. } | ImageError::Deadline { .. } | ImageError::Busy { .. } => true,
            ImageError::Registry { source, .. } => {
                matches!(**source, OciDistributionError::ServerError { code: 408 | 500.., .. })
            }
            _ => false,
        }
    }

    /// Returns true if other bytes than those received may be the image's.
    pub(crate) fn is_of_bytes(&self) -> bool {
        use ContentError as C;
        let ImageError::Content { error, .. } = self else { return false };
        match error {
            C::Digest { .. } | C::Truncated { .. } | C::TooLong { .. } => true,
            // While their digest is not known.
            C::Decompress(_) | C::Archive { .. } | C::DiffId { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn content(what: impl Into<String>, error: ContentError) -> Self {
        ImageError::Content { what: what.into(), error }
    }

    /// For `map_err` after an action on a file.
    pub(crate) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError + use<> {
        let path = path.to_owned();
        move |source| ImageError::Disk { action, path, source: Arc::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstream_says_of_which_kind_the_failure_of_all_hosts_is() {
        let (registry, what) = ("r".to_owned(), "x".to_owned());
        let missing = ImageError::NotFound { registry: registry.clone(), what: what.clone() };
        let denied = ImageError::Denied { registry, what, said: String::new() };
        let all = |failures| ImageError::Hosts { what: "x".into(), failures }.kind();
        assert_eq!(all(vec![missing.clone(), denied.clone()]), ImageErrorKind::Denied);
        assert_eq!(all(vec![denied, missing]), ImageErrorKind::NotFound);
        assert_eq!(all(Vec::new()), ImageErrorKind::Unavailable);
    }

    #[test]
    fn a_full_disk_is_no_other_failure_of_the_node() {
        let disk = |kind: io::ErrorKind| ImageError::disk("writing", Path::new("/x"))(kind.into()).kind();
        assert_eq!(disk(io::ErrorKind::StorageFull), ImageErrorKind::Full);
        assert_eq!(disk(io::ErrorKind::QuotaExceeded), ImageErrorKind::Full);
        assert_eq!(disk(io::ErrorKind::PermissionDenied), ImageErrorKind::Node);
    }
}
