//! The responses of the lists requested by a kubelet every second. They are handwritten, so that a server can
//! send encoded items: most have not changed since the second before. On the wire the responses are the same
//! as in `api.proto`.

use prost::bytes::{Buf, BufMut, Bytes};
use prost::encoding::{
    DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len, message, skip_field,
};
use prost::{DecodeError, Message};

use crate::v1::{Container, PodSandbox};

/// The number of the only field, the items.
const ITEMS: u32 = 1;

macro_rules! list_response {
    ($(#[$doc:meta])* $name:ident { $items:ident: $item:ty }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            /// The items. After decoding, all of them are here.
            pub $items: Vec<$item>,
            /// Further, already encoded items; only used for encoding.
            pub encoded: Vec<Bytes>,
        }

        impl Message for $name {
            fn encode_raw(&self, buffer: &mut impl BufMut) {
                message::encode_repeated(ITEMS, &self.$items, buffer);
                for item in &self.encoded {
                    encode_key(ITEMS, WireType::LengthDelimited, buffer);
                    encode_varint(item.len() as u64, buffer);
                    buffer.put_slice(item);
                }
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                match tag {
                    ITEMS => message::merge_repeated(wire_type, &mut self.$items, buffer, context),
                    _ => skip_field(wire_type, tag, buffer, context),
                }
            }

            fn encoded_len(&self) -> usize {
                let length = |item: &Bytes| key_len(ITEMS) + encoded_len_varint(item.len() as u64) + item.len();
                message::encoded_len_repeated(ITEMS, &self.$items) + self.encoded.iter().map(length).sum::<usize>()
            }

            fn clear(&mut self) {
                self.$items.clear();
                self.encoded.clear();
            }
        }
    };
}

list_response! {
    /// `ListPodSandboxResponse` of `api.proto`.
    ListPodSandboxResponse { items: PodSandbox }
}

list_response! {
    /// `ListContainersResponse` of `api.proto`.
    ListContainersResponse { containers: Container }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(id: &str) -> Container {
        Container { id: id.into(), labels: [("a".into(), "b".into())].into(), ..Default::default() }
    }

    #[test]
    fn encoded_items_are_decoded_like_the_others() {
        let sent = ListContainersResponse {
            containers: vec![container("one")],
            encoded: vec![container("two").encode_to_vec().into(), container("three").encode_to_vec().into()],
        };
        let bytes = sent.encode_to_vec();
        assert_eq!(bytes.len(), sent.encoded_len());
        let read = ListContainersResponse::decode(&bytes[..]).unwrap();
        let all = ["one", "two", "three"].map(container).to_vec();
        assert_eq!(read, ListContainersResponse { containers: all, encoded: Vec::new() });
        assert_eq!(read.encode_to_vec(), bytes);
    }

    #[test]
    fn a_field_of_a_later_version_is_ignored() {
        let mut bytes = ListPodSandboxResponse::default().encode_to_vec();
        encode_key(9, WireType::Varint, &mut bytes);
        encode_varint(1, &mut bytes);
        assert_eq!(ListPodSandboxResponse::decode(&bytes[..]).unwrap(), ListPodSandboxResponse::default());
    }
}
