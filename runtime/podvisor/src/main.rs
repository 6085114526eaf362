//! The daemon and the command line.
fn main() {}
