//! The front end: the transport's view of a vsock device.
//!
//! Owns the device's configuration and the thread's life. Connections live in the thread while the device is
//! active, and here while it is paused.
//!
//! ```text
//!   idle ──activate──> running ──pause──> parked ──activate──> running
//!    ^                    │                  │
//!    └───────reset────────┴──────reset───────┘     (all streams are closed)
//! ```

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Queue, QueueT};

use super::dial_rules::{DialRules, HostPorts};
use super::mux::{FIRST_ID, GuestStream, Mux};
use super::snapshot::VsockSnapshot;
use super::worker::{Backend, NAME, Parked, failed};
use crate::virtio::ring::Faults;
use crate::virtio::worker::Worker;
use crate::virtio::{Activation, Counts, DeviceError, VirtioDevice};

/// Device id of a socket device (virtio 1.2 section 5.10.1).
const DEVICE_ID: u32 = 19;

/// Stream sockets are supported (section 5.10.3); the only kind here.
const VIRTIO_VSOCK_F_STREAM: u32 = 0;

/// rx, tx, event (section 5.10.2).
const QUEUE_SIZES: [u16; 3] = [256; 3];

/// Context ids reserved from guests: hypervisor, local, host, and "any".
const CID_FIRST: u32 = 3;
const CID_ANY: u32 = u32::MAX;

/// A virtio socket device with a listening unix socket as its host side.
pub struct Vsock {
    guest_cid: u32,
    listener: Arc<UnixListener>,
    host_ports: HostPorts,
    guest_stream: GuestStream,
    /// Number of the next stream. No number is used twice, not even after a reset.
    next_id: u64,
    running: Option<Worker<Parked>>,
    parked: Option<Mux>,
    /// The restored state, kept up to date while not active.
    state: VsockSnapshot,
    faults: Faults,
}

impl Vsock {
    /// Returns a device for the guest with context id `guest_cid` (3 or above).
    ///
    /// Host programs reach guest ports by dialling `listener` and writing `CONNECT <port>\n`. When the guest
    /// opens a stream to one of `host_ports`, `guest_stream` is called with the port and a number; it refuses
    /// the stream by returning false. Host programs accept the stream within 30 s by dialling `listener` and
    /// writing `ACCEPT <number>\n`. The function is called on the device's thread and must not block. Other
    /// ports are refused, and so are dials beyond the bounds of `dial_rules`.
    ///
    /// The process must ignore SIGPIPE, as Rust programs do, because host programs hang up at any time.
    ///
    /// # Errors
    /// If the context id is reserved, or the listener cannot be made non-blocking.
    pub fn new(
        guest_cid: u32,
        listener: UnixListener,
        host_ports: HostPorts,
        guest_stream: GuestStream,
    ) -> io::Result<Vsock> {
        if !(CID_FIRST..CID_ANY).contains(&guest_cid) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("vsock context id {guest_cid} is reserved"),
            ));
        }
        listener.set_nonblocking(true)?;
        Ok(Vsock {
            guest_cid,
            listener: Arc::new(listener),
            host_ports,
            guest_stream,
            next_id: FIRST_ID,
            running: None,
            parked: None,
            state: VsockSnapshot::default(),
            faults: Faults::default(),
        })
    }

    fn start(&mut self, mut activation: Activation) -> Result<Worker<Parked>, DeviceError> {
        let event_idx = activation.features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        for queue in &mut activation.queues {
            queue.set_event_idx(event_idx);
        }
        let mux = match self.parked.take() {
            Some(mux) => mux,
            None => Mux::new(
                self.guest_cid,
                self.listener.clone(),
                DialRules::new(self.host_ports.clone()),
                self.guest_stream.clone(),
                self.state.next_host_port,
                self.next_id,
            )
            .map_err(failed)?,
        };
        let backend = Backend::new(mux, activation, self.state.transport_reset, self.faults.clone())?;
        Worker::spawn(NAME, NAME, move |stop| {
            // The guest continues filling the ring while others want the processor, so a wake-up finds more.
            if let Err(error) = vmm_sched_batch::set_sched_batch() {
                tracing::warn!(%error, "vsock: the thread is as urgent as the vCPUs");
            }
            backend.run(&stop)
        })
    }

    /// Stops the thread, if there is one, and returns its remains.
    fn stop(&mut self) -> Option<Parked> {
        let parked = self.running.take()?.stop();
        self.state.next_host_port = parked.mux.table.next_host_port();
        self.state.transport_reset = parked.announce_reset;
        self.next_id = parked.mux.next_id;
        Some(parked)
    }
}

impl VirtioDevice for Vsock {
    fn device_id(&self) -> u32 {
        DEVICE_ID
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_VSOCK_F_STREAM
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn uses_queue_event(&self, _index: u16) -> bool {
        true
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        // struct virtio_vsock_config { le64 guest_cid; }
        let config = u64::from(self.guest_cid).to_le_bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (position, byte) in data.iter_mut().enumerate() {
            *byte = start.checked_add(position).and_then(|at| config.get(at).copied()).unwrap_or(0);
        }
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        if self.running.is_some() {
            return Err(failed("active already"));
        }
        self.running = Some(self.start(activation)?);
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.faults.counts()
    }

    fn request_queues(&self) -> &'static [usize] {
        // Packets to send. The other two have empty buffers for packets and events.
        &[1]
    }

    fn reset(&mut self) {
        self.stop();
        self.parked = None;
        // A driver starting afresh expects no connections.
        self.state.transport_reset = false;
    }

    fn pause(&mut self) -> Option<Vec<Queue>> {
        let parked = self.stop()?;
        self.parked = Some(parked.mux);
        Some(parked.queues)
    }

    fn save(&self) -> serde_json::Value {
        let transport_reset = self.parked.is_some() || self.state.transport_reset;
        serde_json::json!(VsockSnapshot { transport_reset, ..self.state })
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        if self.running.is_some() {
            return Err(failed("cannot be restored while active"));
        }
        self.state = serde::Deserialize::deserialize(state).map_err(failed)?;
        self.parked = None;
        Ok(())
    }
}

impl std::fmt::Debug for Vsock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Vsock")
            .field("guest_cid", &self.guest_cid)
            .field("running", &self.running)
            .field("parked", &self.parked)
            .field("state", &self.state)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}
