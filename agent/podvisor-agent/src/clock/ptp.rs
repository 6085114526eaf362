//! The host's clock as a PTP clock of KVM. Every reading is a hypercall (`ptp_kvm` of the kernel's
//! drivers/ptp). It does not exist if KVM or the host's own clock does not allow it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::time::{ClockId, clock_gettime};

use crate::clock::offset::Offset;

/// The kernel's directory of PTP clocks, and the name of KVM's.
const CLASS: &str = "/sys/class/ptp";
const NAME: &str = "KVM virtual PTP";

/// Readings for one measure. The shortest one counts, because the others were interrupted.
const READINGS: usize = 5;

/// The host's clock.
#[derive(Debug)]
pub(super) struct PtpClock {
    /// Stays open while its number is in use as a clock's.
    device: File,
}

impl PtpClock {
    /// Opens the host's clock, if this guest has it and it is readable.
    pub(super) fn open() -> Option<PtpClock> {
        let node = Path::new("/dev").join(find(Path::new(CLASS))?);
        let clock = PtpClock { device: File::open(node).ok()? };
        clock.offset().is_ok().then_some(clock)
    }

    /// Measures the offset of the guest's clock.
    pub(super) fn offset(&self) -> io::Result<Offset> {
        let mut best: Option<Offset> = None;
        for _ in 0..READINGS {
            let before = nanoseconds(ClockId::CLOCK_REALTIME)?;
            let host = nanoseconds(self.id())?;
            let after = nanoseconds(ClockId::CLOCK_REALTIME)?;
            let measured = Offset::between(before, host, after);
            if best.is_none_or(|best| measured.error_ns < best.error_ns) {
                best = Some(measured);
            }
        }
        Ok(best.unwrap_or_default())
    }

    /// Id of a clock file: `FD_TO_CLOCKID` of clock_getres(2).
    fn id(&self) -> ClockId {
        const CLOCKFD: i32 = 3;
        ClockId::from_raw(!self.device.as_raw_fd() << 3 | CLOCKFD)
    }
}

/// Returns the device name of KVM's clock in this directory.
fn find(class: &Path) -> Option<String> {
    let mut clocks = fs::read_dir(class).ok()?.flatten();
    let is_kvm = |name: String| name.trim() == NAME;
    let found = clocks.find(|clock| fs::read_to_string(clock.path().join("clock_name")).is_ok_and(is_kvm))?;
    found.file_name().into_string().ok()
}

/// A clock's reading, nanoseconds since the epoch.
pub(super) fn nanoseconds(clock: ClockId) -> io::Result<i64> {
    let now = clock_gettime(clock)?;
    Ok(now.tv_sec().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_s_clock_is_found_by_its_name() {
        let class = tempfile::tempdir().unwrap();
        assert_eq!(find(class.path()), None);
        for (clock, name) in [("ptp0", "a network card\n"), ("ptp1", "KVM virtual PTP\n")] {
            fs::create_dir(class.path().join(clock)).unwrap();
            fs::write(class.path().join(clock).join("clock_name"), name).unwrap();
        }
        assert_eq!(find(class.path()).as_deref(), Some("ptp1"));
        assert_eq!(find(Path::new("/none")), None);
    }

    #[test]
    fn a_file_that_is_no_clock_cannot_be_read_as_one() {
        let clock = PtpClock { device: File::open("/dev/null").unwrap() };
        clock.offset().unwrap_err();
    }
}
