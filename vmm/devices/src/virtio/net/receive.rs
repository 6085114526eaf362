//! The driver's settings for receiving, and the tap's filter for them. Pure.
//!
//! | requested | passing frames |
//! |---|---|
//! | nothing, promiscuous mode, or more than a tap holds | every frame |
//! | a table | frames to the own address, to broadcast and to the table's addresses |
//! | a table and all multicast | also frames to every group |
//!
//! A filter may let more pass than requested, but never less: drivers check addresses themselves (virtio 1.2,
//! section 5.1.6.5).

use serde::{Deserialize, Serialize};

/// An Ethernet address.
pub(super) type Mac = [u8; 6];

const BROADCAST: Mac = [0xff; 6];

/// Most addresses in a table. A longer one is treated as a request for every frame: the tap knows groups
/// beyond the first by a hash of six bits, and so many groups would fill most of its 64 values.
pub(super) const TABLE_MAX: usize = 64;

/// Most addresses a tap compares exactly (FLT_EXACT_COUNT in Linux `drivers/net/tun.c`). A unicast address
/// after them would turn its filter off.
const EXACT_MAX: usize = 8;

/// A command of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Promiscuous(bool),
    AllMulticast(bool),
    /// Both lists in one.
    Table(Vec<Mac>),
    /// A table longer than [`TABLE_MAX`].
    LongTable,
    /// The interface's own address.
    Address(Mac),
}

/// A driver's settings since the device's reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveMode {
    /// The interface's present Ethernet address. A driver may have changed it.
    pub mac: [u8; 6],
    /// True if the driver wants every frame.
    pub promiscuous: bool,
    /// True if the driver wants every frame to a group.
    pub all_multicast: bool,
    /// Further wanted addresses, of both kinds. `None` for all addresses: the driver has set no table yet, or
    /// one too long for any filter.
    pub table: Option<Vec<[u8; 6]>>,
}

/// A tap's filter: frames to these addresses pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// Frames to any group pass, too.
    pub(super) all_multicast: bool,
    /// Unicast addresses, no more than the tap compares exactly, then groups.
    pub(super) addresses: Vec<Mac>,
}

/// Returns true if the address is a group or broadcast.
pub(super) fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

impl ReceiveMode {
    /// Starts without settings: a driver gets every frame unless it asks for less.
    pub(super) fn new(mac: Mac) -> ReceiveMode {
        ReceiveMode { mac, promiscuous: false, all_multicast: false, table: None }
    }

    /// Applies a command of the driver.
    pub(super) fn change(&mut self, command: Command) {
        match command {
            Command::Promiscuous(on) => self.promiscuous = on,
            Command::AllMulticast(on) => self.all_multicast = on,
            Command::Table(table) => self.table = Some(table),
            Command::LongTable => self.table = None,
            Command::Address(mac) => self.mac = mac,
        }
    }

    /// Returns the filter for the requested frames; `None` for every frame.
    pub(super) fn filter(&self) -> Option<Filter> {
        let table = self.table.as_deref().filter(|table| table.len() <= TABLE_MAX)?;
        if self.promiscuous {
            return None;
        }
        // The lists may mix both kinds. An address's own bit shows its kind.
        let (mut groups, mut addresses): (Vec<Mac>, Vec<Mac>) = table.iter().partition(|mac| is_group(**mac));
        addresses.push(self.mac);
        if self.all_multicast {
            groups.clear();
        }
        groups.push(BROADCAST);
        // Sorted, so the same settings give the same filter.
        for list in [&mut addresses, &mut groups] {
            list.sort_unstable();
            list.dedup();
        }
        // Broadcast sorts last, but the tap's hash is for the rare groups.
        groups.rotate_right(1);
        if addresses.len() > EXACT_MAX {
            return None;
        }
        addresses.append(&mut groups);
        Some(Filter { all_multicast: self.all_multicast, addresses })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 9];
    const GROUP: Mac = [0x33, 0x33, 0, 0, 0, 1];

    fn asked(table: &[Mac]) -> ReceiveMode {
        ReceiveMode { table: Some(table.to_vec()), ..ReceiveMode::new(OWN) }
    }

    #[test]
    fn a_driver_that_asks_for_nothing_gets_every_frame() {
        assert_eq!(ReceiveMode::new(OWN).filter(), None);
    }

    #[test]
    fn own_address_and_broadcast_always_pass() {
        let filter = asked(&[]).filter().unwrap();
        assert_eq!(filter, Filter { all_multicast: false, addresses: vec![OWN, BROADCAST] });
        let filter = asked(&[GROUP, OTHER, GROUP, OWN, BROADCAST]).filter().unwrap();
        assert_eq!(filter.addresses, [OWN, OTHER, BROADCAST, GROUP]);
    }

    #[test]
    fn a_changed_address_takes_the_place_of_the_first() {
        let mut receive = asked(&[GROUP]);
        receive.change(Command::Address(OTHER));
        assert_eq!(receive.filter().unwrap().addresses, [OTHER, BROADCAST, GROUP]);
    }

    #[test]
    fn promiscuous_drivers_get_every_frame_until_they_have_enough() {
        let mut receive = asked(&[GROUP]);
        receive.change(Command::Promiscuous(true));
        assert_eq!(receive.filter(), None);
        receive.change(Command::Promiscuous(false));
        assert!(receive.filter().is_some());
    }

    #[test]
    fn all_groups_pass_beside_the_unicast_addresses() {
        let mut receive = asked(&[GROUP, OTHER]);
        receive.change(Command::AllMulticast(true));
        let all = Filter { all_multicast: true, addresses: vec![OWN, OTHER, BROADCAST] };
        assert_eq!(receive.filter(), Some(all));
    }

    #[test]
    fn more_than_a_tap_can_hold_means_every_frame() {
        let many =
            |first: u8, count: u8| (0..count).map(|last| [first, 0, 0, 0, 1, last]).collect::<Vec<Mac>>();
        assert_eq!(asked(&many(2, 7)).filter().unwrap().addresses.len(), 9);
        assert_eq!(asked(&many(2, 8)).filter(), None);
        assert_eq!(asked(&many(3, 64)).filter().unwrap().addresses.len(), 66);
        assert_eq!(asked(&many(3, 65)).filter(), None);
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_passes(table in prop::collection::vec(any::<[u8; 6]>(), 0..80), all: bool) {
            let mut receive = asked(&table);
            receive.change(Command::AllMulticast(all));
            if let Some(filter) = receive.filter() {
                let unicast = filter.addresses.iter().take_while(|mac| !is_group(**mac)).count();
                prop_assert!(unicast <= EXACT_MAX);
                prop_assert!(filter.addresses[unicast..].iter().all(|mac| is_group(*mac)));
                for mac in table.into_iter().chain([OWN, BROADCAST]) {
                    prop_assert!(filter.addresses.contains(&mac) || (all && is_group(mac)));
                }
            }
        }
    }
}
