//! Pods: one driver task each.
