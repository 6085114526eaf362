//! Copies streams through real files: order, rotation, full disks, batching.

// The steps below are the tests' own; clippy's exception for tests knows marked functions only.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use runtime_blocking::Pool;
use runtime_logs::{LineEnd, LogFile, LogStream, copy};
use tokio::io::AsyncWriteExt;

fn pool() -> Pool {
    Pool::new("logs", 2)
}

/// Copies all of `input` and returns the acknowledgements.
async fn copy_all(input: &[u8], stream: LogStream, log: &LogFile) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let acknowledge = |total| {
        acknowledged.push(total);
        std::future::ready(())
    };
    assert_eq!(copy(input, stream, LineEnd::Newline, log, acknowledge).await.unwrap(), input.len() as u64);
    acknowledged
}

/// The stream, flag and content of each line. Fails on an invalid CRI line.
fn lines(path: &Path) -> Vec<(String, String, String)> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the log ends within a line");
    let parse = |line: &str| {
        let parts: Vec<_> = line.splitn(4, ' ').collect();
        let [time, stream, flag, content] = parts[..] else { panic!("torn line {line:?}") };
        let fraction = time.strip_suffix('Z').and_then(|time| time.split_once('.')).unwrap().1;
        assert_eq!(fraction.len(), 9, "{line:?}");
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{line:?}");
        assert!(matches!(stream, "stdout" | "stderr") && matches!(flag, "P" | "F"), "{line:?}");
        (stream.to_owned(), flag.to_owned(), content.to_owned())
    };
    text.lines().map(parse).collect()
}

fn line(stream: &str, flag: &str, content: &str) -> (String, String, String) {
    (stream.to_owned(), flag.to_owned(), content.to_owned())
}

#[tokio::test]
async fn lines_arrive_and_are_acknowledged_to_the_last_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pods/web/0.log");
    let log = LogFile::open(&path, &pool()).await.unwrap();
    let acknowledged = copy_all(b"one\ntwo", LogStream::Stdout, &log).await;
    assert_eq!(acknowledged, [4, 7]);
    assert_eq!(lines(&path), [line("stdout", "F", "one"), line("stdout", "P", "two")]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777 & !0o640, 0);
}

#[tokio::test]
async fn what_waits_for_its_newline_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let log = LogFile::open(&path, &pool()).await.unwrap();
    let broken = breaking_off_after(b"whole\nhalf");
    let acknowledged = Arc::new(AtomicU64::new(0));
    let latest = Arc::clone(&acknowledged);
    let acknowledge = move |total| {
        latest.store(total, Ordering::SeqCst);
        std::future::ready(())
    };
    copy(broken, LogStream::Stdout, LineEnd::Newline, &log, acknowledge).await.unwrap_err();
    assert_eq!(acknowledged.load(Ordering::SeqCst), 6);
    // The next copy goes on at byte 6.
    copy_all(b"half\n", LogStream::Stdout, &log).await;
    assert_eq!(lines(&path), [line("stdout", "F", "whole"), line("stdout", "F", "half")]);
}

/// Gives `bytes`, then an error instead of an end.
fn breaking_off_after(bytes: &'static [u8]) -> impl tokio::io::AsyncRead + Unpin {
    struct Broken(&'static [u8]);
    impl tokio::io::AsyncRead for Broken {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            if self.0.is_empty() {
                return std::task::Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()));
            }
            buffer.put_slice(std::mem::take(&mut self.0));
            std::task::Poll::Ready(Ok(()))
        }
    }
    Broken(bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_interleave_by_whole_lines_and_rotation_loses_none() {
    const LINES: usize = 20_000;
    const ROTATIONS: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let log = LogFile::open(&path, &pool()).await.unwrap();
    let copiers = [LogStream::Stdout, LogStream::Stderr].map(|stream| {
        let log = log.clone();
        let (mut writer, reader) = tokio::io::duplex(4096);
        tokio::spawn(async move {
            for number in 0..LINES {
                writer.write_all(format!("{number} {}\n", "x".repeat(number % 90)).as_bytes()).await.unwrap();
            }
        });
        tokio::spawn(
            async move { copy(reader, stream, LineEnd::Newline, &log, |_| std::future::ready(())).await },
        )
    });
    let mut files = vec![path.clone()];
    for number in 0..ROTATIONS {
        let moved = dir.path().join(format!("{number}.old"));
        fs::rename(&path, &moved).unwrap();
        log.reopen().await.unwrap();
        assert!(path.exists(), "the new file must be there when reopen returns");
        let size = fs::metadata(&moved).unwrap().len();
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        assert_eq!(fs::metadata(&moved).unwrap().len(), size, "the old file still grows");
        files.insert(number, moved);
    }
    for copier in copiers {
        copier.await.unwrap().unwrap();
    }
    let all: Vec<_> = files.iter().flat_map(|file| lines(file)).collect();
    for stream in ["stdout", "stderr"] {
        let numbers: Vec<usize> = all
            .iter()
            .filter(|(from, ..)| from == stream)
            .map(|(.., content)| content.split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert!(numbers.into_iter().eq(0..LINES), "{stream} lost, doubled or reordered a line");
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_written_takes_all_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let log = LogFile::open(&path, &pool()).await.unwrap();
    let acknowledged = copy_all(b"lost\nlost too\n", LogStream::Stdout, &log).await;
    assert_eq!(acknowledged, [14], "the container must not be held up");
    fs::remove_file(&path).unwrap();
    log.reopen().await.unwrap();
    copy_all(b"kept\n", LogStream::Stdout, &log).await;
    assert_eq!(lines(&path), [line("stdout", "F", "kept")]);
}

#[test]
fn a_disk_that_fills_up_within_a_line_leaves_no_torn_line() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root, to mount a small disk");
        return;
    }
    let on_small_disk = || {
        use nix::mount::{MsFlags, mount};
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let dir = tempfile::tempdir().unwrap();
        mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let path = dir.path().join("0.log");
            let log = LogFile::open(&path, &pool()).await.unwrap();
            let input = "a line of some length\n".repeat(10_000);
            let acknowledged = copy_all(input.as_bytes(), LogStream::Stdout, &log).await;
            assert_eq!(acknowledged.last(), Some(&(input.len() as u64)));
            let kept = lines(&path).len();
            assert!((500..10_000).contains(&kept), "{kept} lines on a disk of 64 KiB");
            // Room again, in the same file: as when something else was deleted.
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
            copy_all(b"again\n", LogStream::Stdout, &log).await;
            assert_eq!(lines(&path), [line("stdout", "F", "again")]);
        });
        nix::mount::umount2(dir.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    };
    std::thread::spawn(on_small_disk).join().unwrap();
}

#[tokio::test]
async fn without_a_path_everything_is_taken_and_nothing_kept() {
    let log = LogFile::discard();
    assert_eq!(copy_all(b"one\ntwo", LogStream::Stderr, &log).await, [4, 7]);
    log.reopen().await.unwrap();
}

#[tokio::test]
async fn a_chunk_of_empty_lines_is_written_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let log = LogFile::open(&path, &pool()).await.unwrap();
    let acknowledged = copy_all(&vec![b'\n'; 64 << 10], LogStream::Stdout, &log).await;
    assert_eq!(acknowledged.last(), Some(&(64 << 10)));
    let parts = std::iter::once(&0).chain(&acknowledged).zip(&acknowledged).map(|(before, to)| to - before);
    let line_bytes = fs::metadata(&path).unwrap().len() / (64 << 10);
    for part in parts {
        assert!(part > 0 && part * line_bytes <= 192 << 10, "one write of {part} lines");
    }
    assert_eq!(lines(&path).len(), 64 << 10);
}

#[tokio::test]
async fn a_hundred_megabytes_pass_with_one_write_for_many_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let log = LogFile::open(&path, &pool()).await.unwrap();
    let input = "x".repeat(99) + "\n";
    let input = input.repeat(1_000_000);
    let begun = std::time::Instant::now();
    let acknowledged = copy_all(input.as_bytes(), LogStream::Stdout, &log).await;
    eprintln!("100 MB in {:?}", begun.elapsed());
    // One write, and one acknowledgement, for a chunk of some 650 lines.
    assert!(acknowledged.len() < 2_000, "{} writes", acknowledged.len());
    // Time, stream and flag take 40 bytes before each line's 100.
    assert_eq!(fs::metadata(&path).unwrap().len(), 140 * 1_000_000);
}
