//! The part of SPDY/3.1 spoken by Kubernetes' clients, from either side. [`frame`] and [`headers`] are pure;
//! [`reader`] turns a byte stream into events, [`writer`] turns frames into bytes.
//!
//! There is no flow control: clients neither send nor await WINDOW_UPDATE. So a stream with untaken data
//! blocks its whole connection, and TCP blocks the peer.

mod dictionary;
mod error;
pub(crate) mod frame;
pub(crate) mod headers;
pub(crate) mod reader;
pub(crate) mod writer;

pub use error::SpdyError;
