//! A stream's bytes on their way from one socket to another, piece by piece as they come.
//!
//! ```text
//!   socket ── Pieces ──▶ Piece::Held    little: memory, for readers of the bytes
//!                   └──▶ Piece::Piped   much: pages kept out of this process ── pour ──▶ socket
//! ```
//!
//! The boundary: runtime-pod produces these bytes and runtime-streaming sends them to clients. Neither may
//! depend on the other: the streaming server knows no pods, and pods know no HTTP. They share only this
//! crate. It knows neither the meaning of the bytes nor their destination.

#![forbid(unsafe_code)]

mod piece;
mod pieces;
mod pipe_pool;

pub use piece::{Piece, Piped};
pub use pieces::Pieces;
