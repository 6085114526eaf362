//! One program of a packet filter that the kernel has compiled, for as long as somebody holds it.
//!
//! The kernel keeps compiled programs together, in areas of 2 MiB that it fills with traps when it takes them (`bpf_prog_pack` of
//! kernel/bpf/core.c) and gives back with the last program in them. A guest's first program, a container's seccomp filter, would
//! have each clone of a template write all of such an area. With a program in the template, the area is a part of it, and a clone
//! writes the pages of its own programs.

use std::io;
use std::os::fd::OwnedFd;

use socket2::{Domain, SockFilter, Socket, Type};

/// `BPF_RET | BPF_K`: return the constant (linux/bpf_common.h).
const RETURN: u16 = 0x06;

/// Makes a socket that drops whatever it gets, and so holds a compiled program.
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
