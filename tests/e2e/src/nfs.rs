//! An NFS export with root_squash, served by the node's own kernel to the node itself: root has no rights
//! there.
//!
//! The kernel's server asks a daemon about each client and its exports, through files of `/proc/net/rpc`
//! (Documentation/filesystems/nfs/rpc-cache.rst, net/sunrpc/cache.c and fs/nfsd/export.c for the lines). The
//! answers here are the same for every client, so no package is needed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::disk::run;

/// The client's domain, an answer without expiry, and the users mapped from root.
const DOMAIN: &str = "everyone";
const FOR_GOOD: u32 = u32::MAX;
const NOBODY: u32 = 65_534;
/// include/uapi/linux/nfsd/export.h: NFSEXP_ROOTSQUASH, NFSEXP_INSECURE_PORT, NFSEXP_NOSUBTREECHECK, and
/// NFSEXP_FSID. The last one makes the directory the root of version 4's names.
const FLAGS: u32 = 0x4 | 0x2 | 0x400 | 0x2000;
/// Grace seconds of a server after a start, without opens of files: the minimum.
const GRACE: &str = "10";
const LINE_BYTES_MAX: usize = 4096;

/// The export, mounted. There is one at a time.
#[derive(Debug)]
pub struct Nfs {
    exported: PathBuf,
    mounted: PathBuf,
    /// Ends the answers when it is closed.
    stop: Option<std::io::PipeWriter>,
    answers: Option<JoinHandle<Result<()>>>,
}

impl Nfs {
    /// Exports a new tmpfs of `dir` and mounts the export beside it.
    ///
    /// # Errors
    /// When the node's kernel has no NFS, or refuses.
    pub fn export(dir: &Path) -> Result<Nfs> {
        let (exported, mounted) = (dir.join("exported"), dir.join("mounted"));
        for module in ["nfsd", "nfsv4"] {
            run(Command::new("modprobe").arg(module))?;
        }
        for made in [&exported, &mounted] {
            fs::create_dir(made)?;
        }
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "tmpfs"]).arg(&exported))?;
        run(Command::new("mount").args(["-t", "nfsd", "nfsd", "/proc/fs/nfsd"]))?;
        let (stopped, stop) = std::io::pipe()?;
        let answering = Answers::open(&exported)?;
        let answers = Some(std::thread::spawn(move || answering.serve(&stopped)));
        let nfs = Nfs { exported, mounted, stop: Some(stop), answers };
        for (file, value) in [
            ("nfsv4leasetime", GRACE),
            ("nfsv4gracetime", GRACE),
            ("versions", "-3 +4"),
            ("portlist", "tcp 2049"),
            ("threads", "4"),
        ] {
            let path = format!("/proc/fs/nfsd/{file}");
            fs::write(&path, format!("{value}\n")).with_context(|| path)?;
        }
        let options = "vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,sec=sys";
        run(Command::new("mount")
            .args(["-i", "-t", "nfs4", "-o", options, "127.0.0.1:/"])
            .arg(&nfs.mounted))?;
        Ok(nfs)
    }

    /// The directory on the server. Root is root there.
    #[must_use]
    pub fn exported(&self) -> &Path {
        &self.exported
    }

    /// The mount.
    #[must_use]
    pub fn mounted(&self) -> &Path {
        &self.mounted
    }
}

impl Drop for Nfs {
    fn drop(&mut self) {
        // A VM left by a failed test may still hold a file.
        let _ = Command::new("umount").args(["-l", "-f"]).arg(&self.mounted).output();
        let _ = fs::write("/proc/fs/nfsd/threads", "0\n");
        drop(self.stop.take());
        if let Some(Err(error)) = self.answers.take().and_then(|answers| answers.join().ok()) {
            eprintln!("e2e: the NFS server's questions were not answered: {error:#}");
        }
        let _ = Command::new("umount").arg("/proc/fs/nfsd").output();
        let _ = Command::new("umount").arg("-l").arg(&self.exported).output();
    }
}

/// The kernel's questions.
struct Answers {
    client: File,
    file_handle: File,
    export: File,
    exported: String,
}

impl Answers {
    fn open(exported: &Path) -> Result<Answers> {
        let channel = |cache: &str| {
            let path = format!("/proc/net/rpc/{cache}/channel");
            File::options().read(true).write(true).open(&path).with_context(|| path)
        };
        Ok(Answers {
            client: channel("auth.unix.ip")?,
            file_handle: channel("nfsd.fh")?,
            export: channel("nfsd.export")?,
            exported: exported.display().to_string(),
        })
    }

    /// Answers until the other end of the pipe is closed.
    fn serve(&self, stopped: &std::io::PipeReader) -> Result<()> {
        let files = [&self.client, &self.file_handle, &self.export];
        loop {
            let mut polled = files.map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)).to_vec();
            polled.push(PollFd::new(stopped.as_fd(), PollFlags::POLLIN));
            poll(&mut polled, PollTimeout::NONE)?;
            let is_ready = |polled: &PollFd<'_>| polled.any().unwrap_or(true);
            if is_ready(&polled[files.len()]) {
                return Ok(());
            }
            for (file, _) in files.iter().zip(&polled).filter(|(_, polled)| is_ready(polled)) {
                self.answer(file)?;
            }
        }
    }

    fn answer(&self, mut file: &File) -> Result<()> {
        let mut line = vec![0; LINE_BYTES_MAX];
        let length = file.read(&mut line)?;
        let line = String::from_utf8(line[..length].to_vec())?;
        let words: Vec<_> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["nfsd", address] => format!("nfsd {address} {FOR_GOOD} {DOMAIN}\n"),
            [domain, kind, id] => format!("{domain} {kind} {id} {FOR_GOOD} {}\n", self.exported),
            [domain, path] if path == self.exported => {
                format!("{domain} {path} {FOR_GOOD} {FLAGS} {NOBODY} {NOBODY} 0\n")
            }
            [domain, path] => format!("{domain} {path} {FOR_GOOD}\n"),
            _ => anyhow::bail!("a question in a form that is not known: {line:?}"),
        };
        file.write_all(answer.as_bytes()).context(answer)
    }
}
