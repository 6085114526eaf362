//! Both ends in one process.
