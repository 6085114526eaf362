//! The writable layer, and traffic with disks.

use runtime_pod::{DeviceUsage, FilesystemUsage};

use super::metric::{ContainerSource, Metric, Values, counter, gauge, maybe, seconds};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        labels: &["device"],
        container: |c| {
            let layer = c.usage.writable_layer;
            scratch(c, |_| layer.map(|layer| layer.bytes))
        },
        ..gauge("container_fs_usage_bytes", "What the writable layer takes of its disk, in bytes.")
    },
    Metric {
        labels: &["device"],
        container: |c| scratch(c, |disk| Some(disk.bytes_total)),
        ..gauge("container_fs_limit_bytes", "Room on the disk of the writable layers, in bytes.")
    },
    Metric {
        labels: &["device"],
        container: |c| scratch(c, |disk| Some(disk.inodes_free)),
        ..gauge("container_fs_inodes_free", "Files that the disk of the writable layers has room for.")
    },
    Metric {
        labels: &["device"],
        container: |c| scratch(c, |disk| Some(disk.inodes_total)),
        ..gauge("container_fs_inodes_total", "Files that the disk of the writable layers can hold in all.")
    },
    Metric {
        labels: &["device"],
        container: |c| devices(c, |device| device.reads),
        ..counter("container_fs_reads_total", "Reads that a disk has completed.")
    },
    Metric {
        labels: &["device"],
        container: |c| devices(c, |device| device.read_bytes),
        ..counter("container_fs_reads_bytes_total", "Bytes read from a disk.")
    },
    Metric {
        labels: &["device"],
        container: |c| devices(c, |device| device.writes),
        ..counter("container_fs_writes_total", "Writes that a disk has completed.")
    },
    Metric {
        labels: &["device"],
        container: |c| devices(c, |device| device.write_bytes),
        ..counter("container_fs_writes_bytes_total", "Bytes written to a disk.")
    },
    Metric {
        labels: &["device", "major", "minor", "operation"],
        container: operations,
        ..counter("container_blkio_device_usage_total", "Bytes moved from and to a disk, by operation.")
    },
    Metric {
        container: |c| maybe(c.usage.io_pressure.as_ref().map(|p| seconds(p.some.total_ns))),
        ..counter(
            "container_pressure_io_waiting_seconds_total",
            "Time in which some task waited for a disk, in seconds.",
        )
    },
    Metric {
        container: |c| maybe(c.usage.io_pressure.as_ref().map(|p| seconds(p.full.total_ns))),
        ..counter(
            "container_pressure_io_stalled_seconds_total",
            "Time in which all tasks waited for a disk, in seconds.",
        )
    },
];

fn scratch(c: &ContainerSource<'_>, value: impl Fn(&FilesystemUsage) -> Option<u64>) -> Values {
    let Some(disk) = &c.guest.scratch else { return Values::new() };
    value(disk).map(|value| vec![(vec![path(&disk.device)], value.into())]).unwrap_or_default()
}

fn devices(c: &ContainerSource<'_>, value: impl Fn(&DeviceUsage) -> u64) -> Values {
    c.usage.devices.iter().map(|device| (vec![path(&device.name)], value(device).into())).collect()
}

fn operations(c: &ContainerSource<'_>) -> Values {
    let each = |device: &DeviceUsage| {
        let labels = |operation: &str| {
            let (major, minor) = (device.major.to_string(), device.minor.to_string());
            vec![path(&device.name), major, minor, operation.to_owned()]
        };
        [(labels("Read"), device.read_bytes.into()), (labels("Write"), device.write_bytes.into())]
    };
    c.usage.devices.iter().flat_map(each).collect()
}

fn path(device: &str) -> String {
    format!("/dev/{device}")
}
