//! OCI containers inside the guest.
