//! All metrics for Prometheus, as text: the daemon's own metrics, and the series of pods and containers that
//! cAdvisor would have if it could see into VMs. This module only reads. The HTTP server is the daemon's.
//!
//! | what | where |
//! |---|---|
//! | counted as it happens | `../gate.rs`, and `counters.rs` of the crates |
//! | collected on request: pods, containers, VMs, images, the upstream | `now.rs` |
//! | of these, the counters of VMs' devices | `devices.rs` |

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

/// The daemon's metrics for monitoring.
#[derive(Clone, Debug)]
pub struct Exposition(Cri);

impl Exposition {
    /// Creates the exposition of these services.
    pub fn of(cri: &Cri) -> Exposition {
        Exposition(cri.clone())
    }

    /// The daemon's own metrics. If a disk does not answer, its metrics are left out.
    ///
    /// # Errors
    /// A metric cannot be encoded. That would be our bug. The text is for people.
    pub async fn daemon(&self) -> Result<String, String> {
        let mut families = prometheus::gather();
        families.extend(now::figures(&self.0).await);
        families.extend(process::figures());
        families.sort_by(|one, other| one.name().cmp(other.name()));
        text(&families)
    }

    /// The series of containers and of pods' networks, under cAdvisor's names and labels. A guest that does
    /// not answer has none.
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
