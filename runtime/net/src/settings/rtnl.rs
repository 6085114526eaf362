//! Waits for the kernel's lock on network configuration (RTNL). Changes nothing itself.

use std::net::Ipv4Addr;

use rustix::{
    fd::OwnedFd,
    io::{self, Errno},
    net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt},
};

/// A socket for waiting on the lock without spinning.
#[derive(Debug)]
pub(super) struct Rtnl(OwnedFd);

impl Rtnl {
    /// Opens the socket.
    ///
    /// # Errors
    /// The process has no descriptor left, or the kernel no IPv4.
    pub(super) fn open() -> io::Result<Rtnl> {
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map(Rtnl)
    }

    /// Waits until the lock is free for a moment.
    ///
    /// The call leaves a multicast group without being a member. The kernel takes the lock for this
    /// (`setsockopt_needs_rtnl` in net/ipv4/ip_sockglue.c) and finds nothing to do. If a kernel uses another
    /// lock there, the call returns without waiting, and nothing else happens.
    ///
    /// # Errors
    /// The kernel answers anything else than "not a member of the group".
    pub(super) fn wait(&self) -> io::Result<()> {
        match sockopt::set_ip_drop_membership(&self.0, &Ipv4Addr::new(224, 0, 0, 1), &Ipv4Addr::LOCALHOST) {
            // The address belongs to no interface, for example before a namespace's loopback is up.
            Ok(()) | Err(Errno::ADDRNOTAVAIL | Errno::NODEV) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_as_often_as_it_is_asked_for() {
        let rtnl = Rtnl::open().unwrap();
        for _ in 0..3 {
            rtnl.wait().unwrap();
        }
    }
}
