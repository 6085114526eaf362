//! A stream's bytes on their way from one socket to another, piece by piece as they come.
//!
//! ```text
//!   socket ── Pieces ──▶ Piece::Held    little: memory, for whoever wants to look at it
//!                   └──▶ Piece::Piped   much: pages that never come into this process ── pour ──▶ socket
//! ```
//!
//! It knows neither what the bytes are nor who wants them.

#![forbid(unsafe_code)]

mod piece;
mod pieces;
mod pipe;

pub use piece::{Piece, Piped};
pub use pieces::Pieces;
