//! Gets one layer into the store, unless it is already there. The bytes come from its source, or from an
//! earlier pull's part of its blob. Owns the order of lock, transfer and publication. `blob.rs` and
//! `layer.rs` process the bytes.
//!
//! ```text
//! layer's lock ► [tree here? ► good, done] ► a place ► blob's lock ► blob streamed, unpacked ► digests right
//!              ► data and tree renamed into place ► index written ► blob removed
//! ```

use std::sync::Arc;

use runtime_spans::{always, span};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};

use crate::blob::{self, BlobReader};
use crate::blocking::{blocking, blocking_on_layer};
use crate::error::{self, ImageError};
use crate::layer::{self, Budget, Charges, ExpectedLayer, Places};
use crate::manifest::Descriptor;
use crate::progress::{Counted, LayerProgress, LayerState};
use crate::source::Source;
use crate::store::Store;
use crate::transfer::Sources;
use crate::tree_file::{TreeFile, is_damage};

/// One layer needed by an image.
pub(crate) struct Fetch {
    pub(crate) store: Arc<Store>,
    pub(crate) source: Arc<Source>,
    pub(crate) descriptor: Descriptor,
    pub(crate) expected: ExpectedLayer,
    /// The files of the unpacked layer.
    pub(crate) places: Places,
    pub(crate) budget: Arc<Budget>,
    pub(crate) progress: LayerProgress,
}

/// The work's name, where it ended early.
const UNPACKING: &str = "unpacking a layer";

/// A layer before it is unpacked.
enum Opened {
    /// It is in the store.
    Here,
    /// Its blob, with the locks to be held until it is unpacked.
    Blob(Box<BlobReader>, (OwnedMutexGuard<()>, OwnedMutexGuard<()>, Option<OwnedSemaphorePermit>)),
}

impl Fetch {
    /// Returns once the layer is in the store. If a host's bytes are wrong, the next host is asked. The
    /// caller has pinned the layer and its blob. No thread writes to the layer's places after the return.
    pub(crate) async fn get(self, sources: Sources) -> Result<(), ImageError> {
        loop {
            match self.get_once(&sources).await {
                Err(error) if error.is_of_bytes() && self.source.has_others(&sources) => {
                    let error = error::chain(&error);
                    tracing::debug!(error, "the bytes of a layer are wrong, and another host is asked");
                }
                other => return other,
            }
        }
    }

    async fn get_once(&self, sources: &Sources) -> Result<(), ImageError> {
        let opened = sources.ended.run_until_cancelled(self.open(sources)).await;
        let (reader, locks) = match opened.ok_or(ImageError::Interrupted(UNPACKING))?? {
            Opened::Here => {
                self.progress.enter(LayerState::Exists);
                return Ok(());
            }
            Opened::Blob(reader, locks) => (reader, locks),
        };
        let (store, expected) = (Arc::clone(&self.store), self.expected.clone());
        let (places, progress) = (self.places.clone(), self.progress.clone());
        let charges = Arc::new(Charges::new(Arc::clone(&self.budget)));
        blocking_on_layer(UNPACKING, move || {
            // The thread outlives a dropped pull. Until the thread ends, no other pull may have the layer and
            // the blob.
            let _locks = locks;
            let unpacked = unpack(*reader, &store, &expected, &places, &charges, &progress);
            unpacked.inspect_err(|_| charges.give_back())
        })
        .await
    }

    /// Waits for the layer's turn and opens its blob, unless its tree is in the store. May be dropped at any
    /// time.
    async fn open(&self, sources: &Sources) -> Result<Opened, ImageError> {
        let store = &self.store;
        let layer_lock =
            always(span!("wait for the layer"), store.layer_locks.lock(&self.expected.diff_id)).await;
        if self.is_here().await? {
            return Ok(Opened::Here);
        }
        // Taken before the blob's lock, so a holder of that lock never waits for a place.
        let place = always(span!("wait for a place"), store.layer_place()).await;
        let blob_lock = store.blob_locks.lock(&self.descriptor.digest).await;
        let reader = blob::open(&store.blobs(), &self.descriptor, &self.source, sources).await?;
        Ok(Opened::Blob(Box::new(reader), (layer_lock, blob_lock, place)))
    }

    /// Returns true if the layer is stored with a good tree. A damaged tree counts as absent. Damaged
    /// contents are an error before anything is fetched, if an image has the layer.
    async fn is_here(&self) -> Result<bool, ImageError> {
        let (store, diff_id) = (Arc::clone(&self.store), self.expected.diff_id.clone());
        let Some(path) = store.layer(&diff_id).and_then(|_| store.tree_path(&diff_id)) else {
            return Ok(false);
        };
        let place = always(span!("wait for a place for a tree"), store.tree_place()).await;
        let reading = blocking_on_layer("reading a layer's tree", move || {
            let _place = place;
            let Some(layer) = store.layer_with_data(&diff_id)? else { return Ok(None) };
            match TreeFile::read_stored(&path, layer.tree_verity.as_ref()) {
                Ok(tree) => Ok(Some(tree.sizes)),
                Err(error) if is_damage(&error) => {
                    tracing::warn!(error = error::chain(&error), "a layer is fetched again");
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        });
        let found = reading.await?;
        if let Some(sizes) = &found {
            let charged = Charges::new(Arc::clone(&self.budget)).charge_layer(sizes);
            charged.map_err(|wrong| ImageError::content(&self.expected.what, wrong))?;
        }
        Ok(found.is_some())
    }
}

fn unpack(
    mut reader: BlobReader,
    store: &Store,
    expected: &ExpectedLayer,
    places: &Places,
    charges: &Arc<Charges>,
    progress: &LayerProgress,
) -> Result<(), ImageError> {
    progress.begin(if reader.is_here() { LayerState::Converting } else { LayerState::Downloading });
    let unpacking = layer::unpack(expected, &mut Counted::new(&mut reader, progress), places, charges);
    let unpacked = match unpacking {
        Ok(unpacked) => unpacked,
        Err(error) => return Err(reader.give_up(error)),
    };
    progress.enter(LayerState::Converting);
    let blob = reader.check()?;
    store.publish_layer(&expected.diff_id, unpacked, places)?;
    if let Err(error) = blob.remove() {
        tracing::warn!(error = error::chain(&error), "the blob of a layer is left");
    }
    progress.enter(LayerState::Done);
    Ok(())
}

/// Reads a small blob, then checks and stores it. If it cannot be read, its transfer ends.
pub(crate) async fn read_small(
    reader: BlobReader,
    what: &'static str,
    lock: impl Send + 'static,
) -> Result<Vec<u8>, ImageError> {
    blocking(what, move || {
        let (_lock, mut reader) = (lock, reader);
        // The descriptor's size is within its limit, and the reader never returns more.
        let mut bytes = Vec::new();
        match std::io::copy(&mut reader, &mut bytes) {
            Ok(_) => reader.finish().map(|()| bytes),
            // If the disk has not failed, the reader has the better error.
            Err(error) => {
                let error = reader.disk_error(error);
                Err(reader.give_up(error))
            }
        }
    })
    .await
}
