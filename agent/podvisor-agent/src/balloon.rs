//! Returns free memory to the host. This module binds the balloon, and its driver then reports the kernel's
//! free pages. It never takes memory from a process. If the balloon cannot be bound, the guest keeps all
//! memory it has touched.

use std::fs;
use std::time::Duration;

use agent_container::launch::Failure;

use crate::slots::{SlotError, Slots};

/// Delay after the pod is configured, so that memory is not returned just before the first containers need
/// it.
const BIND_AFTER: Duration = Duration::from_secs(10);

/// Smallest run of free pages to report, as a power of two (mm/page_reporting.c). The kernel's default, 2
/// MiB, would keep most of the memory touched and freed by a boot.
const ORDER: &str = "4";

/// File of this setting. The kernel reads it when the driver is bound, and later again.
const ORDER_FILE: &str = "/sys/module/page_reporting/parameters/page_reporting_order";

/// Binds the balloon in this slot after a delay.
pub(crate) fn bind_later(slot: u32) {
    tokio::spawn(async move {
        tokio::time::sleep(BIND_AFTER).await;
        // Binding sets up the driver, so it must not block the serving thread.
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
