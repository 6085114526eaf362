//! Holds one program of a packet filter, compiled by the kernel.
//!
//! The kernel packs compiled programs into areas of 2 MiB. It fills an area with traps when it allocates it
//! (`bpf_prog_pack` of kernel/bpf/core.c) and frees it with its last program. Without this module a guest's
//! first program would be a container's seccomp filter, and each clone of a template would write all of such
//! an area. With a program in the template, the area belongs to the template, and a clone only writes the
//! pages of its own programs.

use std::io;
use std::os::fd::OwnedFd;

use socket2::{Domain, SockFilter, Socket, Type};

/// `BPF_RET | BPF_K`: return the constant (linux/bpf_common.h).
const RETURN: u16 = 0x06;

/// Makes a socket with a filter. It drops every packet, and keeps the compiled program alive.
pub(crate) fn hold() -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    socket.attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)])?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn the_socket_has_a_filter_that_takes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let held = UnixDatagram::from(hold().unwrap());
        let address = socket2::SockAddr::unix(&path).unwrap();
        socket2::SockRef::from(&held).bind(&address).unwrap();
        held.set_nonblocking(true).unwrap();
        let sent = UnixDatagram::unbound().unwrap().send_to(b"x", &path);
        assert_eq!(held.recv(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock, "{sent:?}");
    }
}
