//! A pod's network after setup, as plain values for the VM, the guest and the pod's status. Owns types only.

use std::{net::IpAddr, os::fd::OwnedFd, path::PathBuf};

use crate::PodSettings;

/// A pod's network after setup.
#[derive(Debug)]
pub struct PodNetwork {
    /// The path of the namespace's mount.
    pub netns: PathBuf,
    /// The interfaces, in the order of the guest's network slots; at most 4.
    pub interfaces: Vec<PodInterface>,
    /// The routes, ordered for adding them one by one: routes to the link first.
    pub routes: Vec<PodRoute>,
    /// The permanent neighbours.
    pub neighbours: Vec<PodNeighbour>,
    /// The pod's addresses as the plugins reported them, primary first.
    pub ips: Vec<IpAddr>,
    /// The settings left by plugins in the namespace.
    pub settings: PodSettings,
}

/// One interface of the pod.
#[derive(Debug)]
pub struct PodInterface {
    /// The plugins' name for the interface ("eth0").
    pub name: String,
    /// The MAC, copied to the guest's interface.
    pub mac: [u8; 6],
    /// The MTU in bytes, without the Ethernet header.
    pub mtu: u16,
    /// Addresses ("10.88.0.5/16", "fd00::5/64"); IPv6 link-local ones are left to the guest's kernel.
    pub addresses: Vec<String>,
    /// The tap joined to this interface: non-blocking, one queue, frames behind a 12-byte virtio-net header.
    pub tap: OwnedFd,
}

/// One unicast route of the main table, connected subnets included. Fields hold rtnetlink's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRoute {
    /// The interface's name.
    pub interface: String,
    /// The destination ("0.0.0.0/0", "fd00::/64"); never empty.
    pub destination: String,
    /// The gateway; empty for a route to the link itself.
    pub gateway: String,
    /// The scope: 0 universe, 253 link.
    pub scope: u32,
    /// Whether the gateway need not be in a connected subnet.
    pub onlink: bool,
    /// The metric; 0 if unset.
    pub metric: u32,
    /// The route's MTU; 0 if unset.
    pub mtu: u32,
    /// The maximal TCP segment announced to peers, in bytes; 0 if unset.
    pub advmss: u32,
    /// Preferred source address, or empty.
    pub source: String,
}

/// One permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNeighbour {
    /// The interface's name.
    pub interface: String,
    /// The neighbour's address.
    pub address: IpAddr,
    /// The neighbour's MAC.
    pub mac: [u8; 6],
}
