//! The store itself: one file, opened by one process. Owns transactions, and changes waiting for a failing
//! disk. `schema.rs` owns the form of the file.
//!
//! ```text
//!   open ──a transaction fails──► closed ──next call──► open        (redb refuses all after a failed write)
//!   keep ──► kept in memory ──next successful commit──► on disk
//! ```
//!
//! There are two locks. The database's lock is held during disk I/O. The lock of the kept changes is held
//! only briefly, so a hanging disk does not block [`keep`](Store::keep).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{AccessGuard, Database, ReadableDatabase, ReadableTable, TableError, WriteTransaction};
use runtime_fail_points::{Point, pass};
use serde::de::DeserializeOwned;

use crate::batch::Batch;
use crate::error::{StoreError, reading, writing};
use crate::schema;
use crate::table::{QUARANTINE, Table};

/// A function to reopen the database.
type Opener = dyn Fn(&Path) -> Result<Database, redb::Error> + Send + Sync;

/// An open store. Cheap to clone. Calls block on the disk and are not for an async thread, except
/// [`keep`](Store::keep) and [`has_kept`](Store::has_kept).
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    path: PathBuf,
    opener: Box<Opener>,
    /// The open database. `None` after a failure, until the next call. Held during disk I/O.
    database: Mutex<Option<Database>>,
    /// Accepted changes not yet on disk. Locked after the database's lock, and only briefly.
    kept: Mutex<Changes>,
    /// The next change's position among all.
    next_place: AtomicU64,
}

/// At most one change for each key, the latest, with its position among all.
type Changes = BTreeMap<(Table, String), (u64, Option<Vec<u8>>)>;

/// The values of a table, each with its key, in the keys' order.
#[derive(Debug)]
pub struct Listing<T> {
    /// The readable values.
    pub values: Vec<(String, T)>,
    /// The keys of the unreadable values, each with its error.
    pub unreadable: Vec<(String, StoreError)>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the file, or creates it. A second process is refused while one has it open.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        Store::open_by(path, Box::new(crate::disk::open))
    }

    /// Opens a copy of the file in memory, to inspect a store not in use. `None` if there is no file. The
    /// file is not changed, not even to undo a killed process's unfinished write.
    pub fn open_copy(path: &Path) -> Result<Option<Store>, StoreError> {
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => Store::open_by(path, Box::new(crate::disk::open_copy)).map(Some),
        }
    }

    fn open_by(path: &Path, opener: Box<Opener>) -> Result<Store, StoreError> {
        let opening = |source| StoreError::Open { path: path.to_owned(), source: Box::new(source) };
        if !path.try_exists().map_err(|error| opening(error.into()))? {
            make(path).map_err(opening)?;
        }
        let database = open_current(path, &opener)?;
        let (database, kept, next_place) = (Mutex::new(Some(database)), Mutex::default(), AtomicU64::new(0));
        Ok(Store(Arc::new(Shared { path: path.to_owned(), opener, database, kept, next_place })))
    }

    /// Gives the batch its position among all changes of this store. Of two changes of one value, the later
    /// one wins, regardless of the order of their writes. The call does not wait for the disk.
    pub fn stamped(&self, batch: Batch) -> Batch {
        let place = batch.place.unwrap_or_else(|| self.0.next_place.fetch_add(1, Ordering::Relaxed));
        Batch { place: Some(place), ..batch }
    }

    /// Makes the changes, all or none. When this returns they are on disk, with all changes kept before.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.commit_all(vec![batch]).map(drop)
    }

    /// Makes the changes of all batches in one transaction, like [`commit`](Self::commit). If the disk has
    /// all of them already, nothing is written. Returns true if something was written.
    pub fn commit_all(&self, batches: Vec<Batch>) -> Result<bool, StoreError> {
        let mut database = self.0.lock();
        let kept = std::mem::take(&mut *self.0.kept());
        let mut all = kept.clone();
        for batch in batches {
            add(&mut all, self.stamped(batch));
        }
        let outcome = self.0.with(&mut database, |database| {
            let news = news(database, all)?;
            if news.is_empty() {
                return Ok(false);
            }
            let transaction = database.begin_write().map_err(writing)?;
            for ((table, key), (_, value)) in &news {
                change(&transaction, *table, key, value.as_deref())?;
            }
            pass(Point::StoreCommit).map_err(writing)?;
            transaction.commit().map_err(writing)?;
            Ok(true)
        });
        if outcome.is_err() {
            let mut newer = self.0.kept();
            for (key, value) in kept {
                newer.entry(key).or_insert(value);
            }
        }
        outcome
    }

    /// Makes a transaction without changes, to check the disk.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.0.with(&mut self.0.lock(), |database| {
            let transaction = database.begin_write().map_err(writing)?;
            pass(Point::StoreCommit).map_err(writing)?;
            transaction.commit().map_err(writing)
        })
    }

    /// Accepts changes already in effect, even if they cannot be written now: the end or the removal of
    /// something. They are kept in memory until a [`commit`](Self::commit) succeeds, even an empty one. The
    /// call does not wait for the disk.
    pub fn keep(&self, batch: Batch) {
        let mut kept = self.0.kept();
        add(&mut kept, self.stamped(batch));
    }

    /// Returns true if changes wait in memory for a commit. The call does not wait for the disk.
    pub fn has_kept(&self) -> bool {
        !self.0.kept().is_empty()
    }

    /// Reads one value.
    pub fn get<T: DeserializeOwned>(&self, table: Table, key: &str) -> Result<Option<T>, StoreError> {
        self.0.with(&mut self.0.lock(), |database| {
            let transaction = database.begin_read().map_err(reading)?;
            let opened = transaction.open_table(table.definition()).map_err(reading)?;
            let value = opened.get(key).map_err(reading)?;
            value.map(|bytes| read(table, key, bytes.value())).transpose()
        })
    }

    /// Reads every value of a table. Unreadable values are returned separately.
    pub fn list<T: DeserializeOwned>(&self, table: Table) -> Result<Listing<T>, StoreError> {
        self.0.with(&mut self.0.lock(), |database| {
            let transaction = database.begin_read().map_err(reading)?;
            let opened = transaction.open_table(table.definition()).map_err(reading)?;
            let mut listing = Listing { values: Vec::new(), unreadable: Vec::new() };
            for entry in opened.iter().map_err(reading)? {
                let (key, value) = entry.map_err(reading)?;
                let key = key.value().to_owned();
                match read(table, &key, value.value()) {
                    Ok(value) => listing.values.push((key, value)),
                    Err(error) => listing.unreadable.push((key, error)),
                }
            }
            Ok(listing)
        })
    }

    /// Moves values out of a table into quarantine, for a person to read.
    pub fn quarantine(&self, table: Table, keys: &[String]) -> Result<(), StoreError> {
        self.0.with(&mut self.0.lock(), |database| {
            let transaction = database.begin_write().map_err(writing)?;
            {
                let mut from = transaction.open_table(table.definition()).map_err(writing)?;
                let mut to = transaction.open_table(QUARANTINE).map_err(writing)?;
                for key in keys {
                    let Some(value) = from.remove(key.as_str()).map_err(writing)? else { continue };
                    let name = format!("{}/{key}", table.name());
                    to.insert(name.as_str(), value.value()).map_err(writing)?;
                }
            }
            pass(Point::StoreQuarantine).map_err(writing)?;
            transaction.commit().map_err(writing)
        })
    }

    /// The names of all values in quarantine, as "table/key".
    pub fn quarantined(&self) -> Result<Vec<String>, StoreError> {
        self.0.with(&mut self.0.lock(), |database| {
            let transaction = database.begin_read().map_err(reading)?;
            let opened = match transaction.open_table(QUARANTINE) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                opened => opened.map_err(reading)?,
            };
            let names = opened.iter().map_err(reading)?;
            names.map(|entry| Ok(entry.map_err(reading)?.0.value().to_owned())).collect()
        })
    }

    /// Removes a value from the quarantine. An absent one is no error.
    pub fn remove_quarantined(&self, name: &str) -> Result<(), StoreError> {
        self.0.with(&mut self.0.lock(), |database| {
            pass(Point::StoreQuarantine).map_err(writing)?;
            let transaction = database.begin_write().map_err(writing)?;
            drop(transaction.open_table(QUARANTINE).map_err(writing)?.remove(name).map_err(writing)?);
            transaction.commit().map_err(writing)
        })
    }
}

impl Shared {
    /// A panic leaves a failing database, and the next call opens it again.
    fn lock(&self) -> MutexGuard<'_, Option<Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Changes> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a transaction on the open database, and opens the database first if it is closed. A disk failure
    /// closes the database, because it would refuse everything from then on.
    fn with<T>(
        &self,
        open: &mut Option<Database>,
        transaction: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = match open.take() {
            Some(database) => database,
            None => open_current(&self.path, &self.opener)?,
        };
        let outcome = transaction(&database);
        if !matches!(outcome, Err(StoreError::Database { .. })) {
            *open = Some(database);
        }
        outcome
    }
}

/// Opens the database and upgrades it to this version.
fn open_current(path: &Path, opener: &Opener) -> Result<Database, StoreError> {
    let opening = |source| StoreError::Open { path: path.to_owned(), source: Box::new(source) };
    let database = opener(path).map_err(opening)?;
    if !schema::is_current(&database)? {
        let transaction = database.begin_write().map_err(|error| opening(error.into()))?;
        schema::prepare(path, &transaction)?;
        pass(Point::StoreUpgrade).map_err(|error| opening(error.into()))?;
        transaction.commit().map_err(|error| opening(error.into()))?;
    }
    Ok(database)
}

/// Adds a batch's changes to `all`, except for keys with a later change.
fn add(all: &mut Changes, batch: Batch) {
    let place = batch.place.unwrap_or_default();
    for (table, key, value) in batch.changes {
        match all.entry((table, key)) {
            Entry::Occupied(later) if later.get().0 > place => {}
            Entry::Occupied(mut earlier) => drop(earlier.insert((place, value))),
            Entry::Vacant(free) => drop(free.insert((place, value))),
        }
    }
}

/// The changes not yet in the database.
fn news(database: &Database, mut changes: Changes) -> Result<Changes, StoreError> {
    let transaction = database.begin_read().map_err(reading)?;
    for table in Table::ALL {
        if !changes.keys().any(|(of, _)| *of == table) {
            continue;
        }
        let opened = transaction.open_table(table.definition()).map_err(reading)?;
        let mut known = Vec::new();
        for ((_, key), (_, value)) in changes.iter().filter(|((of, _), _)| *of == table) {
            let found = opened.get(key.as_str()).map_err(reading)?;
            if found.as_ref().map(AccessGuard::value) == value.as_deref() {
                known.push((table, key.clone()));
            }
        }
        for key in known {
            changes.remove(&key);
        }
    }
    Ok(changes)
}

fn change(
    transaction: &WriteTransaction,
    table: Table,
    key: &str,
    value: Option<&[u8]>,
) -> Result<(), StoreError> {
    let mut table = transaction.open_table(table.definition()).map_err(writing)?;
    match value {
        Some(bytes) => drop(table.insert(key, bytes).map_err(writing)?),
        None => drop(table.remove(key).map_err(writing)?),
    }
    Ok(())
}

/// Creates an empty database under another name first. A process killed in between then leaves no half-made
/// file at `path`, where it could never be opened.
fn make(path: &Path) -> Result<(), redb::Error> {
    let unfinished = path.with_added_extension("new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    drop(Database::create(&unfinished)?);
    pass(Point::StoreMake)?;
    std::fs::rename(&unfinished, path)?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

fn read<T: DeserializeOwned>(table: Table, key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|source| StoreError::Corrupt {
        table: table.name(),
        key: key.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
