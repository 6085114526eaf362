//! The streaming server: what `kubectl exec`, `attach` and `port-forward` end at. CRI answers those calls
//! with a URL; the client comes to it by HTTP and upgrades to SPDY/3.1 or WebSocket.
//!
//! ```text
//!   tls.rs, where configured
//!   server.rs ── token (pending.rs), protocol (negotiate.rs) ─┬─▶ command/{spdy,websocket}.rs ─▶ Command
//!                                                             └─▶ forward.rs (tunnel.rs) ──────▶ Forward
//! ```
//!
//! It knows no pods: a session is a [`Command`] or a [`Forward`] that somebody else made, and all it sees is
//! [`Channels`]. What clients send is bounded before it is kept.

#![forbid(unsafe_code)]

mod channels;
pub mod client;
mod command;
mod disconnect;
mod error;
mod forward;
pub mod fuzz;
mod idle;
mod input_queue;
mod negotiate;
mod own_task;
mod pending;
mod resize;
mod server;
mod spdy;
mod splice;
mod status;
mod tls;
mod websocket;

pub use channels::{Channels, Command, Forward, Input, Outcome, Size, Streams};
pub use error::ServerError;
pub use own_task::in_own_task;
pub use server::Server;
pub use spdy::SpdyError;
pub use tls::{Tls, TlsError};
