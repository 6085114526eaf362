//! The control queue: commands, their answers, and the tap's filters.

use proptest::prelude::*;
use virtio_bindings::virtio_net as spec;

use super::{BUFFER, Bench, MAC, Settings, bench, bench_with, net, net_with};
use crate::virtio::VirtioDevice as _;
use crate::virtio::net::filter::CHANGES_IN_A_ROW;
use crate::virtio::net::receive::Filter;
use crate::virtio::testing::{Driver, INDIRECT, Line, NEXT, WRITE, activation, memory};

pub(super) const CONTROL: u64 =
    1 << spec::VIRTIO_NET_F_CTRL_VQ | 1 << spec::VIRTIO_NET_F_CTRL_RX | 1 << spec::VIRTIO_NET_F_CTRL_MAC_ADDR;

const OK: u8 = 0;
const ERR: u8 = 1;
/// No answer was written.
const NONE: u8 = 0xaa;

/// Where answers go.
const ACK: u64 = BUFFER + 0x8000;

const BROADCAST: [u8; 6] = [0xff; 6];
const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 9];

const PROMISCUOUS: [u8; 3] = [0, 0, 1];
const ALL_MULTICAST: [u8; 3] = [0, 1, 1];

/// Returns the command for setting a table.
fn table(unicast: &[[u8; 6]], groups: &[[u8; 6]]) -> Vec<u8> {
    let list = |list: &[[u8; 6]]| [&(list.len() as u32).to_le_bytes()[..], list.as_flattened()].concat();
    [vec![1, 0], list(unicast), list(groups)].concat()
}

/// Returns the command for setting the interface's address.
fn address(mac: [u8; 6]) -> Vec<u8> {
    [&[1, 1][..], &mac].concat()
}

fn passing(addresses: &[[u8; 6]]) -> Option<Filter> {
    Some(Filter { all_multicast: false, addresses: addresses.to_vec() })
}

impl Bench {
    /// Sends a command in one piece. Returns the answer.
    fn command(&mut self, command: &[u8]) -> u8 {
        self.pieces(&[command])
    }

    /// Sends a command in pieces.
    fn pieces(&mut self, pieces: &[&[u8]]) -> u8 {
        self.control.write(ACK, &[NONE]);
        let mut at = BUFFER;
        let mut buffers = Vec::new();
        for piece in pieces {
            self.control.write(at, piece);
            buffers.push((at, piece.len() as u32, 0));
            at += piece.len() as u64;
        }
        self.control.put(&[&buffers[..], &[(ACK, 1, WRITE)]].concat());
        self.serve();
        let used = self.control.take_used();
        let [answer] = self.control.read(ACK);
        assert_eq!((used.len(), used[0].1), (1, 1));
        answer
    }

    fn serve(&mut self) {
        self.worker.control_ready = true;
        self.worker.control();
    }
}

#[test]
fn until_a_table_is_set_the_tap_is_left_alone() {
    let mut bench = bench(CONTROL);
    assert_eq!(bench.command(&[0, 0, 0]), OK);
    assert_eq!(bench.command(&ALL_MULTICAST), OK);
    assert_eq!(bench.command(&address(OTHER)), OK);
    assert!(bench.settings.take().is_empty());
}

#[test]
fn the_tap_passes_the_table_the_own_address_and_broadcast() {
    let mut bench = bench(CONTROL);
    let command = table(&[OTHER], &[GROUP]);
    // A Linux driver's pieces, and others.
    assert_eq!(bench.pieces(&[&command[..2], &command[2..12], &command[12..]]), OK);
    assert_eq!(bench.settings.take(), [passing(&[MAC, OTHER, BROADCAST, GROUP])]);
    assert_eq!(bench.pieces(&[&command[..1], &command[1..5], &command[5..15], &command[15..]]), OK);
    assert!(bench.settings.take().is_empty(), "nothing changed");
    assert_eq!(bench.command(&address(OTHER)), OK);
    assert_eq!(bench.settings.take(), [passing(&[OTHER, BROADCAST, GROUP])]);
}

#[test]
fn promiscuous_mode_turns_the_filter_off_and_all_multicast_passes_every_group() {
    let mut bench = bench(CONTROL);
    assert_eq!(bench.command(&table(&[], &[GROUP])), OK);
    assert_eq!(bench.command(&PROMISCUOUS), OK);
    assert_eq!(bench.command(&ALL_MULTICAST), OK);
    assert_eq!(bench.command(&[0, 0, 0]), OK);
    let own = vec![MAC, BROADCAST];
    let all = Some(Filter { all_multicast: true, addresses: own });
    assert_eq!(bench.settings.take(), [passing(&[MAC, BROADCAST, GROUP]), None, all]);
}

#[test]
fn a_table_beyond_what_a_filter_holds_passes_every_frame() {
    let mut bench = bench(CONTROL);
    assert_eq!(bench.command(&table(&[], &[GROUP])), OK);
    assert_eq!(bench.command(&table(&[OTHER; 40], &[GROUP; 25])), OK);
    assert_eq!(bench.settings.take(), [passing(&[MAC, BROADCAST, GROUP]), None]);
    assert_eq!(bench.command(&table(&[OTHER; 40], &[GROUP; 24])), OK);
    assert_eq!(bench.settings.take(), [passing(&[MAC, OTHER, BROADCAST, GROUP])]);
    // As many as a chain can hold, in memory with the same content over and over.
    let indirect = BUFFER + 0x1_0000;
    let count = 1020u32 * 0x1_0000 / 6;
    bench.control.write(BUFFER, &[&[1, 0][..], &count.to_le_bytes()].concat());
    bench.control.descriptor(indirect, 0, (BUFFER, 6, NEXT, 1));
    for index in 1..=1020 {
        bench.control.descriptor(indirect, index, (BUFFER, 0x1_0000, NEXT, index + 1));
    }
    bench.control.descriptor(indirect, 1021, (ACK, 1, WRITE, 0));
    bench.control.put(&[(indirect, 16 * 1022, INDIRECT)]);
    bench.serve();
    assert_eq!((bench.control.take_used().len(), bench.control.read(ACK)), (1, [OK]));
    assert_eq!(bench.settings.take(), [None]);
}

#[test]
fn commands_that_make_no_sense_are_answered_with_an_error_and_change_nothing() {
    let mut bench = bench(CONTROL);
    assert_eq!(bench.command(&table(&[], &[GROUP])), OK);
    bench.settings.take();
    let huge = [&[1, 0][..], &u32::MAX.to_le_bytes(), &[0; 60]].concat();
    let more = [table(&[], &[GROUP]), vec![0]].concat();
    let short = table(&[OTHER], &[GROUP]);
    let unknown: [&[u8]; 5] = [&[0, 2, 1], &[0, 6, 1], &[1, 2], &[2, 0, 1, 0], &[255, 255]];
    let wrong: [&[u8]; 9] = [
        &[0],
        &[0, 0],
        &[0, 0, 2],
        &[0, 0, 1, 1],
        &[1, 0, 0, 0],
        &huge,
        &more,
        &short[..short.len() - 1],
        // The second list's count is missing.
        &short[..12],
    ];
    for command in unknown.into_iter().chain(wrong) {
        assert_eq!(bench.command(command), ERR, "{command:?}");
    }
    for mac in [GROUP, BROADCAST, [0; 6]] {
        assert_eq!(bench.command(&address(mac)), ERR, "{mac:?}");
    }
    assert!(bench.settings.take().is_empty());
}

#[test]
fn commands_of_features_that_were_not_chosen_are_refused() {
    let mut bench = bench(1 << spec::VIRTIO_NET_F_CTRL_VQ);
    for command in [PROMISCUOUS.to_vec(), ALL_MULTICAST.to_vec(), table(&[], &[]), address(OTHER)] {
        assert_eq!(bench.command(&command), ERR);
    }
    assert!(bench.settings.take().is_empty());
}

#[test]
fn a_driver_without_the_queue_gets_every_frame_and_no_answer() {
    let (net, _wire, settings) = net_with(Settings::default());
    let memory = memory();
    let [rx, tx] = [0, 1].map(|index| Driver::new(&memory, index));
    let unused = virtio_queue::Queue::try_from(virtio_queue::QueueState {
        max_size: 16,
        size: 16,
        ..virtio_queue::QueueState::default()
    });
    let queues = vec![rx.queue(), tx.queue(), unused.unwrap()];
    let (active, _kicks) = activation(&memory, queues, &Line::new(), 0);
    let mut worker = net.back_end(active).unwrap();
    worker.control();
    assert!(!worker.control_ready && settings.take().is_empty());
}

#[test]
fn an_answer_is_written_where_the_chain_allows() {
    let mut bench = bench(CONTROL);
    bench.control.write(BUFFER, &PROMISCUOUS);
    let answers = |bench: &mut Bench| {
        bench.serve();
        let written: Vec<u32> = bench.control.take_used().into_iter().map(|(_, written)| written).collect();
        (written, bench.control.read::<2>(ACK))
    };
    bench.control.write(ACK, &[NONE; 2]);
    // No place at all, a place outside memory, and one in an endless chain.
    bench.control.put(&[(BUFFER, 3, 0)]);
    bench.control.put(&[(BUFFER, 3, 0), (u64::MAX, 1, WRITE)]);
    bench.control.descriptor(bench.control.table(), 14, (ACK, 1, WRITE | NEXT, 14));
    bench.control.offer(14);
    assert_eq!(answers(&mut bench), (vec![0, 0, 0], [NONE; 2]));
    // A command outside memory, none at all, and one after its answer.
    bench.control.put(&[(u64::MAX, 3, 0), (ACK, 1, WRITE)]);
    bench.control.put(&[(ACK + 1, 1, WRITE)]);
    assert_eq!(answers(&mut bench), (vec![1, 1], [ERR; 2]));
    bench.control.write(ACK, &[NONE; 2]);
    bench.control.put(&[(ACK, 2, WRITE), (BUFFER, 3, 0)]);
    assert_eq!(answers(&mut bench), (vec![1], [ERR, NONE]));
    assert!(bench.settings.take().is_empty());
}

#[test]
fn a_guest_that_changes_its_filter_without_end_gets_every_frame() {
    let mut bench = bench(CONTROL);
    for last in 0..200 {
        assert_eq!(bench.command(&table(&[], &[[0x33, 0x33, 0, 0, 0, last]])), OK);
    }
    let set = bench.settings.take();
    let row = CHANGES_IN_A_ROW as usize;
    assert!(set[..row].iter().all(Option::is_some));
    // The clock runs: a second of it may have passed, and allowed another.
    assert!(set[row].is_none() && set.len() < row + 30, "{}", set.len());
}

#[test]
fn a_tap_that_refuses_is_asked_no_more() {
    let mut bench = bench_with(CONTROL, Settings { refuses: true, ..Settings::default() });
    assert_eq!(bench.command(&table(&[], &[GROUP])), OK);
    assert_eq!(bench.command(&table(&[], &[])), OK);
    assert_eq!(bench.settings.take(), [passing(&[MAC, BROADCAST, GROUP]), None]);
}

#[test]
fn the_configuration_shows_the_address_that_the_driver_set() {
    let (mut net, _wire) = net();
    let memory = memory();
    let [rx, tx, mut control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let line = Line::new();
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    let (active, kicks) = activation(&memory, queues, &line, CONTROL);
    net.activate(active).unwrap();
    control.write(BUFFER, &address(OTHER));
    control.put(&[(BUFFER, 8, 0), (ACK, 1, WRITE)]);
    kicks[2].write(1).unwrap();
    control.wait_used(&line, 1);
    net.pause().unwrap();
    let mut mac = [0; 6];
    net.read_config(0, &mut mac);
    assert_eq!(mac, OTHER);
    net.reset();
    net.read_config(0, &mut mac);
    assert_eq!(mac, MAC);
}

#[test]
fn a_command_is_answered_before_the_notification_ends_though_the_filter_has_to_wait() {
    let (mut net, _wire, settings) = net_with(Settings::default());
    let memory = memory();
    let [rx, tx, mut control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    let (active, _kicks) = activation(&memory, queues, &Line::new(), CONTROL);
    net.activate(active).unwrap();
    let others = settings.others.lock().unwrap();
    // The first filter waits by the second command at the latest.
    for (mac, group) in [(OTHER, GROUP), (MAC, GROUP), (OTHER, BROADCAST)] {
        for command in [address(mac), table(&[], &[group])] {
            control.write(BUFFER, &command);
            control.put(&[(BUFFER, command.len() as u32, 0), (ACK, 1, WRITE)]);
            net.notify(2);
            assert_eq!((control.take_used().len(), control.read(ACK)), (1, [OK]));
        }
        let mut shown = [0; 6];
        net.read_config(0, &mut shown);
        assert_eq!(shown, mac);
    }
    drop(others);
    // The interface's thread sets the last wanted filter, or is about to as it is stopped.
    assert_eq!(net.pause().unwrap()[2].state().next_used, 6);
    let [rx, tx, control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    net.activate(activation(&memory, queues, &Line::new(), CONTROL).0).unwrap();
    assert_eq!(settings.take().pop(), Some(passing(&[OTHER, BROADCAST])));
}

#[test]
fn a_paused_interface_carries_out_no_command() {
    let (mut net, _wire) = net();
    let memory = memory();
    let [rx, tx, mut control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    net.activate(activation(&memory, queues, &Line::new(), CONTROL).0).unwrap();
    let queues = net.pause().unwrap();
    control.write(BUFFER, &address(OTHER));
    control.put(&[(BUFFER, 8, 0), (ACK, 1, WRITE)]);
    net.notify(2);
    assert!(control.take_used().is_empty());
    // There is no second notification of it.
    let line = Line::new();
    net.activate(activation(&memory, queues, &line, CONTROL).0).unwrap();
    assert_eq!(control.wait_used(&line, 1).len(), 1);
}

#[test]
fn a_restored_interface_keeps_its_filter_and_one_after_a_reset_has_none() {
    let (mut first, _wire, settings) = net_with(Settings::default());
    let memory = memory();
    let [rx, tx, mut control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let line = Line::new();
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    let (active, kicks) = activation(&memory, queues, &line, CONTROL);
    first.activate(active).unwrap();
    let command = table(&[], &[GROUP]);
    control.write(BUFFER, &command);
    control.put(&[(BUFFER, command.len() as u32, 0), (ACK, 1, WRITE)]);
    kicks[2].write(1).unwrap();
    control.wait_used(&line, 1);
    let queues = first.pause().unwrap();
    assert_eq!((queues.len(), settings.take()), (3, vec![passing(&[MAC, BROADCAST, GROUP])]));

    let (mut second, _wire, settings) = net_with(Settings::default());
    second.restore(&first.save()).unwrap();
    assert_eq!(second.save(), first.save());
    let (active, _kicks) = activation(&memory, queues, &line, CONTROL);
    second.activate(active).unwrap();
    assert_eq!(settings.take(), [passing(&[MAC, BROADCAST, GROUP])]);
    second.reset();
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    let (active, _kicks) = activation(&memory, queues, &line, CONTROL);
    second.activate(active).unwrap();
    assert_eq!(settings.take()[..1], [None]);
}

proptest! {
    #[test]
    fn whatever_a_driver_says_is_answered(
        data in prop::collection::vec(any::<u8>(), 0..40),
        class in 0u8..3,
        command in 0u8..3,
        counts in any::<[u8; 2]>(),
    ) {
        let mut bench = bench(CONTROL);
        let mut whole = [&[class, command][..], &data].concat();
        // Counts that may fit.
        for (at, count) in [2, 12].into_iter().zip(counts) {
            if whole.len() >= at + 4 && count < 128 {
                whole[at..at + 4].copy_from_slice(&u32::from(count / 32).to_le_bytes());
            }
        }
        let cut = whole.len() / 2;
        let answer = bench.pieces(&[&whole[..cut], &whole[cut..]]);
        prop_assert!(answer == OK || answer == ERR);
        for filter in bench.settings.take().into_iter().flatten() {
            prop_assert!(filter.addresses.contains(&BROADCAST));
        }
    }
}
