//! Checks of the repository's own rules.
