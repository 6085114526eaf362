//! A test's orders, in a file read at each passing, and the record of passings. Owns the form of both files.
//!
//! ```text
//!   orders:  store.commit abort 2      POINT ACTION N: at the point's Nth passing since the last change
//!            # 17                      a line just to make the file different
//!   record:  store.commit 1            POINT N, in the order of passings
//!            store.commit 2 abort
//! ```
//!
//! A test replaces the file of orders as a whole, by a rename, while it has the record locked (flock).
//! Reading orders and recording their effect are thus one step for the test. A held task goes on when the
//! file has changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::armed::{Armed, Passing};
use crate::point::Point;

/// The environment variables with the paths of the orders and of the record.
const ORDERS: &str = "PODVISOR_FAIL_POINTS";
const RECORD: &str = "PODVISOR_FAIL_POINTS_RECORD";

/// Interval between two checks of held tasks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An act at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The process ends as by `kill -9`.
    Abort,
    /// The step fails.
    Error,
    /// The step waits until the orders change.
    Hang,
}

/// The orders and the record of a process.
#[derive(Debug)]
pub(crate) struct Orders {
    file: PathBuf,
    record: Option<File>,
    passed: Mutex<Passed>,
}

/// Passings since the orders last changed.
#[derive(Debug, Default)]
struct Passed {
    orders: String,
    counts: BTreeMap<Point, u64>,
}

impl Orders {
    /// The process's orders. `None` if no variable names a file.
    pub(crate) fn of_environment() -> Option<Orders> {
        let file = std::env::var_os(ORDERS)?;
        Some(Orders::new(Path::new(&file), std::env::var_os(RECORD).as_ref().map(Path::new)))
    }

    fn new(file: &Path, record: Option<&Path>) -> Orders {
        let record = record.map(|path| {
            File::options().append(true).create(true).open(path).expect("a test gives a file to write to")
        });
        Orders { file: file.to_owned(), record, passed: Mutex::default() }
    }

    /// Counts and records the passing, and finds its order.
    fn meet(&self, point: Point) -> (Option<Action>, String) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        // Until the passing is recorded, or the process has ended, no test replaces the orders. So a test
        // that reads the record afterwards sees every effect of the old orders.
        if let Some(record) = &self.record {
            record.lock().expect("a test's record can be locked");
        }
        let orders = self.read();
        if passed.orders != orders {
            *passed = Passed { orders: orders.clone(), counts: BTreeMap::new() };
        }
        let count = passed.counts.entry(point).or_default();
        *count += 1;
        let action = find(&orders, point, *count);
        if let Some(mut record) = self.record.as_ref() {
            let word = action.map_or("", Action::word);
            let line = format!("{} {count} {word}", point.name());
            // One write: lines of several threads do not mix.
            record
                .write_all(format!("{}\n", line.trim_end()).as_bytes())
                .expect("a test's record takes a line");
            record.unlock().expect("a test's record can be unlocked");
        }
        (action, orders)
    }

    /// The orders' text; empty if the file is missing.
    fn read(&self) -> String {
        fs::read_to_string(&self.file).unwrap_or_default()
    }
}

impl Armed for Orders {
    fn pass(&self, point: Point) -> io::Result<()> {
        let (action, orders) = self.meet(point);
        if action == Some(Action::Hang) {
            while self.read() == orders {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        act(action, point)
    }

    fn pass_async(&self, point: Point) -> Passing<'_> {
        Box::pin(async move {
            let (action, orders) = self.meet(point);
            if action == Some(Action::Hang) {
                while self.read() == orders {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
            act(action, point)
        })
    }
}

impl Action {
    const ALL: [Action; 3] = [Action::Abort, Action::Error, Action::Hang];

    fn word(self) -> &'static str {
        match self {
            Action::Abort => "abort",
            Action::Error => "error",
            Action::Hang => "hang",
        }
    }
}

/// Finds the order for this passing.
///
/// # Panics
/// If an order is malformed: a wrong test must not pass.
fn find(orders: &str, point: Point, count: u64) -> Option<Action> {
    orders.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        let [name, action, nth] = fields[..] else { panic!("no order: {line:?}") };
        assert!(Point::ALL.iter().any(|point| point.name() == name), "no point: {line:?}");
        let action = Action::ALL.into_iter().find(|known| known.word() == action);
        let action = action.unwrap_or_else(|| panic!("no action: {line:?}"));
        let nth: u64 = nth.parse().unwrap_or_else(|_| panic!("no number: {line:?}"));
        (name == point.name() && nth == count).then_some(action)
    })
}

fn act(action: Option<Action>, point: Point) -> io::Result<()> {
    match action {
        None | Some(Action::Hang) => Ok(()),
        Some(Action::Error) => Err(io::Error::other(format!("a test lets {} fail", point.name()))),
        Some(Action::Abort) => {
            let killed =
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            unreachable!("SIGKILL came back: {killed:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    struct Files {
        dir: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Files {
            Files { dir: tempfile::tempdir().unwrap() }
        }

        fn order(&self, text: &str) {
            let new = self.dir.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, self.file()).unwrap();
        }

        fn file(&self) -> PathBuf {
            self.dir.path().join("orders")
        }

        fn record(&self) -> PathBuf {
            self.dir.path().join("record")
        }

        fn orders(&self) -> Orders {
            Orders::new(&self.file(), Some(&self.record()))
        }

        fn recorded(&self) -> String {
            fs::read_to_string(self.record()).unwrap()
        }
    }

    #[test]
    fn the_ordered_passing_alone_fails_and_every_one_is_recorded() {
        let files = Files::new();
        let orders = files.orders();
        orders.pass(Point::StoreCommit).unwrap();
        files.order("# 1\nstore.commit error 2\n");
        orders.pass(Point::StoreCommit).unwrap();
        orders.pass(Point::VmmSpawn).unwrap();
        let error = orders.pass(Point::StoreCommit).unwrap_err();
        assert_eq!(error.to_string(), "a test lets store.commit fail");
        orders.pass(Point::StoreCommit).unwrap();
        files.order("# 2\n");
        orders.pass(Point::StoreCommit).unwrap();
        let expected = "store.commit 1\nstore.commit 1\nvmm.spawn 1\nstore.commit 2 error\nstore.commit 3\nstore.commit 1\n";
        assert_eq!(files.recorded(), expected);
    }

    #[test]
    fn a_held_thread_goes_on_when_the_orders_change() {
        let files = Files::new();
        files.order("log.write hang 1\n");
        let orders = files.orders();
        std::thread::scope(|scope| {
            let held = scope.spawn(|| orders.pass(Point::LogWrite));
            while files.recorded() != "log.write 1 hang\n" {
                std::thread::yield_now();
            }
            assert!(!held.is_finished());
            files.order("");
            held.join().unwrap().unwrap();
        });
    }

    #[tokio::test]
    async fn a_held_task_leaves_its_thread_to_others_and_goes_on_when_the_orders_change() {
        let files = Files::new();
        files.order("vmm.plug hang 1\n");
        let orders = files.orders();
        // One thread: the other half runs only while the first waits.
        let (held, ()) = tokio::join!(orders.pass_async(Point::VmmPlug), async {
            assert_eq!(files.recorded(), "vmm.plug 1 hang\n");
            orders.pass_async(Point::VmmUnplug).await.unwrap();
            files.order("");
        });
        held.unwrap();
    }

    #[test]
    fn an_abort_ends_the_process_as_kill_9_does() {
        const FILE: &str = "PODVISOR_TEST_OF_ABORT";
        if let Some(file) = std::env::var_os(FILE) {
            let _ = Orders::new(Path::new(&file), None).pass(Point::CniAdd);
            return;
        }
        let files = Files::new();
        files.order("cni.add abort 1\n");
        let name = "orders::tests::an_abort_ends_the_process_as_kill_9_does";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.args(["--exact", name]).env(FILE, files.file()).output().unwrap().status;
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn a_line_that_is_no_order_ends_the_test() {
        for text in
            ["store.commit error", "store.comit error 1", "store.commit eror 1", "store.commit error x"]
        {
            assert!(std::panic::catch_unwind(|| find(text, Point::VmmSpawn, 1)).is_err(), "{text}");
        }
    }
}
