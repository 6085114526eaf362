//! The socket for plugins connecting on their own.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;

use tokio::net::UnixListener;

/// Listens on the socket, for root only. A socket without a listener is replaced, and one with a listener is
/// not.
///
/// # Errors
/// Another process serves the socket, or the file cannot be created.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file there is no socket"));
        }
        Ok(_) if StdUnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process serves there"));
        }
        Ok(_) => fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_another_serves_stays_its_and_one_that_nobody_serves_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nri/nri.sock");
        let other = listen(&path).unwrap();
        let error = listen(&path).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        assert!(StdUnixStream::connect(&path).is_ok());
        drop(other);
        listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "no socket").unwrap();
        assert!(listen(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"no socket");
    }
}
