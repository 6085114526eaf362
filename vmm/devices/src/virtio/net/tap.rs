//! The tap's settings (Linux `include/uapi/linux/if_tun.h`). Frames pass elsewhere.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use virtio_bindings::virtio_net as spec;

use super::HEADER_BYTES;

nix::ioctl_write_int!(set_offload, b'T', 208);
nix::ioctl_write_ptr!(set_header_bytes, b'T', 216, libc::c_int);

/// Offloads that the guest takes from the tap: frames without a checksum, and merged TCP segments.
const TUN_F_CSUM: u32 = 1;
const TUN_F_TSO4: u32 = 2;
const TUN_F_TSO6: u32 = 4;

/// Makes reads and writes return at once, and frames carry our header. The tap must have been opened
/// with IFF_TAP, IFF_NO_PI and IFF_VNET_HDR.
pub(super) fn prepare(tap: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(tap, FcntlArg::F_GETFL)?);
    fcntl(tap, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let bytes = HEADER_BYTES as libc::c_int;
    // SAFETY: the descriptor is open and the argument a valid pointer to an int, which TUNSETVNETHDRSZ reads.
    unsafe { set_header_bytes(tap.as_raw_fd(), &raw const bytes) }?;
    Ok(())
}

/// Sets on the tap which frames the driver can take, by the features that it chose.
pub(super) fn offload(tap: BorrowedFd<'_>, features: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open; TUNSETOFFLOAD takes its argument by value.
    unsafe { set_offload(tap.as_raw_fd(), libc::c_ulong::from(offload_bits(features))) }?;
    Ok(())
}

/// The kernel refuses segments without checksums, so nothing goes without GUEST_CSUM.
fn offload_bits(features: u64) -> u32 {
    let has = |feature: u32| features & (1 << feature) != 0;
    if !has(spec::VIRTIO_NET_F_GUEST_CSUM) {
        return 0;
    }
    let tso4 = if has(spec::VIRTIO_NET_F_GUEST_TSO4) { TUN_F_TSO4 } else { 0 };
    let tso6 = if has(spec::VIRTIO_NET_F_GUEST_TSO6) { TUN_F_TSO6 } else { 0 };
    TUN_F_CSUM | tso4 | tso6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_follow_what_the_driver_takes() {
        let csum = 1 << spec::VIRTIO_NET_F_GUEST_CSUM;
        let tso4 = 1 << spec::VIRTIO_NET_F_GUEST_TSO4;
        let tso6 = 1 << spec::VIRTIO_NET_F_GUEST_TSO6;
        assert_eq!(offload_bits(csum | tso4 | tso6), 7);
        assert_eq!(offload_bits(csum | tso6), 5);
        assert_eq!(offload_bits(tso4), 0);
    }

    #[test]
    fn what_is_no_tap_is_refused() {
        use std::os::fd::AsFd as _;
        let file = tempfile::tempfile().unwrap();
        assert_eq!(prepare(file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
