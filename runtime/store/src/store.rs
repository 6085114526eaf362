//! The store itself: one file, opened by one process. Owns transactions, and what waits for a disk that takes no
//! changes; the form of the file is `schema.rs`'s.
//!
//! ```text
//!   open ──a transaction fails──► closed ──next call──► open        (redb refuses everything after one failed write)
//!   keep ──► kept in memory ──next commit that succeeds──► on disk
//! ```
//!
//! There are two locks: the database's is held over calls of the disk, and that of what is kept for moments only, so that
//! a disk that hangs keeps nobody from keeping.

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

/// A way to open the database again.
type Opener = dyn Fn(&Path) -> Result<Database, redb::Error> + Send + Sync;

/// An open store. Cheap to clone. Calls block on the disk and are not for an async thread, but for
/// [`keep`](Store::keep) and [`has_kept`](Store::has_kept).
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    path: PathBuf,
    opener: Box<Opener>,
    /// The open database; `None` after a failure, until the next call. Held over calls of the disk.
    database: Mutex<Option<Database>>,
    /// Changes that stand and are not on disk. Taken after the database's lock, and held for moments.
    kept: Mutex<Changes>,
    /// The next change's place among all.
    next_place: AtomicU64,
}

/// At most one change for each key, the latest, with its place among all.
type Changes = BTreeMap<(Table, String), (u64, Option<Vec<u8>>)>;

/// The values of a table, each with its key, in the keys' order.
#[derive(Debug)]
pub struct Listing<T> {
    /// The values that could be read.
    pub values: Vec<(String, T)>,
    /// Why each of the others could not, with its key.
    pub unreadable: Vec<(String, StoreError)>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the file, or makes it. A second process is refused while one has it open.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        Store::open_by(path, Box::new(crate::disk::open))
    }

    /// Opens a copy of the file in memory, for whoever only looks at a store that nobody uses. `None` where there is no
    /// file. The file is not changed, not even to undo what a killed process left half done.
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

    /// Gives the batch its place among all changes of this store: of two changes of one value the later one stands, however they
    /// come to the disk. The call waits for no disk.
    pub fn stamped(&self, batch: Batch) -> Batch {
        let place = batch.place.unwrap_or_else(|| self.0.next_place.fetch_add(1, Ordering::Relaxed));
        Batch { place: Some(place), ..batch }
    }

    /// Makes the changes, all or none; they are on disk when this returns, with all that was kept before.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.commit_all(vec![batch]).map(drop)
    }

    /// Makes the changes of all batches in one transaction, as [`commit`](Self::commit) does. Where the disk has all of it
    /// already, nothing is written. Returns whether something was.
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

    /// Makes a transaction without changes: whether the disk takes one.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.0.with(&mut self.0.lock(), |database| {
            let transaction = database.begin_write().map_err(writing)?;
            pass(Point::StoreCommit).map_err(writing)?;
            transaction.commit().map_err(writing)
        })
    }

    /// Takes changes that stand whether they can be written now or not: what has ended, and what is gone. The changes
    /// are kept in memory until a [`commit`](Self::commit) succeeds, also an empty one. The call waits for no disk.
    pub fn keep(&self, batch: Batch) {
        let mut kept = self.0.kept();
        add(&mut kept, self.stamped(batch));
    }

    /// Whether changes wait in memory for a commit. The call waits for no disk.
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

    /// Reads every value of a table. A value that cannot be read is returned apart.
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

    /// Moves values out of a table to where nothing but a person reads them.
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

    /// The names of all values in quarantine: the table's, a slash and the key.
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

    /// Removes a value from the quarantine; an absent one is no error.
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
    /// A panic leaves a database that fails, and a failed one is opened again.
    fn lock(&self) -> MutexGuard<'_, Option<Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Changes> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a transaction on the open database, and opens the database first where it is closed. After a failure of
    /// the disk the database is closed: it would refuse everything from then on.
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

/// Opens the database and brings it to this version.
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

/// Adds a batch's changes to those that there are, but for what is older.
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

/// The changes that the database does not have yet.
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

/// Makes an empty database under another name first: a process killed in between leaves no half of one at `path`,
/// which nothing would open again.
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
