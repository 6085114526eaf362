//! The interface's front end: its features and configuration for the driver, and the life of its worker.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net as spec;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::Queue;

use super::commands::Commands;
use super::control::Control;
use super::drops::Drops;
use super::filter::TapFilter;
use super::offloads::TapOffloads;
use super::receive::ReceiveMode;
use super::rx::Rx;
use super::snapshot::NetSnapshot;
use super::tap::{Kernel, TapSettings};
use super::tx::Tx;
use super::worker::NetWorker;
use super::{ETHERNET_BYTES, HEADER_BYTES, MERGED_BYTES_MAX, tap};
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::worker::Worker;
use crate::virtio::{Activation, Counts, DeviceError, VirtioDevice, front};

/// The device's name in errors and thread names.
const DEVICE: &str = "net";

/// Bytes of `struct virtio_net_config` up to the MTU (section 5.1.4).
const CONFIG_BYTES: usize = 12;

/// Number of the control queue.
const CONTROL_QUEUE: u16 = 2;

/// Entries of the control queue. Drivers wait for each answer.
const CONTROL_ENTRIES: u16 = 16;

/// Interfaces made so far, to number their threads.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A network interface.
#[derive(Debug)]
pub struct Net {
    pub(super) tap: Arc<OwnedFd>,
    settings: Arc<dyn TapSettings>,
    /// The address after a reset; `commands` has the present one.
    mac: [u8; 6],
    mtu: u16,
    commands: Arc<Commands>,
    filter: Arc<Mutex<TapFilter>>,
    offloads: Mutex<TapOffloads>,
    name: String,
    drops: Drops,
    faults: Faults,
    worker: Option<Worker<Vec<Queue>>>,
}

impl Net {
    /// Returns an interface with the address `mac` over `tap`. The tap was opened with IFF_TAP, IFF_NO_PI and
    /// IFF_VNET_HDR. `mtu` is the largest packet in bytes, without the Ethernet header.
    pub fn new(tap: OwnedFd, mac: [u8; 6], mtu: u16) -> io::Result<Net> {
        tap::prepare(tap.as_fd())?;
        Ok(Net::over(tap, mac, mtu, Arc::new(Kernel)))
    }

    /// Returns an interface over anything that moves packets, header first, and never blocks.
    pub(super) fn over(link: OwnedFd, mac: [u8; 6], mtu: u16, settings: Arc<dyn TapSettings>) -> Net {
        Net {
            tap: Arc::new(link),
            settings,
            mac,
            mtu,
            commands: Arc::new(Commands::new(mac)),
            filter: Arc::new(Mutex::new(TapFilter::new())),
            offloads: Mutex::new(TapOffloads::new()),
            name: format!("{DEVICE}-{}", COUNT.fetch_add(1, Ordering::Relaxed)),
            drops: Drops::default(),
            faults: Faults::default(),
            worker: None,
        }
    }

    pub(super) fn back_end(&self, activation: Activation) -> Result<NetWorker, DeviceError> {
        let Activation { memory, queues, queue_events, interrupt, features } = activation;
        let ([rx, tx, control], [rx_event, tx_event, control_event]) =
            front::queues(DEVICE, queues, queue_events)?;
        let rx = Ring::open(DEVICE, rx, &memory, &self.faults)?;
        let tx = Ring::open(DEVICE, tx, &memory, &self.faults)?;
        let control = if features & (1 << spec::VIRTIO_NET_F_CTRL_VQ) == 0 {
            Control::unused(control)
        } else {
            Control::new(Ring::open(DEVICE, control, &memory, &self.faults)?, features, self.faults.clone())
        };
        let mut offloads = self.offloads.lock().unwrap_or_else(PoisonError::into_inner);
        offloads
            .set(&*self.settings, self.tap.as_fd(), features, Instant::now())
            .map_err(|error| DeviceError { device: DEVICE, message: format!("tap offloads: {error}") })?;
        drop(offloads);
        // The settings may be a saved VM's, or a reset may have cleared them.
        let wanted = self.commands.receive().filter();
        self.filter().settle(wanted, &*self.settings, self.tap.as_fd(), Instant::now());
        let merge = features & (1 << spec::VIRTIO_NET_F_MRG_RXBUF) != 0;
        let segments = 1 << spec::VIRTIO_NET_F_GUEST_TSO4 | 1 << spec::VIRTIO_NET_F_GUEST_TSO6;
        let frame_bytes_max = if features & segments == 0 {
            u64::from(HEADER_BYTES) + ETHERNET_BYTES + u64::from(self.mtu)
        } else {
            MERGED_BYTES_MAX
        };
        let failed = |error| DeviceError { device: DEVICE, message: format!("queue event: {error}") };
        let thread = control_event.try_clone().map_err(failed)?;
        self.commands.begin(control, interrupt.clone(), thread);
        Ok(NetWorker {
            tap: self.tap.clone(),
            rx: Rx::new(rx, merge, frame_bytes_max),
            tx: Tx::new(tx),
            rx_event,
            tx_event,
            commands: self.commands.clone(),
            control_event,
            settings: self.settings.clone(),
            filter: self.filter.clone(),
            interrupt,
            drops: self.drops.clone(),
            // After a pause there may be work without a new notification.
            tap_ready: true,
            starved: false,
            tx_ready: true,
            control_ready: true,
        })
    }

    fn filter(&self) -> MutexGuard<'_, TapFilter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> NetSnapshot {
        NetSnapshot { mac: self.mac, mtu: self.mtu, receive: self.commands.receive().clone() }
    }
}

impl VirtioDevice for Net {
    fn device_id(&self) -> u32 {
        VIRTIO_ID_NET
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << spec::VIRTIO_NET_F_MAC
            | 1 << spec::VIRTIO_NET_F_MTU
            | 1 << spec::VIRTIO_NET_F_STATUS
            | 1 << spec::VIRTIO_NET_F_MRG_RXBUF
            | 1 << spec::VIRTIO_NET_F_CSUM
            | 1 << spec::VIRTIO_NET_F_GUEST_CSUM
            | 1 << spec::VIRTIO_NET_F_HOST_TSO4
            | 1 << spec::VIRTIO_NET_F_HOST_TSO6
            | 1 << spec::VIRTIO_NET_F_GUEST_TSO4
            | 1 << spec::VIRTIO_NET_F_GUEST_TSO6
            | 1 << spec::VIRTIO_NET_F_CTRL_VQ
            | 1 << spec::VIRTIO_NET_F_CTRL_RX
            // Without it, a driver would change its address but not the filter.
            | 1 << spec::VIRTIO_NET_F_CTRL_MAC_ADDR
    }

    fn queue_sizes(&self) -> &[u16] {
        &[256, 256, CONTROL_ENTRIES]
    }

    fn uses_queue_event(&self, index: u16) -> bool {
        index != CONTROL_QUEUE
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        let mut config = [0; CONFIG_BYTES];
        config[..6].copy_from_slice(&self.commands.receive().mac);
        config[6..8].copy_from_slice(&(spec::VIRTIO_NET_S_LINK_UP as u16).to_le_bytes());
        config[8..10].copy_from_slice(&1u16.to_le_bytes());
        config[10..].copy_from_slice(&self.mtu.to_le_bytes());
        front::read_config(&config, offset, data);
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        self.worker = None;
        let back_end = self.back_end(activation)?;
        let worker = Worker::spawn(DEVICE, &self.name, move |stop| {
            // The thread only passes bytes on. It must not preempt the guest or the node's kernel for each
            // frame.
            if let Err(error) = vmm_sched_batch::set_sched_batch() {
                tracing::warn!(%error, "an interface's thread keeps the ordinary scheduling policy");
            }
            back_end.run(stop)
        });
        if worker.is_err() {
            self.commands.end();
        }
        self.worker = Some(worker?);
        Ok(())
    }

    fn notify(&mut self, index: u16) {
        if index == CONTROL_QUEUE {
            self.commands.notified();
        }
    }

    fn counts(&self) -> Counts {
        self.drops.counts(self.faults.total())
    }

    fn request_queues(&self) -> &'static [usize] {
        // Frames to send, and commands. The first queue has empty buffers.
        &[1, 2]
    }

    fn reset(&mut self) {
        self.worker = None;
        self.commands.end();
        *self.commands.receive() = ReceiveMode::new(self.mac);
    }

    fn pause(&mut self) -> Option<Vec<Queue>> {
        let mut queues = self.worker.take()?.stop();
        queues.extend(self.commands.end());
        Some(queues)
    }

    fn save(&self) -> serde_json::Value {
        serde_json::json!(self.state())
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        let saved: NetSnapshot = front::read_state(DEVICE, state)?;
        // The receive settings are the driver's. The rest must be the same as now.
        let here = NetSnapshot { receive: saved.receive.clone(), ..self.state() };
        front::check_state(DEVICE, state, &here)?;
        *self.commands.receive() = saved.receive;
        Ok(())
    }
}
