//! Pause, save, restore and reset; configuration space.

use std::io::{Read, Write};

use virtio_queue::Queue;

use super::super::packet::Op;
use super::super::table::HOST_PORT_FIRST;
use super::guest::{CID, Guest, data, packet, read_line, with_op};
use crate::virtio::VirtioDevice;

impl Guest {
    pub(super) fn device_pause(&mut self) -> Vec<Queue> {
        self.device.pause().unwrap()
    }
}

#[test]
fn connections_go_on_after_a_pause() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect(1024);
    let queues = guest.device_pause();
    assert!(guest.device.pause().is_none());
    host.write_all(b"while paused").unwrap();
    guest.send(data(header, 5), b"guest");
    guest.activate(queues);
    assert_eq!(guest.receive_bytes(12), b"while paused");
    let mut bytes = [0; 5];
    host.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"guest");
    assert!(guest.queues[2].take_used().is_none(), "no reset is announced");
}

#[test]
fn a_restored_guest_learns_first_that_its_connections_are_gone() {
    let mut guest = Guest::awake();
    let (mut old_host, old) = guest.connect(1024);
    let queues = guest.device_pause();
    let state = guest.device.save();
    guest.replace_device();
    assert_eq!(old_host.read(&mut [0]).unwrap(), 0, "the old device's streams are closed");

    let mut host = guest.dial(1024);
    guest.device.restore(&state).unwrap();
    guest.activate(queues);
    let (index, length) = guest.wait_for("the event", |guest| guest.queues[2].take_used());
    assert_eq!((index, length), (0, 4));
    // Until the driver has given the buffer back, new connections might be dropped as if they were old.
    guest.kick(1);
    assert!(guest.try_receive().is_none());
    guest.queues[2].offer(index);
    guest.kick(2);
    let request = guest.receive_op(Op::Request);
    assert_ne!(request.src_port, old.dst_port, "no port of an old connection comes again");
    guest.send(packet(Op::Response, 1024, request.src_port), &[]);
    assert!(read_line(&mut host).starts_with("OK "));
    // The old connection is a stray now.
    guest.send(with_op(old, Op::CreditRequest), &[]);
    guest.receive_op(Op::Reset);
}

#[test]
fn a_pause_before_the_guest_has_heard_announces_again() {
    let mut guest = Guest::awake();
    let queues = guest.device_pause();
    let state = guest.device.save();
    guest.replace_device();
    let _host = guest.dial(1024);
    guest.device.restore(&state).unwrap();
    guest.activate(queues);
    guest.wait_for("the event", |guest| guest.queues[2].take_used());
    let queues = guest.device_pause();
    assert!(guest.try_receive().is_none(), "no dialler is let in before");
    assert_eq!(guest.device.save()["transport_reset"], true);
    guest.activate(queues);
    assert_eq!(guest.wait_for("the event", |guest| guest.queues[2].take_used()), (1, 4));
}

#[test]
fn a_device_saved_before_its_driver_came_announces_nothing() {
    let mut guest = Guest::asleep(1 << 29);
    let state = guest.device.save();
    assert_eq!(state, serde_json::json!({ "next_host_port": HOST_PORT_FIRST, "transport_reset": false }));
    guest.device.restore(&state).unwrap();
    guest.give_rx(0..8);
    guest.start();
    guest.connect(1024);
}

#[test]
fn a_state_of_another_shape_is_refused() {
    let mut guest = Guest::asleep(0);
    for state in [serde_json::json!({}), serde_json::json!({ "next_host_port": -1, "transport_reset": true })]
    {
        assert_eq!(guest.device.restore(&state).unwrap_err().device, "vsock");
    }
}

#[test]
fn a_reset_closes_every_stream_and_the_driver_may_come_back() {
    let mut guest = Guest::awake();
    let (mut host, _) = guest.connect(1024);
    guest.device.reset();
    guest.device.reset();
    assert_eq!(host.read(&mut [0]).unwrap(), 0);
    assert_eq!(guest.device.save()["transport_reset"], false);
}

#[test]
fn configuration_space_is_the_context_id() {
    let guest = Guest::asleep(0);
    let mut config = [0xff; 12];
    guest.device.read_config(0, &mut config);
    assert_eq!(config, [CID as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut high = [0xff; 4];
    guest.device.read_config(4, &mut high);
    assert_eq!(high, [0; 4]);
    guest.device.read_config(u64::MAX - 1, &mut high);
    assert_eq!(high, [0; 4]);
    assert_eq!((guest.device.device_id(), guest.device.queue_sizes().len()), (19, 3));
}
