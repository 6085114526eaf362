//! The fields of an encoded message, found without knowing the message (protobuf's encoding: a key, then a
//! value). Pure; never changes any other field.

use std::ops::Range;

use bytes::{Buf, Bytes};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// One field at its position.
struct Field {
    number: u32,
    /// Key and value.
    whole: Range<usize>,
    /// The bytes of a string, of bytes or of a message. `None` for numbers.
    content: Option<Range<usize>>,
}

fn fields(message: &[u8]) -> Result<Vec<Field>, DecodeError> {
    let mut rest = message;
    let at = |rest: &[u8]| message.len() - rest.len();
    let mut found = Vec::new();
    while rest.has_remaining() {
        let begin = at(rest);
        let (number, wire) = decode_key(&mut rest)?;
        let mut content = None;
        if wire == WireType::LengthDelimited {
            let mut peeked = rest;
            let length = usize::try_from(decode_varint(&mut peeked)?).unwrap_or(usize::MAX);
            let from = at(peeked);
            content = from.checked_add(length).map(|to| from..to);
        }
        skip_field(wire, number, &mut rest, DecodeContext::default())?;
        found.push(Field { number, whole: begin..at(rest), content });
    }
    Ok(found)
}

/// The string in the field of this number. Empty if there is none. Of several the last one wins, as in every
/// decoder.
///
/// # Errors
/// The message is invalid, or the field is no string.
pub(super) fn text(message: &[u8], number: u32) -> Result<&str, String> {
    let fields = fields(message).map_err(|error| error.to_string())?;
    let Some(field) = fields.into_iter().rfind(|field| field.number == number) else { return Ok("") };
    let bytes = field.content.and_then(|content| message.get(content));
    let bytes = bytes.ok_or_else(|| format!("field {number} is no string"))?;
    std::str::from_utf8(bytes).map_err(|_| format!("field {number} is not UTF-8"))
}

/// The items of a list: each field of number 1 with its key, and its content.
///
/// # Errors
/// The message is invalid.
pub(super) fn items(list: &Bytes) -> Result<Vec<(Bytes, Bytes)>, String> {
    let fields = fields(list).map_err(|error| error.to_string())?;
    let items = fields.into_iter().filter(|field| field.number == 1);
    Ok(items.filter_map(|field| Some((list.slice(field.whole), list.slice(field.content?)))).collect())
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost::encoding::{encode_key, encode_varint};
    use proto_cri::v1;

    use super::*;

    /// A message with this string in a field.
    fn with_text(number: u32, text: &str) -> Vec<u8> {
        let mut message = Vec::new();
        encode_key(number, WireType::LengthDelimited, &mut message);
        encode_varint(text.len() as u64, &mut message);
        message.extend_from_slice(text.as_bytes());
        message
    }

    #[test]
    fn a_string_is_found_beside_fields_of_a_later_version() {
        let request = v1::RunPodSandboxRequest { runtime_handler: "runc".into(), ..Default::default() };
        let mut later = Vec::new();
        encode_key(900, WireType::Varint, &mut later);
        encode_varint(7, &mut later);
        let message = [with_text(901, "new"), request.encode_to_vec(), later].concat();
        assert_eq!((text(&message, 2).unwrap(), text(&message, 5).unwrap()), ("runc", ""));
    }

    #[test]
    fn the_last_of_several_counts() {
        let two = [with_text(1, "first"), with_text(1, "second")].concat();
        assert_eq!(text(&two, 1).unwrap(), "second");
    }

    #[test]
    fn lists_are_taken_apart_and_joined_again() {
        let item = |id: &str| v1::Container { id: id.into(), ..Default::default() };
        let list = |ids: &[&str]| v1::ListContainersResponse {
            containers: ids.iter().map(|id| item(id)).collect(),
            ..Default::default()
        };
        let bytes: Bytes = list(&["a", "b"]).encode_to_vec().into();
        let items = items(&bytes).unwrap();
        let ids: Vec<_> = items.iter().map(|(_, one)| v1::Container::decode(&one[..]).unwrap().id).collect();
        assert_eq!(ids, ["a", "b"]);
        let joined = [&items[1].0[..], &items[0].0[..], &list(&["c"]).encode_to_vec()].concat();
        assert_eq!(v1::ListContainersResponse::decode(&joined[..]).unwrap(), list(&["b", "a", "c"]));
    }

    #[test]
    fn what_is_no_message_is_an_error_and_never_a_panic() {
        for bytes in [
            &[0x0a][..],
            &[0x0a, 5, 1],
            &[0xff; 12],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ] {
            assert!(text(bytes, 1).is_err(), "{bytes:?}");
            assert!(items(&Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
        assert!(text(&[0x08, 1], 1).unwrap_err().contains("no string"));
        assert!(text(&[0x0a, 1, 0xff], 1).unwrap_err().contains("UTF-8"));
    }
}
