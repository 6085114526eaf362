//! The tap's settings (Linux `include/uapi/linux/if_tun.h`). Frames pass elsewhere.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use virtio_bindings::virtio_net as spec;

use super::HEADER_BYTES;
use super::receive::Filter;

nix::ioctl_write_int!(set_offload, b'T', 208);
// TUNSETTXFILTER's number has `unsigned int`, but its argument is a `struct tun_filter` of any length.
nix::ioctl_write_ptr_bad!(set_filter, nix::request_code_write!(b'T', 209, size_of::<libc::c_uint>()), u8);
nix::ioctl_write_ptr!(set_header_bytes, b'T', 216, libc::c_int);

/// Offloads for the guest from the tap: frames without a checksum, and merged TCP segments.
const TUN_F_CSUM: u32 = 1;
const TUN_F_TSO4: u32 = 2;
const TUN_F_TSO6: u32 = 4;

/// Frames to any group pass the filter.
const TUN_FLT_ALLMULTI: u16 = 1;

/// Makes reads and writes non-blocking, and sets our header's length. The tap must have been opened with
/// IFF_TAP, IFF_NO_PI and IFF_VNET_HDR.
pub(super) fn prepare(tap: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(tap, FcntlArg::F_GETFL)?);
    fcntl(tap, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let bytes = HEADER_BYTES as libc::c_int;
    // SAFETY: the descriptor is open and the argument a valid pointer to an int, which TUNSETVNETHDRSZ reads.
    unsafe { set_header_bytes(tap.as_raw_fd(), &raw const bytes) }?;
    Ok(())
}

/// A tap's settings. They follow the driver.
pub(super) trait TapSettings: Debug + Send + Sync {
    /// Sets the frames the driver can take, as `TUN_F_…`.
    fn offload(&self, tap: BorrowedFd<'_>, offloads: u32) -> io::Result<()>;

    /// Sets the frames the driver wants; without a filter every frame.
    fn filter(&self, tap: BorrowedFd<'_>, filter: Option<&Filter>) -> io::Result<()>;
}

/// Settings of the kernel's taps.
#[derive(Debug)]
pub(super) struct Kernel;

impl TapSettings for Kernel {
    fn offload(&self, tap: BorrowedFd<'_>, offloads: u32) -> io::Result<()> {
        // SAFETY: the descriptor is open; TUNSETOFFLOAD takes its argument by value.
        unsafe { set_offload(tap.as_raw_fd(), libc::c_ulong::from(offloads)) }?;
        Ok(())
    }

    fn filter(&self, tap: BorrowedFd<'_>, filter: Option<&Filter>) -> io::Result<()> {
        let bytes = filter_bytes(filter);
        // SAFETY: the descriptor is open. TUNSETTXFILTER reads a header of four bytes, at any alignment, and
        // as many addresses of six bytes as its count says; `bytes` has them all.
        unsafe { set_filter(tap.as_raw_fd(), bytes.as_ptr()) }?;
        Ok(())
    }
}

/// Returns a `struct tun_filter`: flags and count, followed by the addresses. A count of zero lets every
/// frame pass.
fn filter_bytes(filter: Option<&Filter>) -> Vec<u8> {
    let addresses = filter.map_or(&[][..], |filter| &filter.addresses);
    let flags = if filter.is_some_and(|filter| filter.all_multicast) { TUN_FLT_ALLMULTI } else { 0 };
    // At most a table and two more addresses.
    let count = addresses.len() as u16;
    let mut bytes = [flags.to_ne_bytes(), count.to_ne_bytes()].concat();
    bytes.extend(addresses.as_flattened());
    bytes
}

/// Returns the offloads for a driver's features. The kernel refuses segments without checksums, so there are
/// none without GUEST_CSUM.
pub(super) fn offload_bits(features: u64) -> u32 {
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
    fn filters_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(filter_bytes(None), [0, 0, 0, 0]);
        let addresses = vec![[2, 0, 0, 0, 0, 1], [0xff; 6]];
        let filter = Filter { all_multicast: true, addresses };
        let bytes = [1, 0, 2, 0, 2, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(filter_bytes(Some(&filter)), bytes);
    }

    #[test]
    fn what_is_no_tap_is_refused() {
        use std::os::fd::AsFd as _;
        let file = tempfile::tempfile().unwrap();
        assert_eq!(prepare(file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        let error = Kernel.filter(file.as_fd(), None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
