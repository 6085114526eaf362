//! An archive on its way to the daemon: a file or standard input as it is, or a directory packed on the fly.
//! Everything is read with the rights of this command's user.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use proto_images::v1::ImportRequest;
use proto_images::v1::import_request::{End, Part};
use tokio::sync::mpsc;

/// Bytes of one request.
const CHUNK_BYTES: usize = 256 * 1024;

/// The place of the archive.
#[derive(Debug)]
pub(super) enum Input {
    /// A file, or a pipe.
    File(File),
    /// A directory with an OCI image layout.
    Layout(PathBuf),
    Stdin,
}

impl Input {
    /// Opens the path; `-` is standard input.
    ///
    /// # Errors
    /// The path does not exist, cannot be read, or is a directory without a layout.
    pub(super) fn open(path: &Path) -> io::Result<Input> {
        if path.as_os_str() == "-" {
            return Ok(Input::Stdin);
        }
        if !fs::metadata(path)?.is_dir() {
            return File::open(path).map(Input::File);
        }
        if !path.join("index.json").is_file() {
            let why = "the directory is no OCI image layout: it has no index.json";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(Input::Layout(path.to_owned()))
    }

    /// Sends the whole archive, and its end. Blocks. Returns `Ok` if the daemon takes no more: its answer has
    /// the reason.
    ///
    /// # Errors
    /// The archive cannot be read; the daemon gets no end then.
    pub(super) fn send(self, to: mpsc::Sender<ImportRequest>) -> io::Result<()> {
        let mut sending = Sending { to, chunk: Vec::with_capacity(CHUNK_BYTES), is_refused: false };
        let sent = match self {
            Input::File(mut file) => copy(&mut file, &mut sending),
            Input::Stdin => copy(&mut io::stdin().lock(), &mut sending),
            Input::Layout(directory) => pack(&directory, &mut sending),
        };
        match sent.and_then(|()| sending.flush()) {
            _ if sending.is_refused => Ok(()),
            Ok(()) => {
                // The daemon may have given up. Then there is no receiver.
                let _ = sending.to.blocking_send(ImportRequest { part: Some(Part::End(End {})) });
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

fn copy(from: &mut impl Read, to: &mut Sending) -> io::Result<()> {
    io::copy(from, to).map(drop)
}

/// Packs the files of a layout, and no other files of the directory.
fn pack(directory: &Path, to: &mut Sending) -> io::Result<()> {
    let mut tar = tar::Builder::new(to);
    let mut add = |path: &Path, name: &Path| {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        tar.append_path_with_name(path, name).map_err(named)
    };
    for name in ["oci-layout", "index.json"] {
        let path = directory.join(name);
        if path.is_file() {
            add(&path, Path::new(name))?;
        }
    }
    for algorithm in sorted(&directory.join("blobs"))? {
        for blob in sorted(&algorithm)? {
            let name = blob.strip_prefix(directory).map_err(io::Error::other)?;
            if blob.is_file() {
                add(&blob, name)?;
            }
        }
    }
    tar.finish()
}

/// The paths in a directory, sorted. Empty if there is no directory.
fn sorted(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The archive as requests of [`CHUNK_BYTES`] each.
struct Sending {
    to: mpsc::Sender<ImportRequest>,
    chunk: Vec<u8>,
    /// Whether the daemon takes no more.
    is_refused: bool,
}

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        if self.chunk.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        self.to.blocking_send(ImportRequest { part: Some(Part::Chunk(chunk)) }).map_err(|_| {
            self.is_refused = true;
            io::Error::from(ErrorKind::BrokenPipe)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sent bytes, and whether their end was sent.
    fn sent(input: Input) -> (io::Result<()>, Vec<u8>, bool) {
        let (sender, mut requests) = mpsc::channel(4);
        let sending = std::thread::spawn(move || input.send(sender));
        let (mut bytes, mut is_ended) = (Vec::new(), false);
        while let Some(request) = requests.blocking_recv() {
            match request.part.unwrap() {
                Part::Chunk(chunk) => {
                    assert!(!chunk.is_empty() && chunk.len() <= CHUNK_BYTES && !is_ended);
                    bytes.extend(chunk);
                }
                Part::End(_) => is_ended = true,
                Part::Begin(_) => panic!("not here"),
            }
        }
        (sending.join().unwrap(), bytes, is_ended)
    }

    #[test]
    fn a_file_is_sent_as_it_is_with_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..3 * CHUNK_BYTES + 7).map(|at| (at % 251) as u8).collect();
        fs::write(file.path(), &content).unwrap();
        let (outcome, bytes, is_ended) = sent(Input::open(file.path()).unwrap());
        outcome.unwrap();
        assert!(bytes == content && is_ended);
    }

    #[test]
    fn a_directory_is_packed_with_what_a_layout_has_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = dir.path().join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for (name, content) in [("index.json", "{}"), ("oci-layout", "v"), ("private.key", "secret")] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        fs::write(blobs.join("aa"), "blob").unwrap();
        let (outcome, bytes, is_ended) = sent(Input::open(dir.path()).unwrap());
        outcome.unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let names: Vec<_> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
        let expected = ["oci-layout", "index.json", "blobs/sha256/aa"].map(PathBuf::from);
        assert!(names == expected && is_ended, "{names:?}");
    }

    #[test]
    fn what_cannot_be_read_has_no_end() {
        let dir = tempfile::tempdir().unwrap();
        let error = Input::open(dir.path()).unwrap_err().to_string();
        assert_eq!(error, "the directory is no OCI image layout: it has no index.json");
        assert!(Input::open(&dir.path().join("nothing")).is_err());
        // A directory cannot be read as a file.
        let (outcome, _, is_ended) = sent(Input::File(File::open(dir.path()).unwrap()));
        assert!(outcome.is_err() && !is_ended);
    }

    #[test]
    fn a_daemon_that_takes_no_more_is_no_error_of_the_archive() {
        let (sender, requests) = mpsc::channel(1);
        drop(requests);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![0; 2 * CHUNK_BYTES]).unwrap();
        Input::open(file.path()).unwrap().send(sender).unwrap();
    }
}
