//! Releases a held container. Nothing is forked: libcontainer writes to the socket that the container's first process
//! waits on, and records in its state that the container runs.

use std::path::Path;

use libcontainer::container::Container;

use crate::launch::Failure;

/// Releases the container, which then executes its command. Whether that worked comes over the launch socket
/// ([`crate::launch`]).
pub fn start(state_root: &Path, container_id: &str) -> Result<(), Failure> {
    let mut container =
        Container::load(state_root.join(container_id)).map_err(|error| Failure::from_error(&error))?;
    container.start().map_err(|error| Failure::from_error(&error))
}
