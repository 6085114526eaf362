//! A WebSocket message of one channel: its first byte is the channel, and the rest the channel's content. The
//! form is the same for commands and for port-forward. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use tokio_tungstenite::tungstenite::protocol::Message;

/// Most channels of a session: in base64 a channel is one ASCII character, counted from `0`.
pub(crate) const CHANNELS_MAX: u8 = 80;

/// Makes a message, in base64 as a text. The channel must be below [`CHANNELS_MAX`].
pub(crate) fn encode(channel: u8, content: &[u8], base64: bool) -> Message {
    if base64 {
        let mut text = String::from(char::from(b'0' + channel));
        BASE64.encode_string(content, &mut text);
        return Message::text(text);
    }
    let mut framed = Vec::with_capacity(1 + content.len());
    framed.push(channel);
    framed.extend_from_slice(content);
    Message::binary(framed)
}

/// Splits a message into channel and content. `None` if it has neither.
pub(crate) fn decode(mut message: Bytes, base64: bool) -> Option<(u8, Bytes)> {
    let channel = *message.first()?;
    let content = message.split_off(1);
    if base64 {
        let digit = channel.checked_sub(b'0').filter(|digit| *digit < CHANNELS_MAX)?;
        return Some((digit, BASE64.decode(content).ok()?.into()));
    }
    Some((channel, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_channel_and_its_content() {
        let decode = |message: &'static [u8], base64| decode(Bytes::from_static(message), base64);
        assert_eq!(decode(b"\x04{}", false), Some((4, "{}".into())));
        assert_eq!(decode(b"0aGk=", true), Some((0, "hi".into())));
        assert_eq!(decode(b"", false), None);
        assert_eq!(decode(b"0!!", true), None);
        assert_eq!(decode(b"\x7faGk=", true), Some((79, "hi".into())));
        assert_eq!(decode(b"\x80aGk=", true), None);
        assert_eq!(decode(b"/aGk=", true), None);
        for base64 in [false, true] {
            let message = encode(CHANNELS_MAX - 1, b"hi", base64).into_data();
            assert_eq!(super::decode(message, base64), Some((CHANNELS_MAX - 1, "hi".into())));
        }
    }
}
