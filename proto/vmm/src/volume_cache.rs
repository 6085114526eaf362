//! The guest's cache for files over virtio-fs: the VMM's one argument.

use std::fmt;
use std::str::FromStr;

/// The guest's cache for files of its volumes. The VMM takes the name as its argument; the default is
/// [`None`](Self::None).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeCache {
    /// No cache except for mapped files: each read and write of a program is a request.
    #[default]
    None,
    /// The content of a file, as long as its size and times on the node are the same at each open and read.
    Auto,
    /// Everything, also names and attributes, as if only the guest changed the files.
    Always,
}

impl VolumeCache {
    const ALL: [VolumeCache; 3] = [VolumeCache::None, VolumeCache::Auto, VolumeCache::Always];

    /// The argument.
    pub fn as_str(self) -> &'static str {
        match self {
            VolumeCache::None => "none",
            VolumeCache::Auto => "auto",
            VolumeCache::Always => "always",
        }
    }
}

impl FromStr for VolumeCache {
    type Err = UnknownVolumeCache;

    fn from_str(text: &str) -> Result<VolumeCache, UnknownVolumeCache> {
        let found = VolumeCache::ALL.into_iter().find(|cache| cache.as_str() == text);
        found.ok_or_else(|| UnknownVolumeCache(text.to_owned()))
    }
}

/// An argument with an unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVolumeCache(String);

impl fmt::Display for UnknownVolumeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volumes are cached as none, auto or always, and not as {:?}", self.0)
    }
}

impl std::error::Error for UnknownVolumeCache {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_read_as_it_was_written_and_no_other_is() {
        for cache in VolumeCache::ALL {
            assert_eq!(cache.as_str().parse(), Ok(cache));
        }
        let error = "Always".parse::<VolumeCache>().unwrap_err().to_string();
        assert_eq!(error, "volumes are cached as none, auto or always, and not as \"Always\"");
    }
}
