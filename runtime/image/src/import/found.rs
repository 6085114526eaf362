//! One image of an archive, before its layers are read.

use bytes::Bytes;

use crate::name::Name;

/// An image of an archive.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) names: Vec<Name>,
    /// The image's manifest or index, and its digest.
    pub(super) document: Bytes,
    pub(super) digest: String,
    /// Whether the document is the author's original. Registries then know its digest too.
    pub(super) is_original: bool,
}

impl Found {
    /// The image's name in errors and in the progress.
    pub(super) fn shown(&self) -> String {
        self.names.first().map_or_else(|| self.digest.clone(), Name::whole)
    }
}
