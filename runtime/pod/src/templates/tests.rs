//! Limits of kept, wanted and retried templates.

use std::io::{Seek as _, SeekFrom};

use proto_vmm::PageRun;
use runtime_spec::VmBounds;

use super::super::files;
use super::*;

fn shape(number: u64) -> TemplateShape {
    let mut bounds = VmBounds::default();
    bounds.boot.memory_bytes = number << 20;
    TemplateShape::of(&bounds, "")
}

fn template() -> Template {
    let file = || files::in_memory().unwrap();
    Template::new(file(), file(), SystemTime::now())
}

fn runs(first: u32) -> Vec<PageRun> {
    vec![PageRun { first, count: 1 }]
}

#[test]
fn a_vm_that_waits_has_all_pages_ahead_that_are_known_and_a_pod_that_waits_only_what_it_writes_to() {
    let template = template();
    let ahead = |parts: io::Result<TemplateParts>| parts.map(|parts| (parts.first_writes, parts.first_reads));
    assert_eq!(ahead(template.parts_for_spare()).unwrap(), (vec![], vec![]));
    template.pages(Until::Ready).set(Pages { writes: runs(1), reads: runs(2) }).unwrap();
    assert_eq!(ahead(template.parts()).unwrap(), (runs(1), vec![]));
    assert_eq!(ahead(template.parts_for_spare()).unwrap(), (runs(1), runs(2)));
    template.pages(Until::Container).set(Pages { writes: runs(3), reads: runs(4) }).unwrap();
    assert_eq!(ahead(template.parts()).unwrap(), (runs(1), vec![]));
    assert_eq!(ahead(template.parts_for_spare()).unwrap(), (runs(3), runs(4)));
}

#[test]
fn no_vmm_shares_its_place_in_a_templates_files_with_another_or_with_the_daemon() {
    let template = template();
    let (one, other, disk) =
        (template.parts().unwrap(), template.parts().unwrap(), template.for_disk().unwrap());
    for (mut moved, others) in [
        (one.memory, [&template.memory, &other.memory, &disk.memory]),
        (one.state, [&template.state, &other.state, &disk.state]),
    ] {
        moved.seek(SeekFrom::Start(7)).unwrap();
        assert_eq!(others.map(|mut other| other.stream_position().unwrap()), [0; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_templates_as_are_kept_take_no_turns_while_they_are_in_use() {
    let (mut inner, start) = (Inner::default(), Instant::now());
    for number in 0..TEMPLATES_MAX as u64 {
        inner.want(&shape(number), start).unwrap();
        assert!(inner.keep(&shape(number), template(), start).is_empty());
        inner.wanted.clear();
    }
    assert_eq!(inner.want(&shape(99), start), Err(Absent::Full));
    inner.want(&shape(3), start).unwrap();
    inner.wanted.clear();
    let later = start + KEPT_FOR;
    for kept in inner.kept.iter_mut().filter(|(other, _)| **other != shape(5)) {
        kept.1.used = later;
    }
    inner.want(&shape(99), later).unwrap();
    assert_eq!(inner.keep(&shape(99), template(), later), [shape(5)]);
    assert_eq!(inner.kept.len(), TEMPLATES_MAX);
}

#[tokio::test(start_paused = true)]
async fn no_more_are_wanted_at_once_than_are_kept_and_each_once() {
    let (mut inner, now) = (Inner::default(), Instant::now());
    for number in 0..TEMPLATES_MAX as u64 {
        inner.want(&shape(number), now).unwrap();
        inner.want(&shape(number), now).unwrap();
    }
    assert_eq!(inner.wanted.len(), TEMPLATES_MAX);
    assert_eq!(inner.want(&shape(99), now), Err(Absent::Full));
}

#[tokio::test(start_paused = true)]
async fn a_failure_waits_longer_each_time_and_a_success_forgets_it() {
    let (mut inner, start) = (Inner::default(), Instant::now());
    let mut now = start;
    for pause in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
        inner.failed(&shape(1), now);
        let last = now + Duration::from_secs(pause - 1);
        assert_eq!(inner.want(&shape(1), last), Err(Absent::Failed), "{pause}");
        now += Duration::from_secs(pause);
        inner.want(&shape(1), now).unwrap();
        inner.wanted.clear();
    }
    inner.want(&shape(2), now).unwrap();
    inner.keep(&shape(1), template(), now);
    inner.failed(&shape(1), now);
    assert_eq!(inner.want(&shape(1), now + pauses::FIRST), Err(Absent::Failed), "it was no good either");
    let templates = Templates { inner: Mutex::new(inner), ..Templates::default() };
    templates.note_success(&shape(1));
    let mut inner = templates.lock();
    inner.failed(&shape(1), now);
    inner.want(&shape(1), now + pauses::FIRST).unwrap();
}

#[test]
fn a_template_is_old_after_a_day_and_by_a_clock_that_was_set_back() {
    let made = |made| Template { made, ..template() }.is_old();
    let now = SystemTime::now();
    assert!(!made(now));
    assert!(made(now - AGE_MAX) && made(now + Duration::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn the_first_pods_of_many_shapes_want_nothing_and_are_forgotten_in_turn() {
    let templates = Templates::default();
    let absent = |number| templates.take(&shape(number)).unwrap_err().absent;
    for number in 0..=ASKED_MAX as u64 {
        assert_eq!(absent(number), Absent::First, "{number}");
    }
    assert!(templates.lock().wanted.is_empty());
    assert_eq!(absent(1), Absent::Wanted);
    assert_eq!(absent(0), Absent::First, "that was long ago");
    templates.expect(&shape(99));
    assert_eq!(absent(99), Absent::Wanted);
}
