//! A command's output, bounded for an answer: the beginning, and a mark if the rest is missing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use runtime_pieces::Pieces;
use tokio::sync::watch;

/// Most bytes kept of a command's two streams together. The kubelet accepts answers of 16 MiB, including the
/// rest of the answer and [`MARKER`] twice. Further bytes are read and dropped.
const KEPT_BYTES: usize = (16 << 20) - 4096;

/// Guaranteed bytes of each stream among them: much output leaves room for the errors.
const OWN_BYTES: usize = 1 << 20;

/// Appended to the kept bytes if something was dropped.
const MARKER: &[u8] = b"\n[podvisor: the output was cut here, since an answer holds no more than 16 MiB]\n";

/// Remaining room for either of a command's streams.
#[derive(Clone, Debug)]
pub(crate) struct CaptureRoom(Arc<AtomicUsize>);

impl Default for CaptureRoom {
    fn default() -> Self {
        CaptureRoom(Arc::new(AtomicUsize::new(KEPT_BYTES - 2 * OWN_BYTES)))
    }
}

impl CaptureRoom {
    /// As many of the wanted bytes as there is room for.
    fn take(&self, wanted: usize) -> usize {
        let left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(wanted)));
        left.unwrap_or_else(|left| left).min(wanted)
    }
}

/// The beginning of a stream. It is read to its end even if the caller has gone: a command with unread output
/// would block.
pub(crate) struct CapturedOutput {
    beginning: Arc<Mutex<Beginning>>,
    done: watch::Receiver<bool>,
}

#[derive(Default)]
struct Beginning {
    bytes: Vec<u8>,
    cut: bool,
}

impl CapturedOutput {
    pub(crate) fn read(output: Pieces, room: &CaptureRoom) -> CapturedOutput {
        let (beginning, room) = (Arc::<Mutex<Beginning>>::default(), room.clone());
        let (finished, done) = watch::channel(false);
        let kept = beginning.clone();
        tokio::spawn(async move {
            read(output, &room, &kept).await;
            finished.send_replace(true);
        });
        CapturedOutput { beginning, done }
    }

    pub(crate) async fn finished(&self) {
        // A dropped reader has finished too.
        let _ = self.done.clone().wait_for(|done| *done).await;
    }

    /// Takes the bytes kept so far.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        // Later bytes are not kept: no one would take them.
        let Beginning { mut bytes, cut } =
            std::mem::replace(&mut *beginning, Beginning { bytes: Vec::new(), cut: true });
        if cut {
            bytes.extend_from_slice(MARKER);
        }
        bytes
    }
}

/// Reads to the end and keeps the beginning. A broken stream ends there.
async fn read(output: Pieces, room: &CaptureRoom, kept: &Mutex<Beginning>) {
    let mut pieces = output.into_held();
    let mut own = OWN_BYTES;
    while let Ok(Some(piece)) = pieces.next().await
        && let Ok(piece) = piece.into_bytes()
    {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        // After a gap nothing may be kept: it would look contiguous.
        let count = if kept.cut {
            0
        } else {
            let count = own.min(piece.len());
            own -= count;
            count + room.take(piece.len() - count)
        };
        kept.cut |= count < piece.len();
        kept.bytes.extend_from_slice(&piece[..count]);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn output(bytes: Vec<u8>) -> Pieces {
        Pieces::held(std::io::Cursor::new(bytes))
    }

    #[tokio::test]
    async fn both_streams_fit_one_answer_and_what_is_cut_says_so() {
        let room = CaptureRoom::default();
        let kept = CapturedOutput::read(output(vec![b'x'; KEPT_BYTES]), &room);
        kept.finished().await;
        let errors = CapturedOutput::read(output(vec![b'y'; OWN_BYTES + 1]), &room);
        errors.finished().await;
        let (kept, errors) = (kept.take(), errors.take());
        assert_eq!(kept.len(), KEPT_BYTES - OWN_BYTES + MARKER.len());
        assert_eq!(errors.len(), OWN_BYTES + MARKER.len());
        assert!(kept.ends_with(MARKER) && errors.ends_with(MARKER) && kept.len() + errors.len() < 16 << 20);
    }

    #[tokio::test]
    async fn what_fits_exactly_is_not_cut() {
        let kept = CapturedOutput::read(output(vec![b'x'; KEPT_BYTES - OWN_BYTES]), &CaptureRoom::default());
        kept.finished().await;
        assert_eq!(kept.take().len(), KEPT_BYTES - OWN_BYTES);
    }

    #[tokio::test]
    async fn a_stream_is_read_to_its_end_though_nobody_waits_for_it() {
        let (mut command, output) = tokio::io::duplex(64);
        drop(CapturedOutput::read(Pieces::held(output), &CaptureRoom::default()));
        command.write_all(&[b'x'; 10_000]).await.unwrap();
    }
}
