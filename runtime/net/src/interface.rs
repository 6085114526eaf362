//! What a pod's network came to: plain values for the VM, the guest and the pod's status.

use std::{net::IpAddr, os::fd::OwnedFd, path::PathBuf};

/// A pod's network after setup.
#[derive(Debug)]
pub struct PodNetwork {
    /// Where the namespace is mounted.
    pub netns: PathBuf,
    /// In the order of the guest's network slots; at most 4.
    pub interfaces: Vec<PodInterface>,
    /// In an order in which they can be added: routes to the link first.
    pub routes: Vec<PodRoute>,
    /// The permanent ones only.
    pub neighbours: Vec<PodNeighbour>,
    /// The pod's addresses as the plugins reported them, primary first.
    pub ips: Vec<IpAddr>,
}

/// One interface of the pod.
#[derive(Debug)]
pub struct PodInterface {
    /// As the plugins named it ("eth0").
    pub name: String,
    /// The guest takes it as its own.
    pub mac: [u8; 6],
    /// In bytes, without the Ethernet header.
    pub mtu: u16,
    /// "10.88.0.5/16", "fd00::5/64"; IPv6 link-local ones are left to the guest's kernel.
    pub addresses: Vec<String>,
    /// The tap joined to this interface: non-blocking, one queue, frames behind a 12-byte virtio-net header.
    pub tap: OwnedFd,
}

/// One unicast route of the main table, connected subnets included. Fields hold rtnetlink's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRoute {
    /// The interface's name.
    pub interface: String,
    /// "0.0.0.0/0", "fd00::/64"; never empty.
    pub destination: String,
    /// Empty for a route to the link itself.
    pub gateway: String,
    /// 0 universe, 253 link.
    pub scope: u32,
    /// The gateway need not be in a connected subnet.
    pub onlink: bool,
    /// 0 if unset.
    pub metric: u32,
    /// 0 if unset.
    pub mtu: u32,
    /// Preferred source address, or empty.
    pub source: String,
}

/// One permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNeighbour {
    /// The interface's name.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC.
    pub mac: [u8; 6],
}
