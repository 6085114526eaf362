//! Digests as registries write them.

use sha2::{Digest, Sha256};

/// `sha256:…` of some bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
