//! The contract between the daemon and a VMM: the messages on the control socket, and the slot table.
//!
//! The socket is `SOCK_SEQPACKET`. Each packet is one JSON [`Message`] of at most [`PACKET_BYTES_MAX`] bytes.
//! Its descriptors travel in the same packet's `SCM_RIGHTS`, and the message refers to them by [`FdIndex`].
//! Descriptors go from the daemon to the VMM only. The daemon creates the listening socket and the VMM
//! inherits it as standard input, so a restarted daemon can dial again. There is one client at a time: a new
//! connection replaces the old one. A connection begins with both sides' versions ([`Request::Hello`]).
//!
//! This crate holds types and the packet codec only; `runtime` and `vmm` meet nowhere else. `message` has the
//! requests and answers, `device` the devices to plug, `slot` their slots, `packet` the codec. The VMM also
//! writes the guest's console to its standard output, in the format of `console`. The daemon starts the VMM
//! with one argument, `volume_cache`.

#![forbid(unsafe_code)]

mod console;
mod device;
mod message;
mod packet;
mod slot;
mod volume_cache;

pub use console::{CONSOLE_FILE_BYTES_MAX, console_of, cut_line, printable};
pub use device::{BALLOON_VERSION, Device, DeviceKind, ImagePart, PARTS_MAX};
pub use message::{
    BootConfig, DeviceStats, Event, ExitCounts, FdIndex, LOCK_WAITS_VERSION, MEMORY_BYTES_MAX, Message,
    PAGE_RUNS_MAX, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, PageRun, Refusal, Registers, Request, Response,
    RestoreConfig, SHARE_GROUPS_MAX, SHARE_GROUPS_VERSION, STATE_BYTES_MAX, STREAM_NUMBERS_VERSION,
    StopReason, StopReport, TEMPLATES_VERSION, VCPUS_VERSION, VmStats,
};
pub use packet::{FDS_MAX, PACKET_BYTES_MAX, Packet, PacketError, RawPacket, recv, recv_raw, send};
pub use slot::{FilledSlot, Slot, VOLUME_SLOTS_VERSION};
pub use volume_cache::{UnknownVolumeCache, VolumeCache};
