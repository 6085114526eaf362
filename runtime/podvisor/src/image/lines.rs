//! Progress as lines, without a terminal: one for each step of the work and of a layer, and none for bytes
//! alone. Pure.

use proto_images::v1::layer::State as LayerState;
use proto_images::v1::{Layer, Progress, State};

use crate::show::{escape, units};

/// The steps printed so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    name: String,
    state: State,
    layers: Vec<LayerState>,
}

impl Lines {
    /// The lines for new steps in `progress`.
    pub(super) fn of(&mut self, progress: &Progress) -> Vec<String> {
        let mut lines = Vec::new();
        if progress.name != self.name {
            self.name.clone_from(&progress.name);
            self.layers.clear();
        }
        let state = progress.state();
        if state != self.state {
            self.state = state;
            lines.extend(line(progress));
        }
        self.layers.resize(progress.layers.len(), LayerState::Unknown);
        for (before, layer) in self.layers.iter_mut().zip(&progress.layers) {
            let now = layer.state();
            if std::mem::replace(before, now) != now {
                lines.push(of_layer(layer));
            }
        }
        lines
    }
}

/// The line for a step of the whole. `None` while the layers have their own lines, and at the end.
fn line(progress: &Progress) -> Option<String> {
    let step = step(progress.state())?;
    Some(match progress.name.as_str() {
        "" => step.to_owned(),
        name => format!("{}: {step}", escape::line(name)),
    })
}

/// A step of the whole in words.
pub(super) fn step(state: State) -> Option<&'static str> {
    match state {
        State::Waiting => Some("waiting"),
        State::Receiving => Some("sending the archive"),
        State::Resolving => Some("resolving"),
        State::Writing => Some("writing the image"),
        State::Layers | State::Done | State::Unknown => None,
    }
}

fn of_layer(layer: &Layer) -> String {
    let word = word(layer.state());
    let size = match layer.state() {
        LayerState::Downloading | LayerState::Converting => format!(" {}", units::bytes(layer.total_bytes)),
        _ => String::new(),
    };
    format!("{}: {word}{size}", escape::line(units::short_digest(&layer.digest)))
}

/// A layer's step in a word.
pub(super) fn word(state: LayerState) -> &'static str {
    match state {
        LayerState::Unknown => "?",
        LayerState::Waiting => "waiting",
        LayerState::Downloading => "downloading",
        LayerState::Converting => "converting",
        LayerState::Exists => "exists",
        LayerState::Done => "done",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(state: State, layers: &[(LayerState, u64)]) -> Progress {
        let layer = |(at, (state, received)): (usize, &(LayerState, u64))| Layer {
            digest: format!("sha256:{at:064x}"),
            received_bytes: *received,
            total_bytes: 3 << 20,
            state: (*state).into(),
        };
        let layers = layers.iter().enumerate().map(layer).collect();
        Progress { state: state.into(), name: "r/a:1\x1b".into(), layers, ..Default::default() }
    }

    #[test]
    fn each_step_has_one_line_and_bytes_have_none() {
        let mut lines = Lines::default();
        assert_eq!(lines.of(&progress(State::Resolving, &[])), ["r/a:1\\u{1b}: resolving"]);
        let begun = progress(State::Layers, &[(LayerState::Downloading, 5), (LayerState::Waiting, 0)]);
        assert_eq!(lines.of(&begun), ["000000000000: downloading 3.0MiB", "000000000000: waiting"]);
        let later = progress(State::Layers, &[(LayerState::Downloading, 500), (LayerState::Waiting, 0)]);
        assert!(lines.of(&later).is_empty());
        let done = progress(State::Writing, &[(LayerState::Done, 0), (LayerState::Exists, 0)]);
        assert_eq!(
            lines.of(&done),
            ["r/a:1\\u{1b}: writing the image", "000000000000: done", "000000000000: exists"]
        );
        assert!(
            lines.of(&progress(State::Done, &[(LayerState::Done, 0), (LayerState::Exists, 0)])).is_empty()
        );
    }

    #[test]
    fn the_next_image_of_an_archive_has_lines_of_its_own() {
        let mut lines = Lines::default();
        let first = progress(State::Layers, &[(LayerState::Done, 0)]);
        assert_eq!(lines.of(&first).len(), 1);
        let second = Progress { name: "r/b:1".into(), ..first };
        assert_eq!(lines.of(&second), ["000000000000: done"]);
    }

    #[test]
    fn a_state_of_a_newer_daemon_is_no_error() {
        let mut later = progress(State::Layers, &[(LayerState::Done, 0)]);
        later.state = 99;
        later.layers[0].state = 99;
        assert!(Lines::default().of(&later).is_empty());
    }
}
