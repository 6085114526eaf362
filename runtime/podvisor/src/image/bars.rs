//! Progress as bars on a terminal: one line for the whole, and a bar for each layer.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use proto_images::v1::{Layer, Progress, State};

use super::lines::{step, word};
use crate::show::{escape, units};

/// The interval between two frames of the spinner.
const TICK: Duration = Duration::from_millis(120);

/// The bars of one transfer. Dropping them takes them off the terminal.
#[derive(Debug)]
pub(super) struct Bars {
    all: MultiProgress,
    whole: ProgressBar,
    name: String,
    layers: Vec<ProgressBar>,
}

impl Bars {
    /// No bars yet, and a line with the current work.
    pub(super) fn new(what: &str) -> Bars {
        let all = MultiProgress::new();
        let whole = all.add(ProgressBar::new_spinner().with_message(escape::line(what).into_owned()));
        whole.enable_steady_tick(TICK);
        Bars { all, whole, name: String::new(), layers: Vec::new() }
    }

    /// Shows this progress.
    pub(super) fn show(&mut self, progress: &Progress) {
        if progress.name != self.name || progress.layers.len() != self.layers.len() {
            self.name.clone_from(&progress.name);
            self.layers.drain(..).for_each(|bar| bar.finish_and_clear());
            self.layers = progress.layers.iter().map(|layer| self.all.add(bar(layer))).collect();
        }
        self.whole.set_message(whole(progress));
        for (bar, layer) in self.layers.iter().zip(&progress.layers) {
            bar.set_position(layer.received_bytes);
            bar.set_message(word(layer.state()));
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.whole.finish_and_clear();
        self.layers.iter().for_each(ProgressBar::finish_and_clear);
    }
}

fn bar(layer: &Layer) -> ProgressBar {
    let style =
        ProgressStyle::with_template("  {prefix} {msg:<11} {bar:30} {binary_bytes:>10}/{binary_total_bytes}");
    let bar = ProgressBar::new(layer.total_bytes);
    let bar = bar.with_prefix(escape::line(units::short_digest(&layer.digest)).into_owned());
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

/// The line for the whole.
fn whole(progress: &Progress) -> String {
    let step = step(progress.state()).unwrap_or("getting the layers");
    let name = escape::line(&progress.name);
    match progress.state() {
        State::Receiving => format!("{step}, {}", units::bytes(progress.received_bytes)),
        _ if name.is_empty() => step.to_owned(),
        _ => format!("{name}: {step}"),
    }
}
