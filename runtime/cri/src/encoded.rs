//! List items as encoded bytes, cached for the lifetime of their views. The kubelet lists all pods and
//! containers every second, and only a few of hundreds have changed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use prost::Message;
use runtime_pod::{ContainerView, PodView};

/// Caches of both lists.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) pods: Items<PodView>,
    pub(crate) containers: Items<ContainerView>,
}

/// By id: a view and its encoded item. A view never changes; a change publishes another one.
#[derive(Debug)]
pub(crate) struct Items<V>(Mutex<HashMap<String, (Arc<V>, Bytes)>>);

impl<V> Default for Items<V> {
    fn default() -> Self {
        Items(Mutex::default())
    }
}

impl<V> Items<V> {
    /// Returns the wanted views of `all` as encoded items. It keeps no more items than there are views in
    /// `all`.
    pub(crate) fn items<M: Message>(
        &self,
        all: &[Arc<V>],
        id: impl Fn(&V) -> &str,
        wanted: impl Fn(&V) -> bool,
        item: impl Fn(&V) -> M,
    ) -> Vec<Bytes> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let encode = |view: &Arc<V>| match kept.get(id(view)) {
            Some((same, bytes)) if Arc::ptr_eq(same, view) => bytes.clone(),
            _ => {
                let bytes = Bytes::from(item(view).encode_to_vec());
                kept.insert(id(view).to_owned(), (Arc::clone(view), bytes.clone()));
                bytes
            }
        };
        let items = all.iter().filter(|view| wanted(view)).map(encode).collect();
        if kept.len() > all.len() {
            let all: HashSet<&str> = all.iter().map(|view| id(view)).collect();
            kept.retain(|known, _| all.contains(known.as_str()));
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proto_cri::v1;

    use super::*;

    fn view(id: &str) -> Arc<PodView> {
        Arc::new(PodView { id: id.into(), ..Default::default() })
    }

    /// Lists all views. Returns the listed ids, and the number of items encoded again.
    fn list(items: &Items<PodView>, views: &[Arc<PodView>]) -> (Vec<String>, usize) {
        let encoded = Cell::new(0);
        let listed = items.items(
            views,
            |pod| &pod.id,
            |_| true,
            |pod| {
                encoded.set(encoded.get() + 1);
                v1::PodSandbox { id: pod.id.clone(), ..Default::default() }
            },
        );
        let ids = listed.iter().map(|bytes| v1::PodSandbox::decode(&bytes[..]).unwrap().id);
        (ids.collect(), encoded.get())
    }

    #[test]
    fn an_item_is_encoded_once_for_each_change() {
        let (items, mut views) = (Items::default(), vec![view("a"), view("b")]);
        assert_eq!(list(&items, &views), (vec!["a".into(), "b".into()], 2));
        assert_eq!(list(&items, &views).1, 0);
        // A change publishes another view of the same id.
        views[1] = view("b");
        assert_eq!(list(&items, &views), (vec!["a".into(), "b".into()], 1));
    }

    #[test]
    fn views_that_are_gone_are_forgotten() {
        let items = Items::default();
        list(&items, &[view("a"), view("b"), view("c")]);
        let left = [view("b")];
        assert_eq!(list(&items, &left).0, ["b"]);
        assert_eq!(items.0.lock().unwrap().len(), 1);
    }
}
