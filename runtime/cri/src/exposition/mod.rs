//! Everything that a Prometheus may ask the daemon for, as text: the daemon's own figures, and the series of pods and containers
//! that cAdvisor would have if it saw into VMs. This module reads, and never changes anything; the HTTP server is the daemon's.
//!
//! | what | where |
//! |---|---|
//! | what is counted while it happens | `../gate.rs`, and `counters.rs` of the crates |
//! | what is counted when it is asked for: pods, containers, VMs, images, the upstream | `now.rs` |
//! | of this, what the devices of VMs have counted | `devices.rs` |
//! | the daemon's own process | `process.rs` |
//! | series of pods and containers | `series.rs` |

mod devices;
mod figures;
mod now;
mod process;
mod series;

use prometheus::proto::MetricFamily;
use prometheus::{TEXT_FORMAT, TextEncoder};

use crate::serve::Cri;
use crate::stats::list_metrics;

/// The type of the texts (Prometheus' exposition formats, "Text-based format").
pub const CONTENT_TYPE: &str = TEXT_FORMAT;

/// The daemon's figures for those who watch the node.
#[derive(Clone, Debug)]
pub struct Exposition(Cri);

impl Exposition {
    /// The figures of these services.
    pub fn of(cri: &Cri) -> Exposition {
        Exposition(cri.clone())
    }

    /// The daemon's own figures. A disk that does not answer leaves its figures out.
    ///
    /// # Errors
    /// A figure that cannot be written, which would be a fault of ours; for people.
    pub async fn daemon(&self) -> Result<String, String> {
        let mut families = prometheus::gather();
        families.extend(now::figures(&self.0).await);
        families.extend(process::figures());
        families.sort_by(|one, other| one.name().cmp(other.name()));
        text(&families)
    }

    /// The series of pods and containers, under cAdvisor's names and labels. Pods whose guest does not answer are left out.
    ///
    /// # Errors
    /// As [`Exposition::daemon`].
    pub async fn containers(&self) -> Result<String, String> {
        text(&series::families(&list_metrics::of_pods(&self.0).await))
    }
}

fn text(families: &[MetricFamily]) -> Result<String, String> {
    TextEncoder::new().encode_to_string(families).map_err(|error| error.to_string())
}
