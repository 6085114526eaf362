//! Reloads of real files, with parts that record their values.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal as Number, raise};
use tokio::signal::unix::{SignalKind, signal};

use super::*;

/// Parts that keep their values, or refuse them.
#[derive(Clone, Default)]
struct Kept {
    taken: Arc<Mutex<Vec<Config>>>,
    refusal: Arc<Mutex<Option<&'static str>>>,
}

impl TakeUp for Kept {
    async fn take_up(&mut self, config: &Config) -> anyhow::Result<()> {
        // Long enough for a second signal to come meanwhile.
        tokio::task::yield_now().await;
        if let Some(why) = *self.refusal.lock().unwrap() {
            bail!(why);
        }
        self.taken.lock().unwrap().push(config.clone());
        Ok(())
    }
}

impl Kept {
    fn last(&self) -> Config {
        self.taken.lock().unwrap().last().expect("something was taken").clone()
    }

    fn count(&self) -> usize {
        self.taken.lock().unwrap().len()
    }
}

struct World {
    dir: tempfile::TempDir,
    kept: Kept,
    reloader: Reloader<Kept>,
    view: watch::Receiver<ConfigurationView>,
}

impl World {
    /// A daemon started with this text.
    fn with(text: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, text).unwrap();
        let loaded = load(Some(&path)).unwrap();
        let views = publish_first(&loaded);
        let (kept, view) = (Kept::default(), views.subscribe());
        let reloader = Reloader::new(Some(path), loaded, kept.clone(), views);
        World { dir, kept, reloader, view }
    }

    fn path(&self) -> &Path {
        self.reloader.path.as_deref().unwrap()
    }

    async fn reload(&mut self, text: &str) {
        fs::write(self.path(), text).unwrap();
        self.reloader.reload().await;
    }

    fn in_force(&self) -> ConfigView {
        serde_json::from_value(self.view.borrow().in_force.clone()).unwrap()
    }

    fn value(&self, key: &str) -> Option<toml::Value> {
        self.in_force().settings.into_iter().find(|setting| setting.key == key).unwrap().value
    }

    /// Asserts that a reload was refused for this reason, and nothing of it was used.
    fn assert_refused(&self, why: &str) {
        let refused = self.in_force().refused().map(str::to_owned).unwrap_or_default();
        assert!(refused.contains(why) && refused.lines().count() == 1, "{why}: {refused}");
        assert!(self.view.borrow().is_refused);
        assert_eq!(self.kept.count(), 0);
        assert_eq!(self.value("cgroup.strict"), Some(true.into()));
    }
}

const STRICT: &str = "[cgroup]\nstrict = true\n";

#[tokio::test]
async fn what_can_be_is_taken_up_and_the_others_wait() {
    let mut world = World::with("[paths]\nrun = \"/r\"\n");
    world.reload("[paths]\nrun = \"/q\"\n[cgroup]\nstrict = true\n[[handler]]\nname = \"new\"\n").await;
    let taken = world.kept.last();
    assert!(taken.cgroup.strict && taken.paths.run == Path::new("/r"));
    let view = world.view.borrow().clone();
    assert_eq!((view.handlers, view.is_refused, view.waiting), (vec![String::new(), "new".into()], false, 1));
    assert_eq!(
        (world.value("paths.run"), world.value("cgroup.strict")),
        (Some("/r".into()), Some(true.into()))
    );
    // Put back, nothing waits any more.
    world.reload("[paths]\nrun = \"/r\"\n").await;
    assert_eq!((world.view.borrow().waiting, world.kept.last().cgroup.strict), (0, false));
}

#[tokio::test]
async fn a_wrong_file_changes_nothing_and_a_right_one_after_it_counts() {
    let mut world = World::with(STRICT);
    for (text, why) in [
        ("[cgroup]\nstrikt = false\n", ", line 2: cgroup.strikt: unknown field"),
        ("[cgroup]\nstrict = 1\n", ", line 2: cgroup.strict: invalid type"),
        ("[cgroup]\nstrict = fal", ", line 2"),
        ("[log]\nlevel = \"inof\"\n", ", line 2: log.level: "),
        ("\u{0}", ", line 1"),
    ] {
        world.reload(text).await;
        world.assert_refused(why);
    }
    world.reload("[cgroup]\nstrict = false\n").await;
    assert_eq!(world.in_force().refused(), None);
    assert_eq!((world.kept.count(), world.kept.last().cgroup.strict), (1, false));
}

#[tokio::test]
async fn a_file_that_went_away_or_is_none_changes_nothing() {
    let mut world = World::with(STRICT);
    fs::remove_file(world.path()).unwrap();
    world.reloader.reload().await;
    world.assert_refused("No such file");
    fs::create_dir(world.path()).unwrap();
    world.reloader.reload().await;
    world.assert_refused("no regular file");
    fs::remove_dir(world.path()).unwrap();
    fs::File::create(world.path()).unwrap().set_len(2 << 20).unwrap();
    world.reloader.reload().await;
    world.assert_refused("larger than 1 MiB");
    // Back again, as by an editor with renames.
    let beside = world.dir.path().join("beside");
    fs::write(&beside, "").unwrap();
    fs::rename(beside, world.path()).unwrap();
    world.reloader.reload().await;
    assert!(!world.kept.last().cgroup.strict);
}

#[tokio::test]
async fn a_default_file_that_went_away_is_not_taken_for_an_empty_one() {
    let mut world = World::with(STRICT);
    // The default file does not exist on most build hosts. With one this is another case.
    world.reloader.path = None;
    if Path::new(crate::config::DEFAULT_FILE).exists() {
        eprintln!("skipped: this host has a configuration");
        return;
    }
    world.reloader.reload().await;
    world.assert_refused("is not there any more");
}

#[tokio::test]
async fn a_part_that_cannot_take_its_value_leaves_all_as_it_was() {
    let mut world = World::with(STRICT);
    *world.kept.refusal.lock().unwrap() = Some("listening on 10.0.0.1:1 (metrics.address)");
    world.reload("[metrics]\naddress = \"10.0.0.1:1\"\n").await;
    world.assert_refused("metrics.address");
    assert_eq!(world.value("metrics.address"), None);
}

#[tokio::test]
async fn what_contradicts_a_key_that_waits_for_a_restart_is_refused() {
    let text = format!("{STRICT}[upstream]\nsocket = \"/u\"\nhandlers = [\"a\"]\n");
    let mut world = World::with(&text);
    world.reload("[upstream]\nsocket = \"/u\"\nhandlers = [\"b\"]\n[[handler]]\nname = \"a\"\n").await;
    world.assert_refused("handler \"a\" is there twice");
}

#[tokio::test]
async fn signals_before_the_first_reload_and_during_one_are_one_more_each() {
    // Made at the daemon's start: signals count from then on, and no longer end the process.
    let hangup = signal(SignalKind::hangup()).unwrap();
    raise(Number::SIGHUP).unwrap();
    raise(Number::SIGHUP).unwrap();
    let World { dir, kept, reloader, mut view } = World::with("");
    let path = dir.path().join("config.toml");
    let running = tokio::spawn(reloader.run(hangup));
    view.changed().await.unwrap();
    assert_eq!(kept.count(), 1, "both signals are one reload");
    for strict in [true, false, true] {
        fs::write(&path, format!("[cgroup]\nstrict = {strict}\n")).unwrap();
        // The last signal comes after the last write, so the last text is in force in the end.
        raise(Number::SIGHUP).unwrap();
        raise(Number::SIGHUP).unwrap();
    }
    while !kept.last().cgroup.strict {
        view.changed().await.unwrap();
    }
    // A stopping daemon ends the task, and a signal after that does nothing.
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    raise(Number::SIGHUP).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_takes_one_thread_and_no_more() {
    let mut world = World::with(STRICT);
    let (held, hold) = std::sync::mpsc::channel::<()>();
    world.reloader.reading = Some(tokio::task::spawn_blocking(move || {
        let _ = hold.recv();
        load(Some(Path::new("/nowhere")))
    }));
    world.reloader.reload().await;
    world.assert_refused("still waits for its disk");
    drop(held);
}
