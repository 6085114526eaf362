//! Free memory that goes back to the host: binds the balloon, whose driver reports the kernel's free pages from then on. This
//! module never takes memory from anyone, and a guest whose balloon cannot be bound keeps what it has once touched.

use std::fs;
use std::time::Duration;

use agent_container::launch::Failure;

use crate::slots::{SlotError, Slots};

/// How long after the pod is configured: what its first containers need is not given back a moment before.
const BIND_AFTER: Duration = Duration::from_secs(10);

/// The smallest runs of free pages that the kernel reports, as a power of two (mm/page_reporting.c). The kernel's own choice, 2
/// MiB, leaves most of what a boot has touched and freed.
const ORDER: &str = "4";

/// The setting, which the kernel reads when the driver is bound and afterwards.
const ORDER_FILE: &str = "/sys/module/page_reporting/parameters/page_reporting_order";

/// Binds the balloon in this slot in a while.
pub(crate) fn bind_later(slot: u32) {
    tokio::spawn(async move {
        tokio::time::sleep(BIND_AFTER).await;
        // The driver is set up in the call, beside the one thread that serves.
        match tokio::task::spawn_blocking(move || bind(slot)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = Failure::from_error(&error).message, "free memory stays in the guest");
            }
            Err(error) => tracing::warn!(%error, "free memory stays in the guest"),
        }
    });
}

fn bind(slot: u32) -> Result<(), SlotError> {
    if let Err(error) = fs::write(ORDER_FILE, ORDER) {
        tracing::debug!(%error, "the kernel reports free memory in runs of its own choice");
    }
    Slots::default().bind(slot).map(drop)
}
