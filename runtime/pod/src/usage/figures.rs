//! The usage of pods and containers, as published to readers.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod's usage.
#[derive(Clone, Debug)]
pub struct PodUsage {
    /// The pod's id.
    pub pod_id: String,
    /// Usage of the VMM with the whole VM in it.
    pub host: HostUsage,
    /// The guest's last answer; `None` if it never answered.
    pub guest: Option<Arc<GuestUsage>>,
}

/// Usage of the host by a pod's VMM: guest memory, vCPUs and devices.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct HostUsage {
    /// Nanoseconds since the epoch.
    pub at_ns: i64,
    pub cpu: CpuUsage,
    pub memory: MemoryUsage,
    pub io_pressure: Option<Pressure>,
}

/// Usage as a guest reports it.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct GuestUsage {
    /// Nanoseconds since the epoch.
    pub at_ns: i64,
    /// Containers by their ids.
    pub containers: BTreeMap<String, ContainerUsage>,
    /// One entry for each interface but the loopback.
    pub interfaces: Vec<InterfaceUsage>,
    /// The file system of the writable layers.
    pub scratch: Option<FilesystemUsage>,
}

/// A container's usage.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct ContainerUsage {
    pub cpu: CpuUsage,
    pub memory: MemoryUsage,
    pub tasks: TaskUsage,
    /// One entry for each disk, by name and by number.
    pub devices: Vec<DeviceUsage>,
    pub io_pressure: Option<Pressure>,
    pub writable_layer: Option<WritableLayerUsage>,
    /// One entry for each page size.
    pub hugepages: Vec<HugepageUsage>,
}

/// CPU time.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct CpuUsage {
    pub usage_ns: u64,
    /// Nanoseconds per second between the last two readings; `None` before the second one.
    pub nano_cores: Option<u64>,
    pub user_ns: u64,
    pub system_ns: u64,
    /// Enforcement periods of the quota. It ran out in the throttled ones.
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_ns: u64,
    pub pressure: Option<Pressure>,
}

/// Memory in bytes, unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct MemoryUsage {
    pub usage: u64,
    pub usage_max: u64,
    pub anon: u64,
    pub file: u64,
    pub inactive_file: u64,
    pub kernel: u64,
    pub mapped_file: u64,
    pub swap: u64,
    /// A count.
    pub page_faults: u64,
    /// A count.
    pub major_page_faults: u64,
    /// How often the limit was reached.
    pub limit_hits: u64,
    /// Processes killed for lack of memory.
    pub oom_events: u64,
    pub pressure: Option<Pressure>,
}

impl MemoryUsage {
    /// Memory not reclaimable without harm, as cAdvisor and the kubelet count it.
    pub fn working_set(&self) -> u64 {
        self.usage.saturating_sub(self.inactive_file)
    }
}

/// Processes and their resources.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct TaskUsage {
    pub processes: u64,
    pub threads: u64,
    /// 0 without a limit.
    pub threads_max: u64,
    pub file_descriptors: u64,
    /// Of the first 16384 descriptors.
    pub sockets: u64,
    /// The first process's soft limit of open files; `u64::MAX` for no limit.
    pub open_files_max: Option<u64>,
}

/// Time with stalled work for lack of a resource (the kernel's psi.rst).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task stood still.
    pub some: Stall,
    /// All tasks stood still.
    pub full: Stall,
}

/// One line of a pressure file. Averages are percent of the last 10, 60 and 300 seconds.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Stall {
    pub total_ns: u64,
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
}

/// One disk's traffic.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct DeviceUsage {
    pub major: u32,
    pub minor: u32,
    /// The disk's name: "vda".
    pub name: String,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

/// Data written by a container and still kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct WritableLayerUsage {
    pub bytes: u64,
    pub inodes: u64,
}

/// Huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HugepageUsage {
    /// The size's name: "2MB".
    pub page_size: String,
    /// Bytes in use.
    pub bytes: u64,
}

/// One interface's traffic.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct InterfaceUsage {
    pub name: String,
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
}

/// Room on a file system.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct FilesystemUsage {
    pub device: String,
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub inodes_total: u64,
    pub inodes_free: u64,
}
