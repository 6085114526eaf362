//! Calls through the layer, to services of ours and to an upstream on a socket, both fakes that answer with what a test
//! gave them and keep what they were asked.

mod calls;
mod fake;
mod images;
mod lists;
mod world;
