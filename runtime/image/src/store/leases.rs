//! Leases: the use of an image's files. Owns the handling of an image removed while in use.
//!
//! An image is in use from the moment its files are opened for a guest until the last VM is done with them.
//! After a daemon's start, the users from an earlier daemon are unknown until they have taken their leases
//! again. No file of a removed image is deleted before [`Store::users_are_known`].

use std::sync::Arc;

use super::{Record, Store};
use crate::blocking::DroppedAside;
use crate::error::ImageError;
use crate::files;

/// A use of an image. Dropping the last lease of a removed image deletes its files.
#[derive(Debug)]
pub struct Lease {
    _held: DroppedAside<Held>,
}

#[derive(Debug)]
struct Held {
    store: Arc<Store>,
    id: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.store.release(&self.id);
    }
}

impl Store {
    /// Takes a lease on a listed image.
    pub(crate) fn lease(self: &Arc<Self>, id: &str) -> Option<Lease> {
        self.lease_if(id, |index| index.records.contains_key(id))
    }

    /// Takes a lease for a user from an earlier daemon, even if the image was removed.
    pub(crate) fn lease_again(self: &Arc<Self>, id: &str) -> Option<Lease> {
        self.lease_if(id, |index| index.records.contains_key(id) || index.removed.contains_key(id))
    }

    fn lease_if(self: &Arc<Self>, id: &str, is_there: impl FnOnce(&super::Index) -> bool) -> Option<Lease> {
        let mut state = self.state();
        if !is_there(&state.index) {
            return None;
        }
        *state.leases.entry(id.to_owned()).or_default() += 1;
        drop(state);
        Some(Lease { _held: DroppedAside::new(Held { store: Arc::clone(self), id: id.to_owned() }) })
    }

    /// Counts one user less. Blocks on the disk if it was the last one of a removed image.
    fn release(&self, id: &str) {
        {
            let mut state = self.state();
            match state.leases.get_mut(id) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(state.leases.remove(id)),
            }
            if state.leases.contains_key(id) || !state.index.removed.contains_key(id) {
                return;
            }
        }
        if let Err(error) = self.remove_unused() {
            tracing::warn!(id, %error, "files of a removed image are there still");
        }
    }

    /// All users from an earlier daemon have their leases. Removed images without users are deleted.
    pub(crate) fn users_are_known(&self) -> Result<(), ImageError> {
        self.state().users_known = true;
        self.remove_unused()
    }

    /// Leases dropped from now on delete nothing: the daemon stops, but the users of images do not.
    pub(crate) fn forget_users(&self) {
        self.state().users_known = false;
    }

    /// Deletes the files of removed images without users.
    fn remove_unused(&self) -> Result<(), ImageError> {
        let _writer = self.writer();
        let (mut outcome, mut is_changed) = (Ok(()), false);
        let unused: Vec<String> = {
            let state = self.state();
            let unused = state.index.removed.keys().filter(|id| !state.leases.contains_key(*id)).cloned();
            if state.users_known { unused.collect() } else { Vec::new() }
        };
        for id in unused {
            let taken = {
                let mut state = self.state();
                if state.leases.contains_key(&id) { None } else { state.index.removed.remove(&id) }
            };
            let Some(record) = taken else { continue };
            match self.remove_own_file(&id) {
                Ok(()) => is_changed = true,
                Err(error) => {
                    self.state().index.removed.insert(id, record);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome = outcome.and(self.remove_layers());
        if is_changed && let Err(error) = self.write_index() {
            tracing::warn!(%error, "a removed image is gone, and the index is not written");
        }
        outcome
    }

    /// Takes an image off the list, and deletes its own file unless it is in use. The caller is the writer.
    /// Returns true if the image was listed.
    pub(super) fn take_away(&self, id: &str) -> Result<bool, ImageError> {
        let (record, is_used) = {
            let mut state = self.state();
            let Some(record) = state.index.records.remove(id) else { return Ok(false) };
            // Before all users are known, a running pod's image may have no lease yet.
            let is_used = state.leases.contains_key(id) || !state.users_known;
            if is_used {
                let nameless = Record { repo_tags: Vec::new(), repo_digests: Vec::new(), ..record.clone() };
                state.index.removed.insert(id.to_owned(), nameless);
            }
            (record, is_used)
        };
        if is_used {
            return Ok(true);
        }
        self.remove_own_file(id).inspect_err(|_| {
            self.state().index.records.insert(id.to_owned(), record);
        })?;
        Ok(true)
    }

    fn remove_own_file(&self, id: &str) -> Result<(), ImageError> {
        self.image_path(id).map_or(Ok(()), |path| files::remove(&path))
    }
}
