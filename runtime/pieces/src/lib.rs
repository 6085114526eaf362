//! A stream's bytes on their way from one socket to another, piece by piece as they come.
//!
//! ```text
//!   socket ── Pieces ──▶ Piece::Held    little: memory, for whoever wants to look at it
//!                   └──▶ Piece::Piped   much: pages that never come into this process ── pour ──▶ socket
//! ```
//!
//! The boundary: runtime-pod produces such bytes and runtime-streaming sends them to clients, and neither may depend on
//! the other, for the streaming server knows no pods and pods know no HTTP. This crate is all that both share, and knows
//! neither the meaning of the bytes nor their destination.

#![forbid(unsafe_code)]

mod piece;
mod pieces;
mod pipe_pool;

pub use piece::{Piece, Piped};
pub use pieces::Pieces;
