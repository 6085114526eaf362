//! The source of an image's manifests and blobs: a registry's hosts, or an imported archive. Owns the choice
//! between them.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::ImageError;
use crate::name::Name;
use crate::registry::Registry;
use crate::spool::Spool;
use crate::transfer::Sources;

/// The source of one image.
pub(crate) enum Source {
    /// The hosts of a registry, for one name.
    Registry(Arc<Registry>, Name),
    /// An archive, and the document of one image in it with its digest.
    Spool(Arc<Spool>, Bytes, String),
}

impl Source {
    /// Returns the digest name of the image's own document, without getting the document. `None` if its
    /// registry does not say it, or `is_worth_asking` is false for the name.
    pub(crate) async fn digest_name(&self, is_worth_asking: impl FnOnce(&Name) -> bool) -> Option<String> {
        match self {
            Source::Registry(registry, name) if is_worth_asking(name) => {
                registry.manifest_digest(name).await.map(|digest| name.repo_digest(&digest))
            }
            Source::Registry(..) | Source::Spool(..) => None,
        }
    }

    /// Gets a document and its digest: of the image itself, or of another digest beside it.
    pub(crate) async fn manifest(&self, digest: Option<&str>) -> Result<(Bytes, String), ImageError> {
        match (self, digest) {
            (Source::Registry(registry, name), _) => registry.manifest(name, digest).await,
            (Source::Spool(_, bytes, own), None) => Ok((bytes.clone(), own.clone())),
            (Source::Spool(spool, ..), Some(digest)) => {
                let what = format!("manifest {digest}");
                Ok((spool.document_of(digest, &what).await?, digest.to_owned()))
            }
        }
    }

    /// Returns true if another attempt at a blob may bring other bytes than the last one. An archive has each
    /// blob once.
    pub(crate) fn has_others(&self, sources: &Sources) -> bool {
        match self {
            Source::Registry(registry, _) => sources.try_others(registry),
            Source::Spool(..) => false,
        }
    }

    /// Returns true if blobs are already on the node's disk.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self, Source::Spool(..))
    }
}
