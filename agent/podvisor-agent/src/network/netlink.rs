//! The netlink socket, and the links of a request by name.

use std::collections::HashMap;

use rtnetlink::Handle;

use crate::network::error::NetworkError;

/// Interface indices by name.
pub(super) type Indices = HashMap<String, u32>;

/// A netlink socket of this thread's network namespace.
pub(super) fn handle() -> Result<Handle, NetworkError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(NetworkError::Socket)?;
    // The task ends with the last handle.
    tokio::spawn(connection);
    Ok(handle)
}

/// The index of the interface with this name in the request.
pub(super) fn index(indices: &Indices, name: &str) -> Result<u32, NetworkError> {
    indices.get(name).copied().ok_or_else(|| NetworkError::NoInterface(name.to_owned()))
}
