//! The progress of the work on an image, for its watchers: one view, replaced as the work goes on. Owns the
//! views. Never waits for a watcher, and keeps no history.
//!
//! ```text
//!   pull ──► Progress ──► the latest PullView ◄── any number of watchers, each at its own pace
//!     └─► a LayerProgress for each layer
//! ```

use std::io::{self, Read};
use std::sync::Arc;

use tokio::sync::watch;

use crate::manifest::Descriptor;

/// Bytes of a layer between two views. Watchers look a few times a second, and a layer arrives in pieces of
/// some tens of KiB.
const STEP_BYTES: u64 = 256 * 1024;

/// The stage of a pull or an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PullState {
    /// All slots for such work are taken, or another call creates the same image.
    Waiting,
    /// The archive arrives from its client.
    Receiving,
    /// The manifest and the config are being fetched.
    #[default]
    Resolving,
    /// Layers are fetched and converted.
    Layers,
    /// The image's own file is written.
    Writing,
}

/// The stage of a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LayerState {
    /// All slots for layers are taken, another pull is processing the layer, or earlier layers come first.
    #[default]
    Waiting,
    /// Bytes arrive from a host and are converted as they arrive.
    Downloading,
    /// All bytes are here and are being converted.
    Converting,
    /// The layer was already on the node.
    Exists,
    /// The layer has been added to the node.
    Done,
}

/// One layer of the image at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerView {
    /// `sha256:` and the digest of the layer's blob.
    pub digest: String,
    /// Bytes read of the blob.
    pub received_bytes: u64,
    /// Bytes of the whole blob, from the manifest.
    pub total_bytes: u64,
    /// The stage of the layer.
    pub state: LayerState,
}

/// The work on an image at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullView {
    /// The stage of the work.
    pub state: PullState,
    /// The name of the current image.
    pub name: String,
    /// Bytes received of an archive.
    pub received_bytes: u64,
    /// The image's layers, the lowest first, up to the limit for a manifest. Empty before the manifest is
    /// known.
    pub layers: Vec<LayerView>,
}

/// The publishing side of the views.
#[derive(Debug, Clone)]
pub(crate) struct Progress(Arc<watch::Sender<PullView>>);

impl Progress {
    /// Creates a progress starting with `state`.
    pub(crate) fn new(name: String, state: PullState) -> Progress {
        let view = PullView { name, state, ..PullView::default() };
        Progress(Arc::new(watch::Sender::new(view)))
    }

    pub(crate) fn watch(&self) -> watch::Receiver<PullView> {
        self.0.subscribe()
    }

    pub(crate) fn enter(&self, state: PullState) {
        self.0.send_modify(|view| view.state = state);
    }

    /// Starts with another image.
    pub(crate) fn begin(&self, name: &str) {
        self.0.send_modify(|view| {
            view.state = PullState::Resolving;
            name.clone_into(&mut view.name);
            view.layers.clear();
        });
    }

    pub(crate) fn receive(&self, bytes: u64) {
        self.0.send_modify(|view| view.received_bytes = bytes);
    }

    /// Publishes the image's layers.
    pub(crate) fn layers(&self, layers: &[Descriptor]) {
        let of = |layer: &Descriptor| LayerView {
            digest: layer.digest.clone(),
            total_bytes: layer.size,
            ..LayerView::default()
        };
        self.0.send_modify(|view| {
            view.state = PullState::Layers;
            view.layers = layers.iter().map(of).collect();
        });
    }

    /// Publishes all layers as present on the node.
    pub(crate) fn all_exist(&self) {
        self.0.send_modify(|view| view.layers.iter_mut().for_each(|layer| layer.state = LayerState::Exists));
    }

    /// Returns the publisher for layer `number`, from 0.
    pub(crate) fn layer(&self, number: usize) -> LayerProgress {
        LayerProgress { progress: self.clone(), number }
    }
}

/// The publishing side of one layer's view.
#[derive(Debug, Clone)]
pub(crate) struct LayerProgress {
    progress: Progress,
    number: usize,
}

impl LayerProgress {
    pub(crate) fn enter(&self, state: LayerState) {
        self.change(|layer| layer.state = state);
    }

    /// Starts at the layer's first byte, perhaps again.
    pub(crate) fn begin(&self, state: LayerState) {
        self.change(|layer| (layer.state, layer.received_bytes) = (state, 0));
    }

    fn count(&self, bytes: u64) {
        self.change(|layer| layer.received_bytes = layer.received_bytes.saturating_add(bytes));
    }

    fn change(&self, change: impl FnOnce(&mut LayerView)) {
        self.progress.0.send_if_modified(|view| view.layers.get_mut(self.number).map(change).is_some());
    }
}

/// A layer's bytes, counted while they are read.
pub(crate) struct Counted<'a, R> {
    source: &'a mut R,
    layer: &'a LayerProgress,
    unpublished: u64,
}

impl<'a, R> Counted<'a, R> {
    pub(crate) fn new(source: &'a mut R, layer: &'a LayerProgress) -> Self {
        Counted { source, layer, unpublished: 0 }
    }

    fn publish(&mut self) {
        self.layer.count(std::mem::take(&mut self.unpublished));
    }
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.unpublished += count as u64;
        if self.unpublished >= STEP_BYTES {
            self.publish();
        }
        Ok(count)
    }
}

impl<R> Drop for Counted<'_, R> {
    fn drop(&mut self) {
        self.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(sizes: &[u64]) -> Vec<Descriptor> {
        let layer =
            |size: &u64| Descriptor { digest: format!("sha256:{size}"), size: *size, part: "layer".into() };
        sizes.iter().map(layer).collect()
    }

    #[test]
    fn all_watchers_see_the_same_and_nobody_needs_to_watch() {
        let progress = Progress::new("a".into(), PullState::Resolving);
        let (one, other) = (progress.watch(), progress.watch());
        progress.layers(&layers(&[10, 20]));
        progress.layer(1).begin(LayerState::Downloading);
        drop(one);
        let view = other.borrow().clone();
        assert_eq!((view.state, view.layers.len()), (PullState::Layers, 2));
        assert_eq!(
            (view.layers[0].state, view.layers[1].state),
            (LayerState::Waiting, LayerState::Downloading)
        );
        // The image does not have this layer.
        progress.layer(9).enter(LayerState::Done);
        progress.begin("b");
        let view = other.borrow().clone();
        assert_eq!((view.name.as_str(), view.layers.len()), ("b", 0));
    }

    #[test]
    fn bytes_are_counted_to_the_last_and_anew_with_each_try() {
        let progress = Progress::new("a".into(), PullState::Resolving);
        progress.layers(&layers(&[STEP_BYTES + 5]));
        let (layer, watch) = (progress.layer(0), progress.watch());
        for _ in 0..2 {
            layer.begin(LayerState::Downloading);
            let bytes = vec![1; STEP_BYTES as usize + 5];
            let mut source = &bytes[..];
            io::copy(&mut Counted::new(&mut source, &layer), &mut io::sink()).unwrap();
            assert_eq!(watch.borrow().layers[0].received_bytes, STEP_BYTES + 5);
        }
    }
}
