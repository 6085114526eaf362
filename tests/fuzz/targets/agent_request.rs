//! Bytes as the agent's RPCs and streams read them: every request, and the frames around the streams. A message that
//! parses must be writable, and parse to an equal message again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto_agent::agent::*;
use proto_agent::frame;
use protobuf::Message;

fn round_trip<M: Message + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(message) = M::parse_from_bytes(bytes) else { return };
    let written = message.write_to_bytes().expect("what was read can be written");
    assert_eq!(M::parse_from_bytes(&written).expect("what was written can be read"), message);
}

fuzz_target!(|bytes: &[u8]| {
    round_trip::<ConfigurePodRequest>(bytes);
    round_trip::<CreateContainerRequest>(bytes);
    round_trip::<ExecRequest>(bytes);
    round_trip::<SignalRequest>(bytes);
    round_trip::<PublishVolumeRequest>(bytes);
    round_trip::<AttachHostSocketsRequest>(bytes);
    if let Some((header, body)) = bytes.split_first_chunk()
        && let Ok(length) = frame::body_bytes(*header)
    {
        let body = &body[..length.min(body.len())];
        let _ = frame::decode::<StreamOpen>(body);
        let _ = frame::decode::<AgentReady>(body);
    }
});
