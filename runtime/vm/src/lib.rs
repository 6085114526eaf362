//! Spawn and drive a VMM.
