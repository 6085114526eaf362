//! Paths of the tested programs and files: `make` builds them, `make test` names their directories.

use std::path::PathBuf;

/// Directory of `podvisor` and `podvisor-vmm`.
const BIN_VARIABLE: &str = "PODVISOR_E2E_BIN";
/// Directory of `vmlinux`, `root.erofs`, `scratch.ext4` and `volume.ext4`.
const GUEST_IMAGE_VARIABLE: &str = "PODVISOR_E2E_GUEST_IMAGE";
/// Directory of the same files from the previous release.
const PREVIOUS_VARIABLE: &str = "PODVISOR_E2E_PREVIOUS";

/// Places of the built programs and files, as the environment or the arguments of a program name them.
#[derive(Clone, Debug, clap::Args)]
pub struct Built {
    /// Directory of `podvisor` and `podvisor-vmm`.
    #[arg(long)]
    pub bin: PathBuf,
    /// Directory of `vmlinux`, `root.erofs`, `scratch.ext4` and `volume.ext4`.
    #[arg(long)]
    pub guest_image: PathBuf,
}

impl Built {
    /// Returns the directories of the environment. If a name is missing, there are none, and a line on stderr
    /// says so.
    pub fn of_environment() -> Option<Built> {
        match (std::env::var_os(BIN_VARIABLE), std::env::var_os(GUEST_IMAGE_VARIABLE)) {
            (Some(bin), Some(guest_image)) => {
                Some(Built { bin: bin.into(), guest_image: guest_image.into() })
            }
            _ => {
                eprintln!(
                    "skipped: {BIN_VARIABLE} and {GUEST_IMAGE_VARIABLE} are not set; `make test` sets them"
                );
                None
            }
        }
    }

    /// Returns true if the environment names directories: `make test` does so, benchmarks do not.
    pub fn is_in_environment() -> bool {
        std::env::var_os(BIN_VARIABLE).is_some()
    }

    /// Returns true for the previous release. It does not know all of today's configuration keys.
    pub fn is_previous(&self) -> bool {
        std::env::var_os(PREVIOUS_VARIABLE).is_some_and(|dir| self.bin == dir)
    }

    /// The previous release. If the environment does not name its directory, there is none, and a line on
    /// stderr says so.
    pub fn previous_of_environment() -> Option<Built> {
        let Some(dir) = std::env::var_os(PREVIOUS_VARIABLE).filter(|dir| !dir.is_empty()) else {
            eprintln!("skipped: {PREVIOUS_VARIABLE} is not set; `make test` sets it");
            return None;
        };
        let dir = PathBuf::from(dir);
        Some(Built { bin: dir.clone(), guest_image: dir })
    }
}
