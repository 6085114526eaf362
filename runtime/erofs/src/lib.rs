//! EROFS writer.
