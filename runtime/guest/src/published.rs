//! Versions of published volumes, split into pieces for sending. Pure. The bytes are secrets; no text shows
//! them.

use std::fmt;

use proto_agent::agent::{self, PublishVolumeRequest};
use runtime_spec::FileAccess;

use crate::convert;

/// Bytes of files in one piece: well below the limit of a message (4 MiB, ttrpc's `MESSAGE_LENGTH_MAX`), and
/// little memory during the transfer.
const PIECE_BYTES: usize = 64 << 10;

/// Files in one piece. Their names and access take 1 MiB if all names have the maximum length.
const PIECE_FILES: usize = 256;

/// A version of a volume, replaced as a whole.
#[derive(Clone, Debug)]
pub struct PublishedVersion {
    /// Name of the volume in the guest.
    pub volume: String,
    /// Container of the volume; `None` for a volume of the pod.
    pub container_id: Option<String>,
    /// Name of the version's directory; `None` for a volume without versions.
    pub version: Option<String>,
    /// Access to the volume's directory.
    pub root: FileAccess,
    /// Access to the version's directory.
    pub top: FileAccess,
    /// Parents come before their children.
    pub files: Vec<PublishedFile>,
}

/// A file or a directory of a version.
#[derive(Clone, PartialEq, Eq)]
pub struct PublishedFile {
    /// Path in the version.
    pub path: String,
    /// Access to the file.
    pub access: FileAccess,
    /// Bytes of a file; `None` for a directory.
    pub content: Option<Vec<u8>>,
}

impl fmt::Debug for PublishedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl PublishedVersion {
    /// The first request of the transfer, without files.
    pub(crate) fn begin(&self, transfer: u64) -> PublishVolumeRequest {
        PublishVolumeRequest { first: true, ..self.piece(transfer) }
    }

    /// The remaining pieces; the last one puts the version in place.
    pub(crate) fn pieces(&self, transfer: u64) -> Pieces<'_> {
        Pieces { version: self, transfer, next: 0, offset: 0, done: false }
    }

    fn piece(&self, transfer: u64) -> PublishVolumeRequest {
        PublishVolumeRequest {
            volume: self.volume.clone(),
            container_id: self.container_id.clone().unwrap_or_default(),
            transfer,
            version: self.version.clone().unwrap_or_default(),
            root: Some(convert::file_access(self.root)).into(),
            top: Some(convert::file_access(self.top)).into(),
            ..PublishVolumeRequest::default()
        }
    }
}

/// Pieces of a version, made one by one.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    version: &'a PublishedVersion,
    transfer: u64,
    /// Index of the current file, and the offset in it.
    next: usize,
    offset: usize,
    done: bool,
}

impl Iterator for Pieces<'_> {
    type Item = PublishVolumeRequest;

    fn next(&mut self) -> Option<PublishVolumeRequest> {
        if self.done {
            return None;
        }
        let mut piece = self.version.piece(self.transfer);
        let mut room = PIECE_BYTES;
        while let Some(file) = self.version.files.get(self.next) {
            if room == 0 || piece.files.len() == PIECE_FILES {
                return Some(piece);
            }
            let rest = file.content.as_deref().unwrap_or_default().get(self.offset..).unwrap_or_default();
            let (now, later) = rest.split_at(rest.len().min(room));
            piece.files.push(agent::PublishedFile {
                path: file.path.clone(),
                access: Some(convert::file_access(file.access)).into(),
                directory: file.content.is_none(),
                offset: u64::try_from(self.offset).unwrap_or(u64::MAX),
                content: now.to_vec(),
                ..agent::PublishedFile::default()
            });
            room -= now.len();
            if later.is_empty() {
                self.next += 1;
                self.offset = 0;
            } else {
                self.offset += now.len();
            }
        }
        piece.last = true;
        self.done = true;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use protobuf::Message;

    use super::*;

    fn version(sizes: &[usize]) -> PublishedVersion {
        let access = FileAccess { mode: 0o640, uid: 0, gid: 2000 };
        let file = |(number, size): (usize, &usize)| PublishedFile {
            path: format!("file{number}"),
            access,
            content: Some((0..*size).map(|byte| u8::try_from(byte % 251).unwrap()).collect()),
        };
        let directory = PublishedFile { path: "d".into(), access, content: None };
        let files = std::iter::once(directory).chain(sizes.iter().enumerate().map(file)).collect();
        PublishedVersion {
            volume: "v".into(),
            container_id: None,
            version: Some("..1".into()),
            root: access,
            top: access,
            files,
        }
    }

    #[test]
    fn the_pieces_of_a_version_are_small_and_make_all_of_it() {
        for sizes in
            [vec![], vec![0], vec![1, 0, 3], vec![PIECE_BYTES, 1], vec![3 * PIECE_BYTES + 5], vec![9; 600]]
        {
            let sent = version(&sizes);
            let begin = sent.begin(3);
            assert!(begin.first && !begin.last && begin.files.is_empty());
            let mut received: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            let pieces: Vec<_> = sent.pieces(3).collect();
            for piece in &pieces {
                assert!(piece.compute_size() < 4 << 20);
                assert!(!piece.first && piece.transfer == 3 && piece.version == "..1");
                for file in &piece.files {
                    let content = received.entry(file.path.clone()).or_default();
                    assert_eq!(u64::try_from(content.len()).unwrap(), file.offset);
                    content.extend_from_slice(&file.content);
                }
            }
            let wanted: BTreeMap<_, _> = sent
                .files
                .iter()
                .map(|file| (file.path.clone(), file.content.clone().unwrap_or_default()))
                .collect();
            assert_eq!(received, wanted);
            assert_eq!(pieces.iter().filter(|piece| piece.last).count(), 1);
            assert!(pieces.last().unwrap().last);
        }
    }

    #[test]
    fn no_text_shows_the_bytes() {
        let mut secret = version(&[]);
        secret.files.push(PublishedFile {
            path: "password".into(),
            access: FileAccess::default(),
            content: Some(b"hunter2".to_vec()),
        });
        let shown = format!("{secret:?} {secret:#?}");
        assert!(!shown.contains("hunter2") && !shown.contains("104"), "{shown}");
    }
}
