//! Entry for `tests/fuzz`: a stream's bytes, as a hostile plugin may send them.

/// Leads a stream's bytes to its connections.
pub fn stream(bytes: &[u8]) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
    // How it ends is nobody's concern: it ends.
    let _ = runtime.block_on(crate::mux::demultiplex(bytes, tokio::io::sink(), tokio::io::sink()));
}
