//! The existing templates, the wanted ones, and the ones in backoff. Nothing here reads or builds any.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::pages::{Pages, Until};
use super::shape::TemplateShape;
use crate::backend::TemplateParts;
use crate::host::memory_file;
use crate::unclaimed::closing::Closing;
use crate::unclaimed::pauses;

/// Most templates, in memory and on the disk. Each takes as much memory as an idle booted guest, some 27 MiB.
pub(super) const TEMPLATES_MAX: usize = 8;

/// Most remembered shapes with only one request so far.
const ASKED_MAX: usize = 64;

/// How long a used template keeps its place when others are wanted. Otherwise, with one more shape than
/// places, the shapes would take turns and be built endlessly.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// Age at which a template is replaced.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Number of pods after which a template is replaced.
const PODS_MAX: u64 = 1000;

/// Failures in a row, of unknown blame, after which a template is discarded. Most are the node's: it is busy,
/// or short of memory. Without a template all pods would boot then, which takes more of both.
const DOUBTS_MAX: u32 = 3;

/// A saved VM.
#[derive(Debug)]
pub(crate) struct Template {
    /// The guest's memory, sealed.
    pub(super) memory: File,
    /// The VM's state, sealed.
    pub(super) state: File,
    pub(super) made: SystemTime,
    /// Pages of the memory used by its guests until their pods are ready, once a pod has shown them.
    until_ready: OnceLock<Pages>,
    /// Pages used until the pod has a container.
    until_container: OnceLock<Pages>,
}

impl Template {
    pub(super) fn new(memory: File, state: File, made: SystemTime) -> Template {
        Template { memory, state, made, until_ready: OnceLock::new(), until_container: OnceLock::new() }
    }

    /// Whether it is old enough to be replaced.
    pub(super) fn is_old(&self) -> bool {
        // A clock set back must not make it younger.
        self.made.elapsed().unwrap_or(AGE_MAX) >= AGE_MAX
    }

    /// The pages used by guests until this moment.
    pub(super) fn pages(&self, until: Until) -> &OnceLock<Pages> {
        match until {
            Until::Ready => &self.until_ready,
            Until::Container => &self.until_container,
        }
    }

    /// All parts for a pod's VMM, with descriptors of its own. The pod is waiting, so only those pages are
    /// prepared in advance that would cost more later.
    pub(crate) fn parts(&self) -> io::Result<TemplateParts> {
        let shown = self.until_ready.get().cloned().unwrap_or_default();
        self.parts_with(Pages { reads: Vec::new(), ..shown })
    }

    /// All parts for the VMM of a future pod. Nothing is waiting for it.
    pub(crate) fn parts_for_spare(&self) -> io::Result<TemplateParts> {
        let shown = self.until_container.get().or_else(|| self.until_ready.get());
        self.parts_with(shown.cloned().unwrap_or_default())
    }

    /// The same template, for copying it to the disk while VMs start from this one.
    pub(super) fn for_disk(&self) -> io::Result<Template> {
        let (memory, state) = self.files()?;
        Ok(Template::new(memory, state, self.made))
    }

    fn parts_with(&self, pages: Pages) -> io::Result<TemplateParts> {
        let Pages { writes, reads } = pages;
        let (memory, state) = self.files()?;
        Ok(TemplateParts { memory, state, first_writes: writes, first_reads: reads })
    }

    /// Both files, each opened anew. With a duplicate, all VMMs would share one place in the file, and one in
    /// its guest's control could hold the kernel's lock of that place: all others would hang.
    fn files(&self) -> io::Result<(File, File)> {
        Ok((memory_file::open_anew(&self.memory)?, memory_file::open_anew(&self.state)?))
    }
}

/// The node's templates, and the state of missing ones.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    inner: Mutex<Inner>,
    pub(super) closing: Closing,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    kept: HashMap<TemplateShape, Kept>,
    /// Shapes with only one request so far, the latest last.
    asked: VecDeque<TemplateShape>,
    /// Shapes for the task to find or build, in order.
    pub(super) wanted: Vec<TemplateShape>,
    /// Failed templates and failed attempts, each forgotten with the first pod from a good template.
    failures: HashMap<TemplateShape, Failures>,
    /// Shapes with a discarded or evicted template, whose files the task removes before it makes any other.
    pub(super) leftovers: Vec<TemplateShape>,
    /// Whether the task runs.
    pub(super) working: bool,
    /// Whether the leftovers of earlier daemons have been removed.
    pub(super) swept: bool,
}

#[derive(Debug)]
struct Kept {
    template: Arc<Template>,
    pods: u64,
    used: Instant,
    /// Failures of unknown blame since the last success, and when the last one was noted.
    doubts: u32,
    doubted: Option<Instant>,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    until: Instant,
}

/// No template, and whether the caller starts the task.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) absent: Absent,
    pub(crate) begin_work: bool,
}

/// Work for the task.
#[derive(Debug)]
pub(super) enum Work {
    /// Remove the shape's template from the disk.
    Remove(TemplateShape),
    /// Find the shape's template on the disk, or build it.
    Make(TemplateShape),
}

/// Why a pod boots although its handler has templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It is the first pod of its shape: for a single pod, a template costs as much as it saves.
    First,
    /// There is none yet.
    Wanted,
    /// The template has reached its limit of pods or of age.
    UsedUp,
    /// A recent build of the template failed.
    Failed,
    /// All places for templates are in use.
    Full,
}

impl Absent {
    /// The reason for the log.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Absent::First => "it is the first of its shape",
            Absent::Wanted => "there is no template of its shape yet",
            Absent::UsedUp => "the template of its shape is being replaced",
            Absent::Failed => "the template of its shape could not be made, and is tried again later",
            Absent::Full => "as many templates as a node keeps are in use",
        }
    }
}

impl Templates {
    /// The template for a pod of this shape. If there is none and the pod is not the first of its shape, the
    /// shape becomes wanted. The caller starts the task for making templates if none runs.
    pub(crate) fn take(&self, shape: &TemplateShape) -> Result<Arc<Template>, Missing> {
        let mut inner = self.lock();
        let now = Instant::now();
        if inner.note_asked(shape) {
            return Err(Missing { absent: Absent::First, begin_work: false });
        }
        let mut absent = Absent::Wanted;
        if let Some(kept) = inner.kept.get_mut(shape) {
            kept.used = now;
            if kept.pods < PODS_MAX && !kept.template.is_old() {
                kept.pods += 1;
                return Ok(Arc::clone(&kept.template));
            }
            absent = Absent::UsedUp;
        }
        if let Err(why) = inner.want(shape, now) {
            absent = if absent == Absent::UsedUp { absent } else { why };
            return Err(Missing { absent, begin_work: false });
        }
        Err(Missing { absent, begin_work: !std::mem::replace(&mut inner.working, true) })
    }

    /// Whether an earlier pod of this shape is remembered.
    pub(crate) fn knows(&self, shape: &TemplateShape) -> bool {
        self.lock().knows(shape)
    }

    /// Expects pods of this shape, so even the first one need not boot.
    pub(crate) fn expect(&self, shape: &TemplateShape) {
        self.lock().note_asked(shape);
    }

    /// A pod has started from the template of this shape.
    pub(crate) fn note_success(&self, shape: &TemplateShape) {
        let mut inner = self.lock();
        inner.failures.remove(shape);
        if let Some(kept) = inner.kept.get_mut(shape) {
            kept.doubts = 0;
        }
    }

    /// A pod's VM from this template has failed, and the template may not be to blame. The pod had it since
    /// `taken`. Returns true if that was so too often. Failures of pods that started together are one: the
    /// node may have stood still for all of them.
    pub(crate) fn note_doubt(&self, shape: &TemplateShape, template: &Arc<Template>, taken: Instant) -> bool {
        let mut inner = self.lock();
        let kept = inner.kept.get_mut(shape).filter(|kept| Arc::ptr_eq(&kept.template, template));
        kept.is_some_and(|kept| {
            if kept.doubted.is_some_and(|doubted| taken <= doubted) {
                return false;
            }
            kept.doubted = Some(Instant::now());
            kept.doubts += 1;
            kept.doubts >= DOUBTS_MAX
        })
    }

    /// The template of this shape has failed: no other pod starts from it. Returns whether the caller starts
    /// the task, which removes its files.
    pub(super) fn discard(&self, shape: &TemplateShape, template: &Arc<Template>) -> bool {
        let mut inner = self.lock();
        // A new one may have taken its place.
        if inner.kept.get(shape).is_none_or(|kept| !Arc::ptr_eq(&kept.template, template)) {
            return false;
        }
        inner.kept.remove(shape);
        inner.failed(shape, Instant::now());
        inner.leftovers.push(shape.clone());
        !std::mem::replace(&mut inner.working, true)
    }

    /// Stops making templates, and returns once none is being made.
    pub(super) async fn close(&self) {
        self.closing.begin();
        self.closing.task_ended(|| self.lock().working).await;
    }

    /// The next work. If there is none, or the daemon ends, the task ends. A later request starts a new one.
    pub(super) fn next(&self) -> Option<Work> {
        let mut inner = self.lock();
        let next = if self.closing.has_begun() {
            None
        } else {
            let leftover = inner.leftovers.pop().map(Work::Remove);
            leftover.or_else(|| inner.wanted.first().cloned().map(Work::Make))
        };
        inner.working = next.is_some();
        if next.is_none() {
            self.closing.note_task_ended();
        }
        next
    }

    /// Whether there is no more work on templates.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.lock();
        inner.swept && !inner.working && inner.wanted.is_empty() && inner.leftovers.is_empty()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn knows(&self, shape: &TemplateShape) -> bool {
        self.kept.contains_key(shape) || self.wanted.contains(shape) || self.asked.contains(shape)
    }

    /// Notes a request for the shape. Returns whether it is the first one remembered.
    fn note_asked(&mut self, shape: &TemplateShape) -> bool {
        if self.knows(shape) {
            return false;
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(shape.clone());
        true
    }

    /// Adds the shape to the wanted ones, unless it is in backoff.
    fn want(&mut self, shape: &TemplateShape, now: Instant) -> Result<(), Absent> {
        if self.wanted.contains(shape) {
            return Ok(());
        }
        if self.failures.get(shape).is_some_and(|failures| now < failures.until) {
            return Err(Absent::Failed);
        }
        self.failures.retain(|_, failures| now < failures.until + pauses::LONGEST);
        let others = self.kept.keys().chain(&self.wanted).filter(|other| *other != shape);
        let places: HashSet<_> = others.collect();
        if places.len() >= TEMPLATES_MAX && self.idlest(now).is_none() {
            return Err(Absent::Full);
        }
        if self.wanted.len() >= TEMPLATES_MAX {
            return Err(Absent::Full);
        }
        self.wanted.push(shape.clone());
        Ok(())
    }

    /// The least recently used template, if it has not been used recently.
    fn idlest(&self, now: Instant) -> Option<TemplateShape> {
        let idle = self.kept.iter().filter(|(_, kept)| now.duration_since(kept.used) >= KEPT_FOR);
        idle.min_by_key(|(_, kept)| kept.used).map(|(shape, _)| shape.clone())
    }

    /// Whether the shape's template on the disk must not be read: it is used up, or may be the failed one.
    pub(super) fn distrusts_disk(&self, shape: &TemplateShape) -> bool {
        self.kept.contains_key(shape) || self.failures.contains_key(shape)
    }

    /// Keeps a template. Returns the shapes of the templates evicted for it. Their files go too: read again,
    /// they would be used for more pods than allowed.
    pub(super) fn keep(
        &mut self,
        shape: &TemplateShape,
        template: Template,
        now: Instant,
    ) -> Vec<TemplateShape> {
        let kept = Kept { template: Arc::new(template), pods: 0, used: now, doubts: 0, doubted: None };
        self.kept.insert(shape.clone(), kept);
        // Its files are about to replace those.
        self.leftovers.retain(|other| other != shape);
        let mut gone = Vec::new();
        while self.kept.len() > TEMPLATES_MAX {
            let others = self.kept.iter().filter(|(other, _)| *other != shape);
            let Some(idlest) = others.min_by_key(|(_, kept)| kept.used).map(|(other, _)| other.clone())
            else {
                break;
            };
            self.kept.remove(&idlest);
            gone.push(idlest);
        }
        self.leftovers.extend_from_slice(&gone);
        gone
    }

    pub(super) fn failed(&mut self, shape: &TemplateShape, now: Instant) {
        let failures = self.failures.entry(shape.clone()).or_insert(Failures { count: 0, until: now });
        let until = now + pauses::after(failures.count);
        *failures = Failures { count: failures.count.saturating_add(1), until };
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
