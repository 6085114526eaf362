//! Waits for the lock under which the kernel changes its networks (RTNL). Changes none itself.

use std::net::Ipv4Addr;

use rustix::{
    fd::OwnedFd,
    io::{self, Errno},
    net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt},
};

/// A socket by which a thread waits for the lock asleep.
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

    /// Returns in a moment in which the lock was free.
    ///
    /// The socket leaves a group that it is not in, for which the kernel takes the lock (`setsockopt_needs_rtnl` in net/ipv4/ip_sockglue.c)
    /// and finds nothing to do. A kernel that takes another lock there has not waited, and that is all.
    ///
    /// # Errors
    /// The kernel answers something else than that the socket is in no such group.
    pub(super) fn wait(&self) -> io::Result<()> {
        match sockopt::set_ip_drop_membership(&self.0, &Ipv4Addr::new(224, 0, 0, 1), &Ipv4Addr::LOCALHOST) {
            // Where the address is no interface's, as before a namespace's loopback is up.
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
