//! The steps of an import: the archive onto the disk, the images in it, and each of them by the steps of a
//! pull.
//!
//! ```text
//! a place ► archive to files (spool.rs) ► index.json: OCI layout (layout.rs)
//!                                       ► manifest.json: docker archive (docker.rs)
//!         ► each image: its blobs are read from those files, checked and unpacked (pull.rs) ► files removed
//! ```
//! A failed import keeps the images created before, and none of the archive's files.

mod docker;
mod found;
mod layout;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use self::found::Found;
use crate::blocking::{blocking, blocking_on_client};
use crate::error::{ContentError, ImageError};
use crate::limits::Limits;
use crate::name::Name;
use crate::progress::{Progress, PullState};
use crate::pull::Pull;
use crate::source::Source;
use crate::spool::Spool;
use crate::store::{Listed, Store};

/// Most images of one archive, because each is processed separately. Users save a few at once.
const IMAGES_MAX: usize = 256;

/// One import.
pub(crate) struct Import {
    pub(crate) store: Arc<Store>,
    pub(crate) limits: Limits,
    /// The name for the archive's only image.
    pub(crate) name: Option<Name>,
    pub(crate) progress: Progress,
}

impl Import {
    /// Returns the archive's images, in its order, each once.
    pub(crate) async fn run(
        self,
        input: mpsc::Receiver<io::Result<Bytes>>,
    ) -> Result<Vec<Listed>, ImageError> {
        self.progress.enter(PullState::Receiving);
        let (temporary, limits, progress) =
            (self.store.temporary(), self.limits.clone(), self.progress.clone());
        let receiving = move || Spool::receive(&temporary, input, &limits, &progress);
        let spool = Arc::new(blocking_on_client("receiving an archive", receiving).await?);
        let imported = self.import(&spool).await;
        let removing = blocking("removing the files of an archive", move || {
            spool.clear();
            Ok(())
        });
        removing.await.and(imported)
    }

    async fn import(&self, spool: &Arc<Spool>) -> Result<Vec<Listed>, ImageError> {
        let mut imported: Vec<Listed> = Vec::new();
        for found in self.found(spool).await? {
            let shown = found.shown();
            self.progress.begin(&shown);
            let Found { names, document, digest, is_original } = found;
            let pull = Pull {
                store: Arc::clone(&self.store),
                source: Arc::new(Source::Spool(Arc::clone(spool), document, digest)),
                shown,
                names,
                has_digest: is_original,
                limits: self.limits.clone(),
                progress: self.progress.clone(),
            };
            let listed = pull.run().await?;
            // An archive may list an image once per name.
            imported.retain(|before| before.record.id != listed.record.id);
            imported.push(listed);
        }
        Ok(imported)
    }

    /// Finds the archive's images.
    async fn found(&self, spool: &Spool) -> Result<Vec<Found>, ImageError> {
        let mut found = match spool.document("index.json").await? {
            Some(index) => layout::images(spool, &index).await?,
            None => match spool.document("manifest.json").await? {
                Some(list) => docker::images(spool, &list)?,
                None => {
                    let why = "the archive is neither an OCI image layout (it has no index.json) nor from \
                               docker save (it has no manifest.json)";
                    return Err(ImageError::NoArchive(why.to_owned()));
                }
            },
        };
        if found.is_empty() {
            return Err(ImageError::NoArchive("the archive has no image".to_owned()));
        }
        if found.len() > IMAGES_MAX {
            let (size, limit) = (found.len() as u64, IMAGES_MAX as u64);
            return Err(ImageError::content(
                "the archive",
                ContentError::Limit { size, unit: "images", limit },
            ));
        }
        if let Some(name) = &self.name {
            let is_one = found.iter().all(|one| one.digest == found[0].digest);
            if !is_one {
                let shown: Vec<String> = found.iter().take(20).map(Found::shown).collect();
                let why = format!("one name is no name for {} images: {}", found.len(), shown.join(", "));
                return Err(ImageError::NoArchive(why));
            }
            found.truncate(1);
            found[0].names = vec![name.clone()];
        }
        Ok(found)
    }
}
