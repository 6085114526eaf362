//! The system calls that no safe crate offers, each behind a safe function. All of the agent's unsafe
//! code is here, and nothing else is.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of random seed that [`add_entropy`] accepts at most: the kernel's pool is 256 bits.
pub const SEED_BYTES_MAX: usize = 64;

/// `struct rand_pool_info` of `include/uapi/linux/random.h`, with room for [`SEED_BYTES_MAX`].
#[repr(C)]
struct PoolInfo {
    entropy_bits: libc::c_int,
    buffer_bytes: libc::c_int,
    buffer: [u8; SEED_BYTES_MAX],
}

// `RNDADDENTROPY` is _IOW('R', 0x03, int[2]) and `RNDRESEEDCRNG` _IO('R', 0x07), same header.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
// `EXT4_IOC_RESIZE_FS` is _IOW('f', 16, __u64), `include/uapi/linux/ext4.h`.
const EXT4_IOC_RESIZE_FS: libc::Ioctl = 0x4008_6610;

/// Mixes `seed` into the kernel's random pool, credits it in full, and makes the kernel reseed from it.
///
/// Needs CAP_SYS_ADMIN. A seed beyond [`SEED_BYTES_MAX`] is cut there.
pub fn add_entropy(random: BorrowedFd<'_>, seed: &[u8]) -> io::Result<()> {
    let seed = &seed[..seed.len().min(SEED_BYTES_MAX)];
    let bytes = i32::try_from(seed.len()).expect("the seed was cut to 64 bytes");
    let mut info = PoolInfo { entropy_bits: bytes * 8, buffer_bytes: bytes, buffer: [0; SEED_BYTES_MAX] };
    info.buffer[..seed.len()].copy_from_slice(seed);
    // SAFETY: `info` lives through the call and has the layout RNDADDENTROPY reads: two ints, then
    // `buffer_bytes` bytes, which `buffer` holds.
    check(unsafe { libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const info) })?;
    // SAFETY: RNDRESEEDCRNG takes no argument.
    check(unsafe { libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG) })
}

/// Grows the mounted ext4 filesystem that `directory` is on to `blocks` filesystem blocks.
///
/// Needs CAP_SYS_RESOURCE. The kernel refuses a size beyond the block device.
pub fn ext4_resize(directory: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one u64 at the pointer, which lives through the call.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), EXT4_IOC_RESIZE_FS, &raw const blocks) })
}

/// Sends any Linux signal, real-time ones too (which the safe crates' signal types lack).
///
/// `pid` must be positive: groups and "everything" are refused here.
pub fn kill(pid: i32, signal: u32) -> io::Result<()> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    if pid <= 0 {
        return Err(invalid());
    }
    let signal = libc::c_int::try_from(signal).map_err(|_| invalid())?;
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    check(unsafe { libc::kill(pid, signal) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_or_everything_is_no_target_for_a_signal() {
        assert_eq!(kill(0, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(kill(-1, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn signal_0_finds_this_process() {
        kill(i32::try_from(std::process::id()).unwrap(), 0).unwrap();
    }
}
