//! The reason of a call refused by the agent, as a type: a [`Failure`] in the details of the ttrpc status.
//! Pure.
//!
//! The status's code is the kind of refusal, and its message is for people. A reason is only set if the
//! daemon acts on it. The daemon never parses a message.

use protobuf::Message;
use ttrpc::proto::{Any, Status};

use crate::agent::{Failure, FailureReason};

/// Type URL of [`Failure`] in a status's details (google/protobuf/any.proto).
const TYPE_URL: &str = "type.googleapis.com/podvisor.agent.v1.Failure";

/// A status with this code and message, and the reason in its details.
pub fn status(code: ttrpc::Code, message: &str, reason: FailureReason) -> Status {
    let mut status = ttrpc::get_status(code, message);
    let failure = Failure { reason: reason.into(), ..Default::default() };
    if reason != FailureReason::FAILURE_REASON_UNSPECIFIED
        && let Ok(value) = failure.write_to_bytes()
    {
        status.details.push(Any { type_url: TYPE_URL.into(), value, ..Default::default() });
    }
    status
}

/// Returns the reason in a status's details, or unspecified if there is no known reason.
pub fn reason(status: &Status) -> FailureReason {
    let detail = status.details.iter().find(|detail| detail.type_url == TYPE_URL);
    let failure = detail.and_then(|detail| Failure::parse_from_bytes(&detail.value).ok());
    failure.unwrap_or_default().reason.enum_value_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_its_status() {
        let sent = FailureReason::FAILURE_REASON_IMAGE_VOLUME_MOUNT;
        let status = status(ttrpc::Code::INTERNAL, "why", sent);
        assert_eq!((status.code(), status.message()), (ttrpc::Code::INTERNAL, "why"));
        let received = Status::parse_from_bytes(&status.write_to_bytes().unwrap()).unwrap();
        assert_eq!(reason(&received), sent);
    }

    #[test]
    fn a_status_without_a_known_reason_has_none() {
        let none = FailureReason::FAILURE_REASON_UNSPECIFIED;
        let mut status = status(ttrpc::Code::NOT_FOUND, "why", none);
        assert!(status.details.is_empty());
        assert_eq!(reason(&status), none);
        for (type_url, value) in [("type.googleapis.com/other", vec![8, 1]), (TYPE_URL, vec![0xff; 9])] {
            status.details = vec![Any { type_url: type_url.into(), value, ..Default::default() }];
            assert_eq!(reason(&status), none, "{type_url}");
        }
        let newer = vec![8, 99];
        status.details = vec![Any { type_url: TYPE_URL.into(), value: newer, ..Default::default() }];
        assert_eq!(reason(&status), none);
    }
}
