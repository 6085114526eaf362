//! Entry for `tests/fuzz`: a stream's bytes, as a hostile plugin may send them.

/// Routes a stream's bytes to its connections.
pub fn stream(bytes: &[u8]) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
    // The outcome does not matter, only termination.
    let _ = runtime.block_on(crate::mux::demultiplex(bytes, tokio::io::sink(), tokio::io::sink()));
}
