//! The streaming server, where `kubectl exec`, `attach` and `port-forward` end. CRI answers those calls with a URL; the
//! client connects to that by HTTP and upgrades to SPDY/3.1 or WebSocket.
//!
//! ```text
//!   tls.rs, where configured
//!   server.rs ── token (pending.rs), protocol (negotiate.rs) ─┬─▶ command/{spdy,websocket}.rs ─▶ Command
//!                                                             └─▶ forward.rs (websocket.rs) ───▶ Forward
//! ```
//!
//! The server knows no pods: a session is a [`Command`] or a [`Forward`] that its user implements, and all that a command
//! sees of its client is [`Channels`]. Everything that clients send is bounded before it is stored.
//!
//! | behaviour | file |
//! |---|---|
//! | output that the kernel moves from pipe to socket | `splice.rs` |
//! | a client that goes away while its input is not taken | `disconnect.rs`, `input_queue.rs` |
//! | a connection that is silent for hours | `idle.rs` |
//! | the text on the error stream | `status.rs` |
//! | a terminal's sizes | `resize.rs` |
//! | what runs as a task of its own, and ends with whoever waits for it | `own_task.rs` |

#![forbid(unsafe_code)]

mod channels;
pub mod client;
mod command;
mod counters;
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
