//! Fail points of a daemon under test: its orders, and its passings. `runtime/fail-points` defines the form
//! of both files.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::wait::until_seen;

/// The program with fail points, beside the released one.
pub const PROGRAM: &str = "podvisor-fail-points";

/// The files of one host.
#[derive(Debug)]
pub struct FailPoints {
    orders: PathBuf,
    record: PathBuf,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    count: u64,
    /// The record's length when the orders were given.
    from: u64,
}

/// One passing of a point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Passing {
    /// The point's name.
    pub point: String,
    /// The passings of the point since the last orders, this one included.
    pub nth: u64,
    /// The action ordered for this passing; often none.
    pub action: String,
}

impl FailPoints {
    /// Files below `dir`, without an order.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn make(dir: &Path) -> io::Result<FailPoints> {
        let (orders, record) = (dir.join("fail-points.orders"), dir.join("fail-points.record"));
        fs::write(&record, "")?;
        let points = FailPoints { orders, record, given: Mutex::default() };
        points.order("")?;
        Ok(points)
    }

    /// The variables with the paths of the files, for a daemon.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [("PODVISOR_FAIL_POINTS", &self.orders), ("PODVISOR_FAIL_POINTS_RECORD", &self.record)]
    }

    /// Replaces the orders: `POINT ACTION N` in each line, or nothing. Passings are counted from zero again,
    /// and held threads go on.
    ///
    /// # Errors
    /// When the file cannot be written.
    ///
    /// # Panics
    /// When another thread panicked here.
    pub fn order(&self, orders: &str) -> io::Result<()> {
        self.replace(orders).map(|_| ())
    }

    /// Takes the orders back, and returns whether an action was taken by them: none is from here on.
    ///
    /// # Errors
    /// When the file cannot be written or the record cannot be read.
    ///
    /// # Panics
    /// When another thread panicked here.
    pub fn withdraw(&self) -> io::Result<bool> {
        Ok(self.replace("")?.iter().any(Passing::acted))
    }

    /// Replaces the orders, and returns the passings under the old ones.
    fn replace(&self, orders: &str) -> io::Result<Vec<Passing>> {
        let mut given = self.given.lock().expect("no thread panicked");
        given.count += 1;
        let new = self.orders.with_extension("new");
        fs::write(&new, format!("# {}\n{orders}\n", given.count).trim_end())?;
        let record = fs::File::open(&self.record)?;
        // A daemon holds the lock from reading its orders until recording its action.
        record.lock()?;
        fs::rename(new, &self.orders)?;
        let passed = read(&record, given.from)?;
        given.from = record.metadata()?.len();
        Ok(passed)
    }

    /// The passings since the last orders.
    ///
    /// # Errors
    /// When the record cannot be read.
    ///
    /// # Panics
    /// When another thread panicked here.
    pub fn passed(&self) -> io::Result<Vec<Passing>> {
        let from = self.given.lock().expect("no thread panicked").from;
        read(&fs::File::open(&self.record)?, from)
    }

    /// Every passing of the host's daemons.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn all_passed(&self) -> io::Result<Vec<Passing>> {
        Ok(fs::read_to_string(&self.record)?.lines().filter_map(passing).collect())
    }

    /// Waits until the ordered action was taken.
    ///
    /// # Errors
    /// When the record cannot be read.
    ///
    /// # Panics
    /// When the action is not taken.
    pub async fn reached(&self) -> io::Result<()> {
        until_seen("the ordered action to be taken", async || match self.passed() {
            Ok(passed) if !passed.iter().any(Passing::acted) => Err(passed),
            passed => Ok(passed.map(drop)),
        })
        .await
    }
}

impl Passing {
    fn acted(&self) -> bool {
        !self.action.is_empty()
    }
}

/// The record's passings from this offset on.
fn read(mut record: &fs::File, from: u64) -> io::Result<Vec<Passing>> {
    record.seek(SeekFrom::Start(from))?;
    let mut text = String::new();
    record.read_to_string(&mut text)?;
    Ok(text.lines().filter_map(passing).collect())
}

/// A line of the record; none if a killed daemon left half of one.
fn passing(line: &str) -> Option<Passing> {
    let mut fields = line.split(' ');
    let (point, nth) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
    Some(Passing { point, nth, action: fields.next().unwrap_or_default().to_owned() })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    /// Time for a thread to start waiting for the record.
    const PAUSE: Duration = Duration::from_millis(5);

    fn acted(points: &FailPoints) -> bool {
        points.passed().unwrap().iter().any(Passing::acted)
    }

    #[test]
    fn passings_since_the_last_orders_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let points = FailPoints::make(dir.path()).unwrap();
        let record = |text: &str| {
            let mut file = fs::File::options().append(true).open(&points.record).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        record("vmm.spawn 1\n");
        points.order("store.commit error 2").unwrap();
        assert_eq!(fs::read_to_string(&points.orders).unwrap(), "# 2\nstore.commit error 2");
        record("store.commit 1\n");
        assert!(!acted(&points));
        record("store.commit 2 error\nstore");
        let passing =
            |nth, action: &str| Passing { point: "store.commit".into(), nth, action: action.into() };
        assert_eq!(points.passed().unwrap(), [passing(1, ""), passing(2, "error")]);
        assert_eq!(points.all_passed().unwrap().len(), 3);
        assert!(acted(&points));
    }

    #[test]
    fn orders_are_taken_back_before_or_after_a_passing_and_never_within_one() {
        let dir = tempfile::tempdir().unwrap();
        let points = FailPoints::make(dir.path()).unwrap();
        points.order("store.commit abort 1").unwrap();
        // A daemon has read its orders, and recorded nothing yet.
        let mut daemon = fs::File::options().append(true).open(&points.record).unwrap();
        daemon.lock().unwrap();
        let acted = std::thread::scope(|scope| {
            let withdrawn = scope.spawn(|| points.withdraw().unwrap());
            std::thread::sleep(PAUSE);
            daemon.write_all(b"store.commit 1 abort\n").unwrap();
            daemon.unlock().unwrap();
            withdrawn.join().unwrap()
        });
        assert!(acted);
        assert!(!points.withdraw().unwrap());
    }
}
