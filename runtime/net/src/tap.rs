//! Opens a tap in the calling thread's network namespace. Owns the crate's only unsafe code: two ioctls that
//! neither nix nor rustix offers as safe functions. Knows nothing of pods or netlink.

#![allow(unsafe_code)]

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use nix::libc;

use runtime_fail_points::{Point, pass};

use crate::NetError;

/// Size of `struct virtio_net_hdr_v1` (virtio 1.2, 5.1.6), the header before every frame.
pub(crate) const VNET_HEADER_BYTES: i32 = 12;

// linux/if_tun.h. TUNSETIFF's number says `int`, but its argument is a `struct ifreq`.
nix::ioctl_readwrite_bad!(
    tun_set_iff,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);
nix::ioctl_write_ptr!(tun_set_vnet_header_size, b'T', 216, libc::c_int);

/// Creates a new tap named `name` and returns the descriptor for its frames: one queue, non-blocking, a
/// virtio-net header of 12 bytes before each frame. The tap ends with the descriptor.
///
/// The offloads stay off: the VMM sets them when its guest has reported its own.
///
/// # Errors
/// If the name is taken or too long, or the host's kernel has no taps.
pub(crate) fn create(name: &str) -> Result<OwnedFd, NetError> {
    let failed = |action| move |source| NetError::Tap { name: name.to_owned(), action, source };
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(failed("open /dev/net/tun"))?;
    let mut request = request(name).ok_or_else(|| failed("name it")(io::ErrorKind::InvalidInput.into()))?;
    pass(Point::TapMake).map_err(failed("create it"))?;
    set_iff(&tun, &mut request).map_err(failed("create it"))?;
    set_header_size(&tun).map_err(failed("set its header size"))?;
    Ok(tun.into())
}

/// Builds the `ifreq` for a new single-queue tap. Returns `None` if the name does not fit with its final
/// zero.
fn request(name: &str) -> Option<libc::ifreq> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
    let mut ifr_name = [0; libc::IFNAMSIZ];
    if name.is_empty() || name.len() >= ifr_name.len() || !name.is_ascii() {
        return None;
    }
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    // The flags are bits of a C short; IFF_TUN_EXCL is its sign bit.
    let ifru_flags = (flags & 0xffff) as libc::c_short;
    Some(libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags } })
}

fn set_iff(tun: &File, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `tun` is open, and `request` is a whole, initialised ifreq. We borrow it exclusively, and it
    // outlives the call. The kernel reads it, writes the name back and touches nothing past it.
    unsafe { tun_set_iff(tun.as_raw_fd(), request) }?;
    Ok(())
}

fn set_header_size(tun: &File) -> io::Result<()> {
    // SAFETY: `tun` is open, and the kernel reads one int from a `'static` constant.
    unsafe { tun_set_vnet_header_size(tun.as_raw_fd(), &VNET_HEADER_BYTES) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_sixteen_bytes_is_refused() {
        assert!(request("0123456789abcde").is_some());
        assert!(request("0123456789abcdef").is_none());
        assert!(request("").is_none());
    }
}
