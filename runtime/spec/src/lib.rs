//! Pod and container specs, resolved.
