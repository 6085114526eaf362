//! The virtual machine monitor: one process per pod.
fn main() {}
