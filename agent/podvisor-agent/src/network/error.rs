//! Why the guest's network could not be set up.

use crate::slots::SlotError;

/// Why the network could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("cannot open a netlink socket")]
    Socket(#[source] std::io::Error),
    #[error("cannot make or enter a network namespace")]
    Namespace(#[source] std::io::Error),
    #[error("cannot {what} {name}")]
    Netlink { what: &'static str, name: String, source: rtnetlink::Error },
    #[error("`{text}` is no valid {what}")]
    Malformed { what: &'static str, text: String },
    #[error("there is no interface {0}")]
    NoInterface(String),
    #[error(transparent)]
    Slot(#[from] SlotError),
}
