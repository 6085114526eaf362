//! The streaming server for `kubectl exec`, `attach` and `port-forward`. CRI answers these calls with a URL.
//! The client connects to it by HTTP and upgrades to SPDY/3.1 or WebSocket.
//!
//! ```text
//!   tls.rs, where configured
//!   server.rs ── token (pending.rs), protocol (negotiate.rs) ─┬─▶ command/{spdy,websocket}.rs ─▶ Command
//!                                                             ├─▶ forward.rs (websocket.rs) ───▶ Forward
//!                                                             └─▶ port_channels.rs ────────────▶ Forward
//! ```
//!
//! The server knows no pods. A session is a [`Command`] or a [`Forward`], implemented by the caller, and a
//! command sees only the [`Channels`] of its client. All data from clients is bounded before it is stored.
//!
//! | behaviour | file |
//! |---|---|
//! | output moved by the kernel from pipe to socket | `splice.rs` |
//! | a client's close before its input is taken | `disconnect.rs`, `input_queue.rs` |
//! | a connection silent for hours | `idle.rs` |
//! | the text on the error stream | `status.rs` |
//! | a terminal's sizes | `resize.rs` |
//! | separate tasks that end with their caller | `own_task.rs` |

#![forbid(unsafe_code)]

mod channel_message;
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
mod port_channels;
mod resize;
mod server;
mod spdy;
mod splice;
mod status;
mod tls;
mod websocket;

pub use channels::{Channels, Command, FORWARD_PORTS_MAX, Forward, Input, Outcome, Size, Streams};
pub use error::ServerError;
pub use own_task::in_own_task;
pub use server::Server;
pub use spdy::SpdyError;
pub use tls::{Tls, TlsError};
