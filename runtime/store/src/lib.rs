//! Records and statuses on disk.
