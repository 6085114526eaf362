//! A registry's directory without `hosts.toml`, in Docker's form (containerd reads it, too): `*.crt` are
//! roots for the registry's certificate, and `NAME.cert` with `NAME.key` are a client's. Owns this form.

use std::fs;
use std::path::{Path, PathBuf};

use super::keys::{identity as pair, pem};

/// The files of a registry, as PEM.
pub(super) struct Certificates {
    /// More roots for the registry's certificate.
    pub(super) roots: Vec<Vec<u8>>,
    /// The client's certificate and key.
    pub(super) identity: Option<Vec<u8>>,
}

/// Reads the directory.
pub(super) fn read(directory: &Path) -> Result<Certificates, String> {
    let listed = fs::read_dir(directory).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<PathBuf>, _>>()
    });
    let mut files = listed.map_err(|error| error.to_string())?;
    files.sort();
    let with = |end: &str| {
        let has = |path: &&PathBuf| path.extension().is_some_and(|found| found == end);
        files.iter().filter(has).collect::<Vec<_>>()
    };
    let roots = with("crt").into_iter().map(|path| pem("ca", path)).collect::<Result<_, _>>()?;
    let identity = match with("cert")[..] {
        [] => None,
        [certificate] => Some(pair(certificate, Some(&certificate.with_extension("key")))?),
        ref several => {
            return Err(format!("it has {} client certificates, and one can be shown", several.len()));
        }
    };
    Ok(Certificates { roots, identity })
}
