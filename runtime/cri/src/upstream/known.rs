//! The upstream's last lists: of pods, containers and images. They are used while the upstream is down,
//! because with a list without its pods a kubelet would start them a second time. The lists are on disk as
//! well, so that they survive a restart of the daemon. Losing a list costs no pod: the upstream's next answer
//! replaces it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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
const REMEMBERED: [(Listed, &str); 4] = [
    (Listed::Pods, "pods"),
    (Listed::Containers, "containers"),
    (Listed::Images, "images"),
    (Listed::Descriptors, "descriptors"),
];

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
        let state = Mutex::new(State { lists, ..State::default() });
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
        if state.lists.get(&listed) != Some(&list) {
            state.lists.insert(listed, list);
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
            Listed::Descriptors => Box::new(|_| true),
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

    /// Writes each change to disk, for as long as it is polled. A hanging disk blocks no other task.
    pub(super) async fn write_changes(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            let known = Arc::clone(&self);
            let written = STATE.run(move || known.write()).await;
            let error = match written {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            warn!(error, "the upstream's lists are not written down");
        }
    }

    fn write(&self) -> io::Result<()> {
        pass(Point::UpstreamDirectory)?;
        fs::create_dir_all(&self.dir)?;
        for (listed, name) in REMEMBERED {
            let (at, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
            pass(Point::UpstreamWrite)?;
            fs::write(&new, self.list(listed))?;
            pass(Point::UpstreamRename)?;
            fs::rename(new, at)?;
        }
        Ok(())
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
