//! The upstream's last lists: of pods, containers and images. They are used while the upstream is down,
//! because with a list without its pods a kubelet would start them a second time. The lists are on disk as
//! well, so that they survive a restart of the daemon. Losing a list costs no pod: the upstream's next answer
//! replaces it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::{Message, encoding};
use proto_cri::v1;
use runtime_fail_points::{Point, pass};
use tokio::sync::Notify;
use tracing::warn;

use super::fields;
use super::route::Listed;
use crate::blocking::STATE;
use crate::convert::{container_item_matches, image_item_matches, pod_item_matches};

/// The remembered lists, with the names of their files.
const REMEMBERED: [(Listed, &str); 6] = [
    (Listed::Pods, "pods"),
    (Listed::Containers, "containers"),
    (Listed::Images, "images"),
    (Listed::Descriptors, "descriptors"),
    (Listed::RuntimeConfig, "runtime_config"),
    (Listed::Features, "features"),
];

/// Pauses between tries to write to a failing disk: doubled from the first to the second.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// The upstream's last lists, in memory and on disk.
#[derive(Debug)]
pub(super) struct Known {
    dir: PathBuf,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    lists: HashMap<Listed, Bytes>,
    /// The same lists in a fixed order. The upstream's order is random.
    ordered: HashMap<Listed, Bytes>,
    /// Lists to be written to disk.
    unwritten: HashSet<Listed>,
    /// Items noted since the last list, by their id. A list requested before may lack them.
    noted: HashMap<(Listed, String), Instant>,
}

impl Known {
    /// Reads the lists written by an earlier daemon. An invalid file counts as missing. Blocks on the disk.
    pub(super) fn open(dir: &Path) -> Arc<Known> {
        let mut lists = HashMap::new();
        for (listed, name) in REMEMBERED {
            match fs::read(dir.join(name)) {
                Ok(bytes) if fields::items(&Bytes::from(bytes.clone())).is_ok() => {
                    lists.insert(listed, Bytes::from(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(_) => warn!(name, "the upstream's last list cannot be read"),
                Err(error) => warn!(name, %error, "the upstream's last list cannot be read"),
            }
        }
        let ordered = lists.iter().map(|(listed, list)| (*listed, ordered(*listed, list))).collect();
        let state = Mutex::new(State { lists, ordered, ..State::default() });
        Arc::new(Known { dir: dir.to_owned(), state, changed: Notify::new() })
    }

    /// Stores a complete list, requested at `asked`. Usage and metrics are not remembered.
    pub(super) fn remember(&self, listed: Listed, list: &Bytes, asked: Instant) {
        if REMEMBERED.iter().all(|(known, _)| *known != listed) {
            return;
        }
        let mut state = self.lock();
        state.noted.retain(|(of, _), at| *of != listed || *at >= asked);
        let mut new = list.clone();
        if state.noted.keys().any(|(of, _)| *of == listed) {
            let has: HashSet<String> = fields::items(list).unwrap_or_default().iter().map(id).collect();
            let before = fields::items(&state.list(listed)).unwrap_or_default();
            let is_missing = |item: &(Bytes, Bytes)| {
                let id = id(item);
                !has.contains(&id) && state.noted.contains_key(&(listed, id))
            };
            let missing = before.into_iter().filter(is_missing).flat_map(|(whole, _)| whole);
            new = list.iter().copied().chain(missing).collect();
        }
        self.put(&mut state, listed, new);
    }

    /// Adds an item named by an answer or an event. Without an id it does nothing.
    pub(super) fn note(&self, listed: Listed, id: &str, item: &impl Message) {
        if id.is_empty() {
            return;
        }
        let mut state = self.lock();
        let mut list: Vec<u8> = state.without(listed, id).into_iter().flat_map(|(whole, _)| whole).collect();
        encoding::message::encode(1, item, &mut list);
        state.noted.insert((listed, id.to_owned()), Instant::now());
        self.put(&mut state, listed, list.into());
    }

    /// Removes an item reported gone by an answer or an event.
    pub(super) fn forget(&self, listed: Listed, id: &str) {
        let mut state = self.lock();
        state.noted.remove(&(listed, id.to_owned()));
        let list = state.without(listed, id).into_iter().flat_map(|(whole, _)| whole).collect();
        self.put(&mut state, listed, list);
    }

    fn put(&self, state: &mut State, listed: Listed, list: Bytes) {
        if state.lists.get(&listed) == Some(&list) {
            return;
        }
        let ordered = ordered(listed, &list);
        state.lists.insert(listed, list);
        if state.ordered.get(&listed) != Some(&ordered) {
            state.ordered.insert(listed, ordered);
            state.unwritten.insert(listed);
            self.changed.notify_one();
        }
    }

    /// The last list.
    pub(super) fn list(&self, listed: Listed) -> Bytes {
        self.lock().list(listed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The items of the list passing the filter in field 1 of the request.
    pub(super) fn filtered(&self, listed: Listed, request: &Bytes) -> Bytes {
        let wanted: Box<dyn Fn(&Bytes) -> bool> = match listed {
            Listed::Pods => {
                let filter = v1::ListPodSandboxRequest::decode(request.clone()).unwrap_or_default().filter;
                let filter = filter.unwrap_or_default();
                Box::new(move |item| decoded(item).is_some_and(|pod| pod_item_matches(&filter, &pod)))
            }
            Listed::Containers => {
                let filter = v1::ListContainersRequest::decode(request.clone()).unwrap_or_default().filter;
                let filter = filter.unwrap_or_default();
                Box::new(move |item| decoded(item).is_some_and(|one| container_item_matches(&filter, &one)))
            }
            Listed::Images => {
                let filter = v1::ListImagesRequest::decode(request.clone()).unwrap_or_default().filter;
                let name = filter.and_then(|filter| filter.image).unwrap_or_default().image;
                Box::new(move |item| decoded(item).is_some_and(|image| image_item_matches(&name, &image)))
            }
            Listed::Descriptors | Listed::RuntimeConfig | Listed::Features => Box::new(|_| true),
            Listed::Figures | Listed::Metrics => Box::new(|_| false),
        };
        let items = fields::items(&self.list(listed)).unwrap_or_default();
        items.into_iter().filter(|(_, item)| wanted(item)).flat_map(|(whole, _)| whole).collect()
    }

    /// The ids of the pods or containers with this beginning.
    pub(super) fn ids(&self, listed: Listed, beginning: &str) -> Vec<String> {
        let items = fields::items(&self.list(listed)).unwrap_or_default();
        // In both messages the id is field 1.
        let ids = items.iter().filter_map(|(_, item)| fields::text(item, 1).ok());
        ids.filter(|id| id.starts_with(beginning)).map(str::to_owned).collect()
    }

    /// The pods.
    pub(super) fn pods(&self) -> Vec<v1::PodSandbox> {
        let items = fields::items(&self.list(Listed::Pods)).unwrap_or_default();
        items.iter().filter_map(|(_, item)| decoded(item)).collect()
    }

    /// Writes each changed list to disk, for as long as it is polled. A hanging disk blocks no other task.
    pub(super) async fn write_changes(self: Arc<Self>) {
        let [mut pause, longest] = PAUSES;
        loop {
            self.changed.notified().await;
            let known = Arc::clone(&self);
            let error = match STATE.run(move || known.write()).await {
                Ok(Ok(())) => {
                    [pause, _] = PAUSES;
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            warn!(error, "the upstream's lists are not written down");
            tokio::time::sleep(pause).await;
            pause = longest.min(pause * 2);
            // The lists are unwritten still.
            self.changed.notify_one();
        }
    }

    fn write(&self) -> io::Result<()> {
        pass(Point::UpstreamDirectory)?;
        fs::create_dir_all(&self.dir)?;
        for (listed, name) in REMEMBERED {
            let list = {
                let mut state = self.lock();
                if !state.unwritten.remove(&listed) {
                    continue;
                }
                state.list(listed)
            };
            if let Err(error) = self.write_list(name, &list) {
                self.lock().unwritten.insert(listed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn write_list(&self, name: &str, list: &[u8]) -> io::Result<()> {
        let (at, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        pass(Point::UpstreamWrite)?;
        fs::write(&new, list)?;
        pass(Point::UpstreamRename)?;
        fs::rename(new, at)
    }
}

impl State {
    fn list(&self, listed: Listed) -> Bytes {
        self.lists.get(&listed).cloned().unwrap_or_default()
    }

    /// The items of the list except the one with this id.
    fn without(&self, listed: Listed, gone: &str) -> Vec<(Bytes, Bytes)> {
        let mut items = fields::items(&self.list(listed)).unwrap_or_default();
        items.retain(|item| id(item) != gone);
        items
    }
}

/// The id of an item of a list. It is field 1 in each kind of item.
fn id((_, item): &(Bytes, Bytes)) -> String {
    fields::text(item, 1).unwrap_or_default().to_owned()
}

/// The list with its items, and the maps in them, in a fixed order. A list that cannot be decoded stays as
/// it is.
fn ordered(listed: Listed, list: &Bytes) -> Bytes {
    fn of<M: Message + Default>(items: Vec<(Bytes, Bytes)>) -> Option<Bytes> {
        let keyed = items.into_iter().map(|item| {
            let again = M::decode(item.1.clone()).ok()?.encode_to_vec();
            Some((id(&item), again))
        });
        let mut keyed: Vec<(String, Vec<u8>)> = keyed.collect::<Option<_>>()?;
        keyed.sort_unstable();
        Some(keyed.into_iter().flat_map(|(_, item)| item).collect())
    }
    let items = fields::items(list).unwrap_or_default();
    let ordered = match listed {
        Listed::Pods => of::<v1::PodSandbox>(items),
        Listed::Containers => of::<v1::Container>(items),
        Listed::Images => of::<v1::Image>(items),
        Listed::Descriptors => of::<v1::MetricDescriptor>(items),
        Listed::Figures | Listed::Metrics | Listed::RuntimeConfig | Listed::Features => None,
    };
    ordered.unwrap_or_else(|| list.clone())
}

/// The upstream's list, if valid. An undecodable list must not make a client lose our items.
///
/// # Errors
/// The list cannot be decoded. The text is for people.
pub(super) fn checked(listed: Listed, list: Bytes) -> Result<Bytes, String> {
    let decoded = match listed {
        Listed::Pods => v1::ListPodSandboxResponse::decode(list.clone()).map(drop),
        Listed::Containers => v1::ListContainersResponse::decode(list.clone()).map(drop),
        Listed::Images => v1::ListImagesResponse::decode(list.clone()).map(drop),
        Listed::Descriptors => v1::ListMetricDescriptorsResponse::decode(list.clone()).map(drop),
        Listed::RuntimeConfig => v1::RuntimeConfigResponse::decode(list.clone()).map(drop),
        Listed::Features => v1::StatusResponse::decode(list.clone()).map(drop),
        Listed::Figures | Listed::Metrics => return fields::items(&list).map(|_| list),
    };
    decoded.map_err(|error| format!("its list is none: {error}"))?;
    Ok(list)
}

fn decoded<M: Message + Default>(item: &Bytes) -> Option<M> {
    M::decode(item.clone()).ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn pod(id: &str, state: v1::PodSandboxState) -> v1::PodSandbox {
        v1::PodSandbox { id: id.into(), state: state.into(), ..Default::default() }
    }

    fn pods() -> Bytes {
        let items = vec![
            pod("abc", v1::PodSandboxState::SandboxReady),
            pod("abd", v1::PodSandboxState::SandboxNotready),
        ];
        v1::ListPodSandboxResponse { items, ..Default::default() }.encode_to_vec().into()
    }

    #[test]
    fn lists_outlive_a_restart_and_a_spoiled_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("upstream");
        let known = Known::open(&dir);
        known.remember(Listed::Pods, &pods(), Instant::now());
        known.remember(Listed::Figures, &pods(), Instant::now());
        known.write().unwrap();
        let again = Known::open(&dir);
        assert_eq!(again.list(Listed::Pods), pods());
        assert_eq!(again.ids(Listed::Pods, "ab"), ["abc", "abd"]);
        assert!(again.list(Listed::Figures).is_empty());
        fs::write(dir.join("pods"), [0xff; 20]).unwrap();
        assert!(Known::open(&dir).list(Listed::Pods).is_empty());
    }

    #[test]
    fn a_list_in_another_order_is_not_written_again_and_a_changed_one_alone() {
        let dir = tempfile::tempdir().unwrap();
        let known = Known::open(dir.path());
        let written = |listed: Listed, list: &Bytes| {
            known.remember(listed, list, Instant::now());
            let changed = known.changed.notified().now_or_never().is_some();
            let before = fs::read_dir(dir.path()).unwrap().count();
            known.write().unwrap();
            assert!(changed || fs::read_dir(dir.path()).unwrap().count() == before);
            changed
        };
        // A label of a pod, as protobuf encodes a map's entry: the order of entries is free.
        let entry = |key: &str| [&[0x2a, 6, 0x0a, 1], key.as_bytes(), &[0x12, 1], b"v"].concat();
        let item = |keys: [&str; 2]| {
            let id = [0x0a, 1, b'x'];
            let pod: Vec<u8> = id.into_iter().chain(keys.into_iter().flat_map(entry)).collect();
            [&[0x0a, u8::try_from(pod.len()).unwrap()], pod.as_slice()].concat()
        };
        let (one, other) = (item(["a", "b"]), item(["b", "a"]));
        assert_ne!(one, other);
        assert!(written(Listed::Pods, &pods().iter().copied().chain(one.clone()).collect()));
        assert!(!written(Listed::Pods, &other.iter().copied().chain(pods()).collect()));
        assert!(!dir.path().join("containers").exists(), "a list without a change");
        assert!(written(Listed::Pods, &pods()));
        assert!(!written(Listed::Figures, &pods()));
        let again = Known::open(dir.path());
        again.remember(Listed::Pods, &pods(), Instant::now());
        assert!(again.changed.notified().now_or_never().is_none(), "the file has it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_written_once_its_disk_takes_it_again_also_without_a_further_change() {
        let dir = tempfile::tempdir().unwrap();
        // No directory can be made below a file.
        fs::write(dir.path().join("state"), "").unwrap();
        let known = Known::open(&dir.path().join("state/upstream"));
        known.remember(Listed::Pods, &pods(), Instant::now());
        let writing = tokio::spawn(Arc::clone(&known).write_changes());
        tokio::time::sleep(PAUSES[1]).await;
        fs::remove_file(dir.path().join("state")).unwrap();
        while !dir.path().join("state/upstream/pods").exists() {
            tokio::time::sleep(PAUSES[0]).await;
        }
        assert!(!writing.is_finished());
    }

    #[test]
    fn the_last_list_is_filtered_as_the_upstream_would() {
        let dir = tempfile::tempdir().unwrap();
        let known = Known::open(dir.path());
        known.remember(Listed::Pods, &pods(), Instant::now());
        let ready = v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() };
        let filter = v1::PodSandboxFilter { state: Some(ready), ..Default::default() };
        let request = v1::ListPodSandboxRequest { filter: Some(filter) }.encode_to_vec().into();
        let list = known.filtered(Listed::Pods, &request);
        let list = v1::ListPodSandboxResponse::decode(list).unwrap();
        assert_eq!(list.items, [pod("abc", v1::PodSandboxState::SandboxReady)]);
        assert!(known.filtered(Listed::Containers, &Bytes::new()).is_empty());
    }

    #[test]
    fn what_an_answer_names_is_known_until_a_list_of_later_has_it_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let known = Known::open(dir.path());
        let ids = |known: &Known| known.ids(Listed::Pods, "");
        let before = Instant::now();
        known.remember(Listed::Pods, &pods(), before);
        known.note(Listed::Pods, "new", &pod("new", v1::PodSandboxState::SandboxReady));
        known.note(Listed::Pods, "new", &pod("new", v1::PodSandboxState::SandboxNotready));
        assert_eq!(ids(&known), ["abc", "abd", "new"]);
        assert_eq!(known.pods()[2], pod("new", v1::PodSandboxState::SandboxNotready));
        known.remember(Listed::Pods, &pods(), before);
        assert_eq!(ids(&known), ["abc", "abd", "new"], "a list that was asked for before may lack it");
        known.remember(Listed::Pods, &pods(), Instant::now());
        assert_eq!(ids(&known), ["abc", "abd"]);
        known.forget(Listed::Pods, "abc");
        assert_eq!(ids(&known), ["abd"]);
    }

    #[test]
    fn an_answer_that_is_no_list_is_refused() {
        assert_eq!(checked(Listed::Pods, pods()).unwrap(), pods());
        let nonsense = Bytes::from_static(&[0x0a, 2, 0xff, 0xff]);
        assert!(checked(Listed::Pods, nonsense.clone()).unwrap_err().contains("its list is none"));
        assert!(checked(Listed::Figures, Bytes::from_static(&[0x0a, 9])).is_err());
    }
}
