//! Exec and attach: a command's channels over the client's protocol. Nothing here knows commands' effects.
//!
//! ```text
//!   client ── reading (spdy.rs, websocket.rs) ──▶ input ──▶ Command
//!   client ◀──────────── Outbound ◀── pump ◀── stdout, stderr ──┘   (session.rs)
//!          ◀── outcome, when both have ended
//! ```

mod session;
mod spdy;
mod websocket;

pub(crate) use session::Session;
pub(crate) use spdy::serve as over_spdy;
pub(crate) use websocket::serve as over_websocket;
