//! The map of register offsets (virtio 1.2, section 4.2.2, table 4.1). Pure.

use virtio_bindings::virtio_mmio as mmio;

/// Bytes of a slot in guest-physical address space: registers below 0x100, configuration above.
pub(super) const MMIO_BYTES: u64 = 0x1000;

/// Offsets of the registers readable by the driver, except the interrupt's.
pub(super) const READABLE: [u32; 12] = [
    mmio::VIRTIO_MMIO_MAGIC_VALUE,
    mmio::VIRTIO_MMIO_VERSION,
    mmio::VIRTIO_MMIO_DEVICE_ID,
    mmio::VIRTIO_MMIO_VENDOR_ID,
    mmio::VIRTIO_MMIO_DEVICE_FEATURES,
    mmio::VIRTIO_MMIO_QUEUE_NUM_MAX,
    mmio::VIRTIO_MMIO_QUEUE_READY,
    mmio::VIRTIO_MMIO_STATUS,
    mmio::VIRTIO_MMIO_SHM_LEN_LOW,
    mmio::VIRTIO_MMIO_SHM_LEN_HIGH,
    mmio::VIRTIO_MMIO_SHM_BASE_LOW,
    mmio::VIRTIO_MMIO_SHM_BASE_HIGH,
];

/// A register or place accessible to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    Magic,
    Version,
    DeviceId,
    Vendor,
    DeviceFeatures,
    DeviceFeaturesSelect,
    DriverFeatures,
    DriverFeaturesSelect,
    QueueSelect,
    QueueSizeMax,
    QueueSize,
    QueueReady,
    QueueNotify,
    InterruptAcknowledge,
    Status,
    DescriptorsLow,
    DescriptorsHigh,
    /// The available ring, "driver area".
    DriverLow,
    DriverHigh,
    /// The used ring, "device area".
    DeviceLow,
    DeviceHigh,
    SharedSelect,
    SharedLengthLow,
    SharedLengthHigh,
    SharedBaseLow,
    SharedBaseHigh,
    /// Configuration space, at this offset within it.
    Config(u64),
}

impl Register {
    /// Returns the register at `offset` for an access of `width` bytes. Registers are 32 bits wide and
    /// accessed whole; configuration space takes 1, 2, 4 or 8 bytes. Anything else is `None`.
    pub(super) fn at(offset: u64, width: usize) -> Option<Register> {
        let config = u64::from(mmio::VIRTIO_MMIO_CONFIG);
        if (config..MMIO_BYTES).contains(&offset) {
            return matches!(width, 1 | 2 | 4 | 8).then_some(Register::Config(offset - config));
        }
        if width != 4 {
            return None;
        }
        Some(match u32::try_from(offset).ok()? {
            mmio::VIRTIO_MMIO_MAGIC_VALUE => Register::Magic,
            mmio::VIRTIO_MMIO_VERSION => Register::Version,
            mmio::VIRTIO_MMIO_DEVICE_ID => Register::DeviceId,
            mmio::VIRTIO_MMIO_VENDOR_ID => Register::Vendor,
            mmio::VIRTIO_MMIO_DEVICE_FEATURES => Register::DeviceFeatures,
            mmio::VIRTIO_MMIO_DEVICE_FEATURES_SEL => Register::DeviceFeaturesSelect,
            mmio::VIRTIO_MMIO_DRIVER_FEATURES => Register::DriverFeatures,
            mmio::VIRTIO_MMIO_DRIVER_FEATURES_SEL => Register::DriverFeaturesSelect,
            mmio::VIRTIO_MMIO_QUEUE_SEL => Register::QueueSelect,
            mmio::VIRTIO_MMIO_QUEUE_NUM_MAX => Register::QueueSizeMax,
            mmio::VIRTIO_MMIO_QUEUE_NUM => Register::QueueSize,
            mmio::VIRTIO_MMIO_QUEUE_READY => Register::QueueReady,
            mmio::VIRTIO_MMIO_QUEUE_NOTIFY => Register::QueueNotify,
            mmio::VIRTIO_MMIO_INTERRUPT_ACK => Register::InterruptAcknowledge,
            mmio::VIRTIO_MMIO_STATUS => Register::Status,
            mmio::VIRTIO_MMIO_QUEUE_DESC_LOW => Register::DescriptorsLow,
            mmio::VIRTIO_MMIO_QUEUE_DESC_HIGH => Register::DescriptorsHigh,
            mmio::VIRTIO_MMIO_QUEUE_AVAIL_LOW => Register::DriverLow,
            mmio::VIRTIO_MMIO_QUEUE_AVAIL_HIGH => Register::DriverHigh,
            mmio::VIRTIO_MMIO_QUEUE_USED_LOW => Register::DeviceLow,
            mmio::VIRTIO_MMIO_QUEUE_USED_HIGH => Register::DeviceHigh,
            mmio::VIRTIO_MMIO_SHM_SEL => Register::SharedSelect,
            mmio::VIRTIO_MMIO_SHM_LEN_LOW => Register::SharedLengthLow,
            mmio::VIRTIO_MMIO_SHM_LEN_HIGH => Register::SharedLengthHigh,
            mmio::VIRTIO_MMIO_SHM_BASE_LOW => Register::SharedBaseLow,
            mmio::VIRTIO_MMIO_SHM_BASE_HIGH => Register::SharedBaseHigh,
            _ => return None,
        })
    }
}
