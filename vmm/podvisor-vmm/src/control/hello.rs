//! Hello: exchanges the client's version for the VMM's and its release. An earlier request is refused with
//! a text: a daemon of another version then reads the reason instead of an error about an odd message.

use proto_vmm::{PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Refusal, Response, STREAM_NUMBERS_VERSION};

use super::Control;
use super::answer::{Answer, refusal};

impl Control {
    pub(super) fn hello(&mut self, version: u32) -> Answer {
        check(version)?;
        self.make_vcpus_for(version)?;
        if let Some(client) = &mut self.client {
            client.version = Some(version);
        }
        if version >= STREAM_NUMBERS_VERSION {
            // From now on the client accepts the guest's streams.
            self.streams.open();
        }
        self.full_disks_unsent = self.full_disks.count() > 0;
        Ok(Response::Hello { version: PROTOCOL_VERSION, release: env!("CARGO_PKG_VERSION").to_owned() })
    }

    /// Refuses a client before it has said its version.
    pub(super) fn check_greeted(&self) -> Result<(), Refusal> {
        if self.client.as_ref().is_some_and(|client| client.version.is_some()) {
            return Ok(());
        }
        Err(refusal(format!(
            "this VMM speaks version {PROTOCOL_VERSION} of the protocol, and the daemon named none"
        )))
    }
}

/// Refuses too old a version.
fn check(version: u32) -> Result<(), Refusal> {
    if version >= PROTOCOL_VERSION_MIN {
        return Ok(());
    }
    Err(refusal(format!(
        "the daemon speaks version {version} of the protocol, and this VMM {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_daemon_is_refused_with_both_versions_and_a_newer_one_decides_itself() {
        assert_eq!(check(PROTOCOL_VERSION), Ok(()));
        assert_eq!(check(PROTOCOL_VERSION + 1), Ok(()));
        let refused = check(PROTOCOL_VERSION_MIN - 1).unwrap_err().message;
        assert!(
            refused.starts_with("the daemon speaks version 0 of the protocol, and this VMM 1 to 7"),
            "{refused}"
        );
    }
}
