//! References, registries, blobs, layers, images.
