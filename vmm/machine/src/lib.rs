//! KVM, vCPUs, guest memory and the boot protocol.
