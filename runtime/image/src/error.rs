//! Errors of pulling and keeping images. Owns messages only.
//!
//! Errors are shared between the callers that joined one pull, hence `Clone` and the sources behind `Arc`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oci_client::errors::OciDistributionError;

/// A failure to pull, open or remove an image.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageError {
    /// The name is no image reference.
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
        /// The manifest, blob or token that was asked for.
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
        /// The manifest, blob or token that was asked for.
        what: String,
    },
    /// The registry wants other credentials.
    #[error("registry {registry} refuses {what}: the credentials are missing or do not suffice{said}")]
    Unauthorized {
        /// Host and port.
        registry: String,
        /// The manifest, blob or token that was asked for.
        what: String,
        /// The registry's words, after a colon.
        said: String,
    },
    /// The registry knows who asks, and gives nothing.
    #[error("registry {registry} denies {what} to these credentials{said}")]
    Denied {
        /// Host and port.
        registry: String,
        /// The manifest, blob or token that was asked for.
        what: String,
        /// The registry's words, after a colon.
        said: String,
    },
    /// The registry takes no more requests for now.
    #[error("registry {registry} wants fewer requests, and does not give {what} for now")]
    Busy {
        /// Host and port.
        registry: String,
        /// The manifest, blob or token that was asked for.
        what: String,
        /// How long the registry wants to be left alone, if it says so.
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
        /// The manifest, blob or token that was asked for.
        what: String,
        /// The registry's answer.
        #[source]
        source: Arc<OciDistributionError>,
    },
    /// Several hosts serve the registry, and none of them had the content.
    #[error("no host gives {what}{}", each(failures))]
    Hosts {
        /// The manifest or blob that was asked for.
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
        /// The blob that was asked for.
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
        /// The work that was under way.
        what: String,
        /// The bound.
        seconds: u64,
    },
    /// The registry sent something else than what was asked for, or no image.
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
    /// The disk cannot take the image.
    #[error("{} has {free} bytes of room, and the image takes {wanted} at least", path.display())]
    NoRoom {
        /// The image directory.
        path: PathBuf,
        /// Bytes of blobs that are not here, and of files that layers unpack to.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The archive of an image lacks a part of it.
    #[error("the archive has no {what}")]
    Missing {
        /// The part: a file, a manifest or a blob.
        what: String,
    },
    /// The archive holds something else than images, or not the one that is asked for.
    #[error("{0}")]
    NoArchive(String),
    /// No such image here.
    #[error("image {0} is not on this node")]
    Unknown(String),
    /// The work ended without a result: the daemon is shutting down, or has a bug.
    #[error("{0} was interrupted")]
    Interrupted(&'static str),
}

/// Kinds of failures, by what a caller can do about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageErrorKind {
    /// The name is no image's.
    Name,
    /// The registry does not answer, or answers with an error of its own, and may do better later.
    Unavailable,
    /// There is no such image, or none for this platform.
    NotFound,
    /// The registry wants credentials, or others.
    Unauthenticated,
    /// The registry denies the image to these credentials.
    Denied,
    /// The image is broken, or the operator's files of hosts are.
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
    /// There is more content than the descriptor says.
    #[error("it is longer than the {expected} bytes that its descriptor gives")]
    TooLong {
        /// Bytes by the descriptor.
        expected: u64,
    },
    /// A bound of [`crate::Limits`].
    #[error("{size} {unit} are more than the limit of {limit}")]
    Limit {
        /// The size of the image's part, or what of it was seen so far.
        size: u64,
        /// The unit of both.
        unit: &'static str,
        /// The bound.
        limit: u64,
    },
    /// Not JSON, or JSON without what it must have.
    #[error("it cannot be parsed: {0}")]
    Json(String),
    /// A digest in another algorithm than sha256, or no digest.
    #[error("\"{0}\" is not a sha256 digest")]
    DigestFormat(String),
    /// A media type that is not an image's.
    #[error("media type \"{0}\" is not supported")]
    MediaType(String),
    /// The config is not an image's: a chart's, a signature's, or that of another artifact.
    #[error("it is no image to run but an artifact, whose config has the media type \"{0}\"")]
    Artifact(String),
    /// A manifest of Docker's first schema.
    #[error(
        "it is a manifest of Docker's schema 1, which has not been supported for long: push the image anew, as schema 2 or OCI"
    )]
    FirstSchema,
    /// The image has no variant for linux/amd64; the text names those that it has.
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
    /// The layer's tree on this node is not one that this node has written.
    #[error("its tree on this node is damaged: {0}")]
    Tree(String),
    /// The image is too large for one file system.
    #[error("it is too large for one file system")]
    TooLarge,
}

/// The failures with their causes: there is no chain when there are several.
fn each(failures: &[ImageError]) -> String {
    match failures {
        [] => ", for none may resolve or pull, or none answers".to_owned(),
        _ => failures.iter().map(|failure| format!("; {}", chain(failure))).collect(),
    }
}

/// Whether a disk, or the quota on it, has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl ImageError {
    /// The kind of the failure. Where several hosts failed, that of the upstream's, which is asked last, counts.
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

    /// Whether the same question may have another answer in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ImageError::Unreachable { .. } | ImageError::Deadline { .. } | ImageError::Busy { .. } => true,
            ImageError::Registry { source, .. } => {
                matches!(**source, OciDistributionError::ServerError { code: 408 | 500.., .. })
            }
            _ => false,
        }
    }

    /// Whether other bytes than those that were sent may be the image's.
    pub(crate) fn is_of_bytes(&self) -> bool {
        use ContentError as C;
        let ImageError::Content { error, .. } = self else { return false };
        match error {
            C::Digest { .. } | C::Truncated { .. } | C::TooLong { .. } => true,
            // As far as their digest is not known.
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
