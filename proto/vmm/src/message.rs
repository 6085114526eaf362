//! Requests, responses and events.
//!
//! The daemon and its VMMs may be of different releases. A connection therefore begins with both sides'
//! versions ([`Request::Hello`]). Unknown fields are ignored, so a newer side may send more than an older one
//! understands. A new request, a new variant, or a field that must not be missed needs a new version.

use serde::{Deserialize, Serialize};

use crate::{Device, DeviceKind, FilledSlot, Slot};

/// This side's version of the messages. It goes up with each new request, event, variant or mandatory field.
///
/// | version | adds |
/// |---|---|
/// | 2 | layered images ([`Device::Layered`]), [`Event::FullDisks`], [`Request::InterruptLockWaits`] |
/// | 3 | slots for volumes ([`Slot::volumes`]) |
/// | 4 | free page reporting ([`Device::Balloon`]), vCPUs on demand ([`Request::MakeVcpus`]) |
/// | 4 | templates ([`Request::Save`], [`Request::Restore`]) |
/// | 5 | a port for programs of containers (`program_port` of [`Device::Vsock`]) |
/// | 6 | groups of the share's callers ([`Request::ShareGroups`]) |
/// | 7 | numbers of the guest's streams (`number` of [`Event::GuestStream`]), in place of descriptors |
pub const PROTOCOL_VERSION: u32 = 7;

/// The first version with templates: its VMMs save a VM as a template and start VMs from one.
pub const TEMPLATES_VERSION: u32 = 4;

/// The first version with file locks held in the VMM. Its VMMs can interrupt a process waiting for a lock.
pub const LOCK_WAITS_VERSION: u32 = 2;

/// The first version with vCPUs made on demand, in VMMs and in daemons.
pub const VCPUS_VERSION: u32 = 4;

/// The first version with supplementary groups. Its VMMs use the groups of the guest's programs for files of
/// the node.
pub const SHARE_GROUPS_VERSION: u32 = 6;

/// The first version with numbers for a guest's streams. Earlier VMMs send descriptors, and the daemon
/// accepts none from a VMM. Programs in such a guest reach no socket of the node.
pub const STREAM_NUMBERS_VERSION: u32 = 7;

/// Most groups of [`Request::ShareGroups`]. Programs have some ten; an NFS server takes 16.
pub const SHARE_GROUPS_MAX: usize = 256;

/// Oldest version of the other side supported here. A newer side decides by its own constant whether it
/// supports this one, and then sends nothing this one does not know.
pub const PROTOCOL_VERSION_MIN: u32 = 1;

/// Most memory of a VM, in bytes: 1 TiB, the limit of 40 address bits. This is far above a pod's need.
pub const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// Longest saved state of a VM, in bytes. A vCPU takes some 25 KiB, and there are 64 at most.
pub const STATE_BYTES_MAX: usize = 8 << 20;

/// Most [`PageRun`]s in a list; a packet has room for two.
pub const PAGE_RUNS_MAX: usize = 4096;

/// Position of a descriptor among the packet's descriptors, from 0.
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

/// The reason why a request was not carried out. The text is for a person and names the failed step and its
/// object.
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
    /// The first request of each connection, with the daemon's [`PROTOCOL_VERSION`]. A VMM refuses a version
    /// it does not understand, and any request before this one.
    Hello {
        /// The daemon's version.
        version: u32,
    },
    /// Build the VM and run it. Once per process, before all but `Shutdown`.
    Boot(Box<BootConfig>),
    /// Build the VM from a template and run it; in place of `Boot`. Since version 4.
    Restore(Box<RestoreConfig>),
    /// Pause the VM for good and write it to two files, for restoring other VMs from them. Only `Shutdown`
    /// may follow. Since version 4.
    Save {
        /// An empty file for the memory, opened for writing. It becomes as long as the memory; pages of zeros
        /// are holes.
        memory: FdIndex,
        /// An empty file for all other state, some ten KiB for each vCPU, opened for writing.
        state: FdIndex,
    },
    /// Fill an empty slot. The guest sees the device when the agent binds the slot.
    Plug {
        /// An empty slot of the device's kind.
        slot: Slot,
        /// The device.
        device: Device<FdIndex>,
    },
    /// Empty a slot after the agent has unbound it.
    Unplug {
        /// A filled slot.
        slot: Slot,
    },
    /// Offer the guest this much memory in total, between its size at boot and the maximum the VM was built
    /// for. The guest takes memory or gives it back in its own time, and [`Event::Resized`] reports the end.
    /// The device in [`Slot::MEM`] appears with the first growth, for the agent to bind.
    Resize {
        /// Bytes, in steps of 2 MiB from the size at boot.
        memory_bytes: u64,
    },
    /// Make vCPUs until this many exist; existing ones stay. The guest can only bring up existing vCPUs and
    /// waits ten seconds in vain for a missing one. Since version 4. For an older daemon the VMM makes all of
    /// them at hello.
    MakeVcpus {
        /// vCPUs in all, `1..=` [`BootConfig::vcpus`].
        count: u8,
    },
    /// Interrupt these processes' waits for file locks of volumes: each gets EINTR. The numbers are those of
    /// the guest's initial PID namespace, and a fatal signal is pending for each process. A process without a
    /// wait is no error. Since version 3.
    InterruptLockWaits {
        /// Process ids.
        pids: Vec<u32>,
    },
    /// Use exactly these supplementary groups for files of the node from now on. They are the groups of all
    /// the pod's programs, because a file request names only its caller's user and group. Since version 6.
    ShareGroups {
        /// Group ids, [`SHARE_GROUPS_MAX`] at most.
        groups: Vec<u32>,
    },
    /// List the filled slots.
    Slots,
    /// Return counters and times of the VM.
    Stats,
    /// Return the console ring's content.
    Console,
    /// Stop the vCPUs and end the process. The VMM answers, sends [`Event::Stopped`], and closes the socket.
    Shutdown,
}

/// The answer to a request of the same name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The VMM understands the daemon. The daemon has to check whether it understands the VMM.
    Hello {
        /// The VMM's version.
        version: u32,
        /// The VMM's release, for people. Empty if the VMM's release does not report it.
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
    /// The guest's vCPUs, `1..=64`. The guest brings up one at boot, the agent the others.
    pub vcpus: u8,
    /// vCPUs made before the guest starts, `1..=vcpus`; 0 for all. A VMM before version 4 makes all in any
    /// case. [`Request::MakeVcpus`] makes the others.
    #[serde(default)]
    pub vcpus_at_boot: u8,
    /// Guest memory at boot in bytes: a multiple of 2 MiB, at least 32 MiB.
    pub memory_bytes: u64,
    /// Upper limit for [`Request::Resize`]: a multiple of 2 MiB, at least `memory_bytes`. The VM is built for
    /// less if it cannot have that much ([`MEMORY_BYTES_MAX`], and the processor's address width).
    pub memory_max_bytes: u64,
    /// Guest kernel, an uncompressed ELF (`vmlinux`).
    pub kernel: FdIndex,
    /// Added after the VMM's own command line; may be empty.
    pub cmdline: String,
    /// Devices to plug before the guest starts. The root image (slot 0), vsock and rng are required; others
    /// are optional.
    pub devices: Vec<(Slot, Device<FdIndex>)>,
}

/// The VM to restore. All descriptors come with the same packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreConfig {
    /// The pod's id, for log lines and thread names.
    pub id: String,
    /// The guest's vCPUs, as many as in the saved VM. The VMM makes as many as the saved VM had made.
    pub vcpus: u8,
    /// Guest memory at boot in bytes, the same as in the saved VM.
    pub memory_bytes: u64,
    /// Upper limit for [`Request::Resize`], the same as in the saved VM's request.
    pub memory_max_bytes: u64,
    /// The saved memory: a file in memory, sealed against writing and shrinking (F_SEAL_WRITE,
    /// F_SEAL_SHRINK). The guest writes to a private copy.
    pub memory: FdIndex,
    /// The state saved beside the memory.
    pub state: FdIndex,
    /// Devices for exactly the slots filled at the save, of the same kinds.
    pub devices: Vec<(Slot, Device<FdIndex>)>,
    /// Pages of the memory the guest will soon write to, at most [`PAGE_RUNS_MAX`] runs. The VMM copies them
    /// before the guest runs.
    #[serde(default)]
    pub first_writes: Vec<PageRun>,
    /// Further pages the guest will soon read, at most [`PAGE_RUNS_MAX`] runs. The VMM makes KVM map them
    /// before the guest runs.
    #[serde(default)]
    pub first_reads: Vec<PageRun>,
}

/// Consecutive pages of 4 KiB in a saved memory. On the wire a list of the two numbers.
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

/// A message of the VMM without a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The guest opened a stream to a host port. The daemon accepts it within 30 s by dialling the vsock
    /// device's listener and writing `ACCEPT <number>\n`. The rest of that connection is the stream.
    GuestStream {
        /// Host port dialled.
        port: u32,
        /// Number of the stream, unique in the life of the VM. VMMs before version 7 send none.
        #[serde(default)]
        number: Option<u64>,
    },
    /// The guest has taken or given back everything the last [`Request::Resize`] asked for. After growth it
    /// may have more than that, left from an earlier resize to less. Sent once for each resize.
    Resized,
    /// The number of disks with writes waiting for space on the node has changed. Also sent to a client at
    /// hello while the number is not 0. Since version 2 of the protocol.
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
    /// Registers of the vCPU that stopped the VM, if there was one.
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
        /// The text after "Kernel panic - not syncing: ".
        message: String,
    },
    /// KVM_EXIT_SHUTDOWN: the guest faulted while handling a fault.
    TripleFault,
    /// KVM_EXIT_INTERNAL_ERROR.
    InternalError {
        /// KVM_INTERNAL_ERROR_*: 1 emulation, 2 simultaneous exceptions, 3 delivery, 4 unexpected exit.
        suberror: u32,
        /// Instruction bytes at the fault, if KVM gave them.
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
    /// Malformed requests and rings of the guest.
    pub faults: u64,
    /// Lost frames for the guest, because they did not fit its buffers.
    pub dropped_received: u64,
    /// Lost frames from the guest: malformed, or refused by the tap.
    pub dropped_sent: u64,
    /// Requests queued or in progress, by the guest's rings.
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
    /// The devices, in the slots' order; none from an older VMM.
    #[serde(default)]
    pub devices: Vec<DeviceStats>,
}
