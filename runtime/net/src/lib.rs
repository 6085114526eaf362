//! Network namespaces, CNI, taps.
