//! Requests, responses and events.
//!
//! A daemon talks to VMMs that an older or newer one has started, so that a connection begins with both sides' versions
//! ([`Request::Hello`]), and a field that is not known is passed over: a newer side may say more than an older one
//! understands. A new request, a new variant, or a field that must not be missed needs a new version.

use serde::{Deserialize, Serialize};

use crate::{Device, DeviceKind, FilledSlot, Slot};

/// Version of the messages that this side speaks. The version goes up with each request, event or variant that is
/// added, and with each field that must be understood.
///
/// | version | is the first with |
/// |---|---|
/// | 2 | images of several files ([`Device::Layered`]), [`Event::FullDisks`], [`Request::InterruptLockWaits`] |
/// | 3 | slots for volumes ([`Slot::volumes`]) |
/// | 4 | free pages that go back ([`Device::Balloon`]), vCPUs that are made when they are wanted ([`Request::MakeVcpus`]), templates ([`Request::Save`], [`Request::Restore`]) |
/// | 5 | a port for programs of containers (`program_port` of [`Device::Vsock`]) |
/// | 6 | groups of the share's callers ([`Request::ShareGroups`]) |
/// | 7 | numbers of the guest's streams (`number` of [`Event::GuestStream`]), in place of descriptors |
pub const PROTOCOL_VERSION: u32 = 7;

/// The first version whose VMMs save their VM as a template, and start VMs from one.
pub const TEMPLATES_VERSION: u32 = 4;

/// The first version whose VMMs hold the guest's file locks, and interrupt who waits for one.
pub const LOCK_WAITS_VERSION: u32 = 2;

/// The first version whose VMMs make vCPUs when they are asked for, and whose daemons ask.
pub const VCPUS_VERSION: u32 = 4;

/// The first version whose VMMs act with groups of the guest's programs on files of the node.
pub const SHARE_GROUPS_VERSION: u32 = 6;

/// The first version whose VMMs name a guest's streams by number. An earlier one sends descriptors, which the daemon takes from no
/// VMM: programs of its guest reach no socket of the node.
pub const STREAM_NUMBERS_VERSION: u32 = 7;

/// Most groups of [`Request::ShareGroups`]. Programs have some ten; a server of files by NFS takes 16.
pub const SHARE_GROUPS_MAX: usize = 256;

/// Least version of the other side that this one understands. A side that is newer decides by its own constant whether
/// it understands this one, and sends it nothing that it does not know.
pub const PROTOCOL_VERSION_MIN: u32 = 1;

/// Most memory that a VM can have, in bytes: 1 TiB, what 40 bits address, far above a pod's.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// Longest saved state of a VM, in bytes. A vCPU takes some 25 KiB, and there are 64 at most.
pub const STATE_BYTES_MAX: usize = 8 << 20;

/// Most [`PageRun`]s in a list; a packet has room for two.
pub const PAGE_RUNS_MAX: usize = 4096;

/// Position of a descriptor among those that came with the packet, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FdIndex(pub u8);

/// One packet's content.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Daemon to VMM. `id` is chosen by the daemon and comes back in the response.
    Request {
        /// Matches the response to the request.
        id: u64,
        /// The request.
        request: Request,
    },
    /// VMM to daemon: the answer to request `id`.
    Response {
        /// The request's `id`.
        id: u64,
        /// The answer, or the reason for none.
        result: Result<Response, Refusal>,
    },
    /// VMM to daemon, without a request.
    Event(Event),
}

/// The reason why a request was not carried out. The text names what and where, for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// One line.
    pub message: String,
}

/// A request of the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first request of each connection, with the daemon's [`PROTOCOL_VERSION`]. A VMM that does not understand it
    /// refuses, and refuses all that comes before it.
    Hello {
        /// The daemon's version.
        version: u32,
    },
    /// Build the VM and run it. Once per process, before all but `Shutdown`.
    Boot(Box<BootConfig>),
    /// Build the VM from a template and run it; in place of `Boot`. Since version 4.
    Restore(Box<RestoreConfig>),
    /// Pause the VM for good and write it to two files, from which others can be restored. `Shutdown` is what may follow.
    /// Since version 4.
    Save {
        /// An empty file for the memory, opened for writing, which becomes as long as the memory is; pages of zeros are holes.
        memory: FdIndex,
        /// An empty file for all else, some ten KiB for each vCPU, opened for writing.
        state: FdIndex,
    },
    /// Fill an empty slot. The guest sees the device when the agent binds the slot.
    Plug {
        /// An empty slot, which the device must fit.
        slot: Slot,
        /// The device.
        device: Device<FdIndex>,
    },
    /// Empty a slot that the agent has unbound.
    Unplug {
        /// A filled slot.
        slot: Slot,
    },
    /// Offer the guest memory of this size in all, between what it booted with and the most it was built for.
    /// The guest takes or gives back in its own time: [`Event::Resized`] says when. The device in [`Slot::MEM`] is
    /// there from the first growth on, for the agent to bind.
    Resize {
        /// Bytes, in steps of 2 MiB from the size at boot.
        memory_bytes: u64,
    },
    /// Make vCPUs until there are so many; those that are there stay. The guest can bring up what is there, and waits ten
    /// seconds in vain for another. Since version 4; from a daemon of an earlier version a VMM makes all of them at hello.
    MakeVcpus {
        /// vCPUs in all, `1..=` [`BootConfig::vcpus`].
        count: u8,
    },
    /// End the waits of these processes for file locks of volumes: each gets EINTR. The guest knows the processes by these
    /// numbers, in its initial PID namespace, and has a signal for each that ends it. Processes that do not wait are no
    /// error. Since version 3.
    InterruptLockWaits {
        /// Process ids.
        pids: Vec<u32>,
    },
    /// Have these supplementary groups, and no others, on files of the node from now on: those of all the pod's programs, since a
    /// request for a file names its caller's user and group alone. Since version 6.
    ShareGroups {
        /// Group ids, [`SHARE_GROUPS_MAX`] at most.
        groups: Vec<u32>,
    },
    /// The slots that are filled.
    Slots,
    /// Counters and times of the VM.
    Stats,
    /// The console ring's content.
    Console,
    /// Stop the vCPUs and end the process: answered, then [`Event::Stopped`], then the socket closes.
    Shutdown,
}

/// The answer to a request of the same name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The VMM understands the daemon. Whether the daemon understands the VMM is for the daemon to see.
    Hello {
        /// The VMM's version.
        version: u32,
        /// The release that the VMM is of, for people; empty where the VMM is of one that does not say.
        #[serde(default)]
        release: String,
    },
    /// The vCPUs run.
    Booted,
    /// The vCPUs run on.
    Restored,
    /// Both files are written, and the VM is paused.
    Saved,
    /// The slot is filled.
    Plugged,
    /// The slot is empty.
    Unplugged,
    /// The memory is offered.
    Resizing,
    /// The vCPUs are there.
    VcpusMade,
    /// The waits end soon.
    LockWaitsInterrupted,
    /// Requests that begin from now on have the groups.
    GroupsShared,
    /// The filled slots, in the table's order.
    Slots(Vec<FilledSlot>),
    /// Counters.
    Stats(VmStats),
    /// Console text, lossily decoded, oldest byte first, at most 64 KiB.
    Console {
        /// The text.
        text: String,
    },
    /// The VMM will end.
    ShuttingDown,
}

/// The VM to build. All descriptors come with the same packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BootConfig {
    /// The pod's id, for log lines and thread names.
    pub id: String,
    /// vCPUs that the guest knows of; it brings one up at boot and the agent others. `1..=64`.
    pub vcpus: u8,
    /// vCPUs that are made before it starts, `1..=vcpus`; 0 for all, which a VMM before version 4 makes in any case. Others are
    /// made by [`Request::MakeVcpus`].
    #[serde(default)]
    pub vcpus_at_boot: u8,
    /// Guest memory at boot in bytes: a multiple of 2 MiB, at least 32 MiB.
    pub memory_bytes: u64,
    /// Most memory that [`Request::Resize`] may ask for: a multiple of 2 MiB, at least `memory_bytes`. The VM is built
    /// for less where it cannot have that much ([`MEMORY_BYTES_MAX`], and what the processor addresses).
    pub memory_max_bytes: u64,
    /// Guest kernel, an uncompressed ELF (`vmlinux`).
    pub kernel: FdIndex,
    /// Added after the VMM's own command line; may be empty.
    pub cmdline: String,
    /// Plugged before the guest starts. The root image (slot 0), vsock and rng are needed; others may be.
    pub devices: Vec<(Slot, Device<FdIndex>)>,
}

/// The VM to restore. All descriptors come with the same packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreConfig {
    /// The pod's id, for log lines and thread names.
    pub id: String,
    /// vCPUs that the guest knows of, as many as in the saved VM; the VMM makes those that had been made there.
    pub vcpus: u8,
    /// Guest memory at boot in bytes, as much as the saved VM had.
    pub memory_bytes: u64,
    /// Most memory that [`Request::Resize`] may ask for, as the saved VM was asked for.
    pub memory_max_bytes: u64,
    /// The memory that was saved: a file in memory, sealed against writing and shrinking (F_SEAL_WRITE, F_SEAL_SHRINK). The
    /// guest writes to a copy of its own.
    pub memory: FdIndex,
    /// The state that was saved beside the memory.
    pub state: FdIndex,
    /// Devices for the slots that were filled when the VM was saved, of the same kinds, and for no others.
    pub devices: Vec<(Slot, Device<FdIndex>)>,
    /// Pages of the memory that the guest will write to soon, at most [`PAGE_RUNS_MAX`] runs: the VMM copies them before the guest runs.
    #[serde(default)]
    pub first_writes: Vec<PageRun>,
    /// Further pages that the guest will read soon, at most [`PAGE_RUNS_MAX`] runs: the VMM has KVM map them before the guest runs.
    #[serde(default)]
    pub first_reads: Vec<PageRun>,
}

/// Pages of 4 KiB that follow each other in a saved memory. On the wire a list of the two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct PageRun {
    /// Number of the first page.
    pub first: u32,
    /// Number of pages.
    pub count: u32,
}

impl From<(u32, u32)> for PageRun {
    fn from((first, count): (u32, u32)) -> PageRun {
        PageRun { first, count }
    }
}

impl From<PageRun> for (u32, u32) {
    fn from(PageRun { first, count }: PageRun) -> (u32, u32) {
        (first, count)
    }
}

/// A message of the VMM that answers no request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The guest opened a stream to a host port. The daemon accepts it by dialling the vsock device's listener and writing
    /// `ACCEPT <number>\n`, within 30 s; the rest of that connection is the stream.
    GuestStream {
        /// Host port dialled.
        port: u32,
        /// Number of the stream; none of a VM is used twice. VMMs before version 7 send none.
        #[serde(default)]
        number: Option<u64>,
    },
    /// The guest has taken, or given back, all that the last [`Request::Resize`] asked. Once for each.
    Resized,
    /// The number of disks whose writes wait for room on the node is another one now. Sent to a client that says hello
    /// while it is not 0, too; since version 2 of the protocol.
    FullDisks {
        /// The number of disks.
        count: u32,
    },
    /// The VM has ended; the process ends after this.
    Stopped(Box<StopReport>),
}

/// The end of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopReport {
    /// The reason.
    pub reason: StopReason,
    /// Registers of the vCPU that stopped it, where there is one.
    pub registers: Option<Registers>,
    /// Last lines of the console, at most 8 KiB.
    pub console: String,
    /// Exits so far.
    pub exits: ExitCounts,
}

/// The reason why a VM ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// [`Request::Shutdown`].
    Requested,
    /// The guest asked for a reset or power-off without a panic on its console.
    GuestReset,
    /// The guest kernel panicked; its own words.
    GuestPanic {
        /// The line that follows "Kernel panic - not syncing: ".
        message: String,
    },
    /// KVM_EXIT_SHUTDOWN: the guest faulted while handling a fault.
    TripleFault,
    /// KVM_EXIT_INTERNAL_ERROR.
    InternalError {
        /// KVM_INTERNAL_ERROR_*: 1 emulation, 2 simultaneous exceptions, 3 delivery, 4 unexpected exit.
        suberror: u32,
        /// Instruction bytes at the fault, where KVM gave them.
        instruction: Vec<u8>,
    },
    /// KVM_EXIT_FAIL_ENTRY.
    EntryFailed {
        /// The hardware's reason code.
        hardware_reason: u64,
    },
    /// The VMM itself could not go on.
    Vmm {
        /// The failure, on one line.
        message: String,
    },
}

/// General registers of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Registers {
    pub rip: u64,
    pub rsp: u64,
    pub rflags: u64,
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub cr0: u64,
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
}

/// vCPU exits to the VMM, by kind, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitCounts {
    /// KVM_EXIT_MMIO, reads.
    pub mmio_read: u64,
    /// KVM_EXIT_MMIO, writes.
    pub mmio_write: u64,
    /// KVM_EXIT_IO, in.
    pub pio_in: u64,
    /// KVM_EXIT_IO, out.
    pub pio_out: u64,
    /// KVM_EXIT_HLT.
    pub halt: u64,
    /// KVM_EXIT_INTR: a signal, ours or another's.
    pub interrupted: u64,
    /// All others.
    pub other: u64,
}

/// Counts of the device in a slot since it was plugged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStats {
    /// The slot.
    pub slot: Slot,
    /// The device's kind.
    pub kind: DeviceKind,
    /// Requests and rings of the guest that made no sense.
    pub faults: u64,
    /// Frames for the guest that were lost, since they did not fit its buffers.
    pub dropped_received: u64,
    /// Frames of the guest that were lost: they made no sense, or the tap refused them.
    pub dropped_sent: u64,
    /// Requests that wait or are being carried out, as the guest's rings have it.
    pub queued: u32,
}

/// Counters and times of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStats {
    /// Exits by kind.
    pub exits: ExitCounts,
    /// Host CLOCK_MONOTONIC, nanoseconds, when Boot was received.
    pub boot_requested_ns: u64,
    /// Host CLOCK_MONOTONIC, nanoseconds, when the first vCPU entered the guest kernel.
    pub guest_entered_ns: u64,
    /// The devices, in the slots' order; none from a VMM that is too old to say.
    #[serde(default)]
    pub devices: Vec<DeviceStats>,
}
