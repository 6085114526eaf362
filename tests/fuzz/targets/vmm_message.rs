//! Bytes on the control socket, from a VMM that its guest has taken over or from anyone to a VMM.
//! A message that parses must be writable, and parse again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto_vmm::Message;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = serde_json::from_slice::<Message>(bytes) {
        let written = serde_json::to_vec(&message).expect("what was read can be written");
        serde_json::from_slice::<Message>(&written).expect("what was written can be read");
    }
});
