//! A device, as one type all the way from a request to the bus. An [`FdIndex`](crate::FdIndex) stands for the
//! device's file in a message, an open descriptor in a process. [`Device::map`] turns one into the other.
//! This module never opens anything. `slot` says where a device fits, and docs/adding-a-device.md how to add
//! one.

use std::convert::Infallible;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A device to plug; an `F` stands for its file. There is no memory device ([`DeviceKind::Mem`]) here: the
/// VMM plugs it itself when a VM first grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device<F> {
    /// A file mapped into guest-physical memory, read-only. A guest write there ends its VM.
    Pmem {
        /// The file, opened for reading; a multiple of 2 MiB long, not empty.
        image: F,
    },
    /// Several files side by side, mapped as one: an image with its layers in separate files. Fits a slot for
    /// [`DeviceKind::Pmem`]. Since version 2 of the protocol.
    Layered {
        /// The files in order, at least one and at most [`PARTS_MAX`]. Gaps between them read as zeros.
        parts: Vec<ImagePart<F>>,
    },
    /// A disk.
    Blk {
        /// The file or block device, opened for writing unless `read_only`; a multiple of 512 bytes long.
        image: F,
        /// Offer VIRTIO_BLK_F_RO and refuse writes.
        read_only: bool,
    },
    /// A network interface.
    Net {
        /// A tap, opened with IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, vnet header size 12.
        tap: F,
        /// Ethernet address the guest sees.
        mac: [u8; 6],
        /// Largest packet in bytes, offered as VIRTIO_NET_F_MTU.
        mtu: u16,
    },
    /// The vsock device. Host programs reach the guest by dialling `listener` and writing `CONNECT <port>\n`;
    /// the answer is `OK <host port>\n`. [`Event::GuestStream`](crate::Event::GuestStream) announces the
    /// streams that the guest opens to `host_ports`. Only a few may be open at once, and they are rare. All
    /// other streams are refused.
    Vsock {
        /// Listening unix stream socket.
        listener: F,
        /// The guest's context id, 3 or above.
        guest_cid: u32,
        /// Host ports open to the guest.
        host_ports: Vec<u32>,
        /// One more port, for programs of containers. It has a count of its own, with a higher limit of
        /// streams. Since version 5 of the protocol; an older VMM refuses this port to its guest.
        #[serde(default)]
        program_port: Option<u32>,
    },
    /// Random numbers from the host's getrandom(2).
    Rng,
    /// A balloon. It stays empty and only takes the guest's reports of free pages, and their memory goes back
    /// to the host. Since version 4 of the protocol.
    Balloon,
    /// The pod's shared directory as a file system. It is the VMM's working directory at start. Only a VMM
    /// started as root has this device.
    Fs {
        /// The file system's tag, for mounting in the guest, 1 to 36 bytes.
        tag: String,
    },
}

/// A file of [`Device::Layered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePart<F> {
    /// The file, opened for reading.
    pub file: F,
    /// The file's offset in the image, in bytes: a multiple of 4 KiB, not before the end of the previous
    /// part.
    pub offset: u64,
    /// Mapped bytes, from the file's beginning: a multiple of 4 KiB, not 0, at most the file's length.
    pub length: u64,
}

/// The first version of the protocol with [`Device::Balloon`].
pub const BALLOON_VERSION: u32 = 4;

/// Most files of one image: its own and those of 127 layers.
pub const PARTS_MAX: usize = 128;

/// The kinds of devices. The slot table gives each slot the kind that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// virtio-pmem: the root image and other images.
    Pmem,
    /// virtio-blk.
    Blk,
    /// virtio-net.
    Net,
    /// virtio-vsock.
    Vsock,
    /// virtio-rng.
    Rng,
    /// virtio-fs.
    Fs,
    /// virtio-mem.
    Mem,
    /// virtio-balloon.
    Balloon,
}

impl<F> Device<F> {
    /// The device's kind.
    pub fn kind(&self) -> DeviceKind {
        match self {
            Device::Pmem { .. } | Device::Layered { .. } => DeviceKind::Pmem,
            Device::Blk { .. } => DeviceKind::Blk,
            Device::Net { .. } => DeviceKind::Net,
            Device::Vsock { .. } => DeviceKind::Vsock,
            Device::Rng => DeviceKind::Rng,
            Device::Balloon => DeviceKind::Balloon,
            Device::Fs { .. } => DeviceKind::Fs,
        }
    }

    /// Returns true if the guest can only read the device's content.
    pub fn read_only(&self) -> bool {
        matches!(self, Device::Pmem { .. } | Device::Layered { .. } | Device::Blk { read_only: true, .. })
    }

    /// Returns the same device with another file.
    pub fn map<G>(self, mut file: impl FnMut(F) -> G) -> Device<G> {
        let Ok(device) = self.try_map(|from| Ok::<G, Infallible>(file(from)));
        device
    }

    /// Returns the first version of the protocol with this device.
    pub fn version(&self) -> u32 {
        match self {
            Device::Layered { .. } => 2,
            _ => self.kind().version(),
        }
    }

    /// Returns the same device with another file, or the error from opening it.
    pub fn try_map<G, E>(self, mut file: impl FnMut(F) -> Result<G, E>) -> Result<Device<G>, E> {
        Ok(match self {
            Device::Pmem { image } => Device::Pmem { image: file(image)? },
            Device::Layered { parts } => {
                let part = |ImagePart { file: from, offset, length }| {
                    Ok(ImagePart { file: file(from)?, offset, length })
                };
                Device::Layered { parts: parts.into_iter().map(part).collect::<Result<_, E>>()? }
            }
            Device::Blk { image, read_only } => Device::Blk { image: file(image)?, read_only },
            Device::Net { tap, mac, mtu } => Device::Net { tap: file(tap)?, mac, mtu },
            Device::Vsock { listener, guest_cid, host_ports, program_port } => {
                Device::Vsock { listener: file(listener)?, guest_cid, host_ports, program_port }
            }
            Device::Rng => Device::Rng,
            Device::Balloon => Device::Balloon,
            Device::Fs { tag } => Device::Fs { tag },
        })
    }
}

impl DeviceKind {
    /// Returns the first version of the protocol with this kind.
    pub fn version(self) -> u32 {
        if self == DeviceKind::Balloon { BALLOON_VERSION } else { 1 }
    }
}

impl DeviceKind {
    /// All kinds.
    pub const ALL: [DeviceKind; 8] = [
        DeviceKind::Pmem,
        DeviceKind::Blk,
        DeviceKind::Net,
        DeviceKind::Vsock,
        DeviceKind::Rng,
        DeviceKind::Fs,
        DeviceKind::Mem,
        DeviceKind::Balloon,
    ];

    /// The usual name without `virtio-`.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Pmem => "pmem",
            DeviceKind::Blk => "blk",
            DeviceKind::Net => "net",
            DeviceKind::Vsock => "vsock",
            DeviceKind::Rng => "rng",
            DeviceKind::Fs => "fs",
            DeviceKind::Mem => "mem",
            DeviceKind::Balloon => "balloon",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FdIndex;

    #[test]
    fn a_device_keeps_all_but_its_file_when_mapped() {
        let disk = Device::Blk { image: 7u32, read_only: true };
        assert_eq!(disk.clone().map(|file| file + 1), Device::Blk { image: 8, read_only: true });
        assert_eq!(disk.try_map(Err::<(), u32>), Err(7));
        assert_eq!(
            (Device::<u32>::Balloon.version(), serde_json::json!(Device::<u32>::Balloon)),
            (4, "balloon".into())
        );
        let share = Device::<u32>::Fs { tag: "podvisor".into() };
        assert_eq!(share.try_map(Err::<(), u32>), Ok(Device::Fs { tag: "podvisor".into() }));
    }

    #[test]
    fn an_image_of_several_files_keeps_their_places() {
        let part = |file: u32, offset, length| ImagePart { file, offset, length };
        let image = Device::Layered { parts: vec![part(1, 0, 4096), part(2, 8192, 4096)] };
        assert_eq!((image.kind(), image.read_only(), image.version()), (DeviceKind::Pmem, true, 2));
        let mapped = image.clone().map(|file| file + 10);
        assert_eq!(mapped, Device::Layered { parts: vec![part(11, 0, 4096), part(12, 8192, 4096)] });
        assert_eq!(image.try_map(|file| if file == 2 { Err(file) } else { Ok(()) }), Err(2));
        let one = Device::Layered { parts: vec![ImagePart { file: FdIndex(3), offset: 0, length: 4096 }] };
        let expected =
            serde_json::json!({ "layered": { "parts": [{ "file": 3, "offset": 0, "length": 4096 }] } });
        assert_eq!(serde_json::json!(one), expected);
    }

    #[test]
    fn a_kind_is_called_as_its_device_is_on_the_wire() {
        let disk = Device::Blk { image: FdIndex(3), read_only: false };
        let on_the_wire = serde_json::json!(&disk);
        assert_eq!(on_the_wire, serde_json::json!({ "blk": { "image": 3, "read_only": false } }));
        assert_eq!(serde_json::json!(disk.kind()), disk.kind().to_string());
    }
}
