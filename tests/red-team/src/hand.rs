//! A thread of the VMM or the share in an attacker's hand: it makes the system calls the attacker wants. An
//! attacker's machine code could do no more to the node than its calls do.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::Context;
use libc::{c_long, user_regs_struct};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::tracer::{Seen, Tracer};

/// Memory in the process for the calls' texts and structures, in bytes.
const ROOM_BYTES: u64 = 64 << 10;

/// `syscall` (Intel SDM, volume 2).
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The values of an interrupted call before the kernel starts it again (include/linux/errno.h), and its value
/// for a program.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// Highest error number of the kernel (include/linux/err.h).
const ERRORS: u64 = 4095;

/// The working directory, in place of a descriptor.
pub(crate) const HERE: u64 = libc::AT_FDCWD as i64 as u64;

/// Why an attempt did not succeed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A call failed.
    Error(Errno),
    /// The process was killed.
    Killed(Signal),
    /// The thread is no more: its process runs another program.
    Replaced,
    /// All calls succeeded, without the effect.
    NoEffect,
    /// The attempt itself failed: a fault of this program or of the node.
    Fault(anyhow::Error),
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Refusal {
        Refusal::Fault(error)
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        Refusal::Fault(error.into())
    }
}

/// The outcome of an attempt or of a part of it.
pub(crate) type Tried<T = ()> = Result<T, Refusal>;

#[derive(Debug)]
pub(crate) struct Hand<'a> {
    tracer: &'a mut Tracer,
    thread: Pid,
    memory: File,
    registers: user_regs_struct,
    /// Address of a `syscall` instruction.
    entry: u64,
    /// Next free address for texts and structures.
    free: u64,
    end: u64,
}

impl Hand<'_> {
    /// Takes a thread over.
    pub(crate) fn take(tracer: &mut Tracer, thread: Pid) -> Tried<Hand<'_>> {
        tracer.hold(thread)?;
        let memory = File::options().read(true).write(true).open(format!("/proc/{thread}/mem"))?;
        let entry = find_entry(thread, &memory)?;
        let registers = ptrace::getregs(thread).context("reading registers")?;
        let mut hand = Hand { tracer, thread, memory, registers, entry, free: 0, end: 0 };
        let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        hand.free = hand.call(libc::SYS_mmap, &[0, ROOM_BYTES, access, kind, u64::MAX, 0])?;
        hand.end = hand.free + ROOM_BYTES;
        Ok(hand)
    }

    /// Makes a call and returns its value.
    pub(crate) fn call(&mut self, number: c_long, arguments: &[u64]) -> Tried<u64> {
        let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
        let mut registers = self.registers;
        registers.rip = self.entry;
        registers.rax = number.cast_unsigned();
        // Otherwise the kernel would start the interrupted call again.
        registers.orig_rax = u64::MAX;
        (registers.rdi, registers.rsi, registers.rdx) = (argument(0), argument(1), argument(2));
        (registers.r10, registers.r8, registers.r9) = (argument(3), argument(4), argument(5));
        ptrace::setregs(self.thread, registers).context("writing registers")?;
        for _ in ["into the call", "out of it"] {
            self.go_to_next_call()?;
        }
        let value = ptrace::getregs(self.thread).context("reading registers")?.rax;
        // The kernel puts the number back into the register before it kills a caller by a filter.
        if value == number.cast_unsigned() && self.is_condemned()? {
            self.go_to_next_call()?;
        }
        match value.wrapping_neg() {
            error @ 1..=ERRORS => Err(Refusal::Error(Errno::from_raw(i32::try_from(error).unwrap_or(0)))),
            _ => Ok(value),
        }
    }

    /// Returns true if the thread has a SIGSYS to die of.
    fn is_condemned(&self) -> Tried<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.thread))?;
        let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:\t"));
        let pending = pending.and_then(|set| u64::from_str_radix(set, 16).ok()).context("reading signals")?;
        Ok(pending & 1 << (libc::SIGSYS - 1) != 0)
    }

    fn go_to_next_call(&mut self) -> Tried {
        loop {
            match ptrace::syscall(self.thread, None) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(Refusal::Fault(error.into())),
            }
            match self.tracer.wait_for(self.thread)? {
                Seen::Call => return Ok(()),
                Seen::Gone(Some(signal)) => return Err(Refusal::Killed(signal)),
                Seen::Gone(None) => return Err(Refusal::Replaced),
                // Signals are dropped.
                Seen::Stop | Seen::Other(_) => {}
            }
        }
    }

    /// Puts bytes into the process. Returns their address.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Tried<u64> {
        let at = self.free;
        let length = bytes.len().next_multiple_of(16) as u64;
        if at + length > self.end {
            return Err(Refusal::Fault(anyhow::anyhow!("the attempt has too much data")));
        }
        self.memory.write_all_at(bytes, at)?;
        self.free += length;
        Ok(at)
    }

    /// Puts a text with a zero behind it.
    pub(crate) fn text(&mut self, text: &str) -> Tried<u64> {
        self.put(&[text.as_bytes(), &[0]].concat())
    }

    /// Reads bytes of the process.
    pub(crate) fn get(&mut self, at: u64, length: usize) -> Tried<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.memory.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Opens a path of the process's.
    pub(crate) fn open(&mut self, path: &str, flags: i32) -> Tried<u64> {
        let path = self.text(path)?;
        self.call(libc::SYS_openat, &[HERE, path, flags.cast_unsigned().into(), 0o600])
    }

    /// Tries with each of the texts until one succeeds. Returns the last refusal if none does.
    pub(crate) fn first<T>(
        &mut self,
        texts: &[String],
        mut attempt: impl FnMut(&mut Self, u64) -> Tried<T>,
    ) -> Tried<T> {
        let mut last = Err(Refusal::NoEffect);
        for text in texts {
            let text = self.text(text)?;
            last = attempt(self, text);
            if !matches!(last, Err(Refusal::Error(_))) {
                break;
            }
        }
        last
    }

    /// The process's descriptors that are sockets.
    pub(crate) fn sockets(&self) -> Tried<Vec<u64>> {
        let mut sockets = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.thread))?.flatten() {
            let is_socket =
                fs::read_link(entry.path()).is_ok_and(|file| file.to_string_lossy().starts_with("socket:"));
            if let (true, Some(Ok(number))) = (is_socket, entry.file_name().to_str().map(str::parse)) {
                sockets.push(number);
            }
        }
        Ok(sockets)
    }
}

/// Lets the thread go on with its own work.
impl Drop for Hand<'_> {
    fn drop(&mut self) {
        let mut registers = self.registers;
        if RESTARTS.contains(&registers.rax.cast_signed()) {
            registers.rax = INTERRUPTED.cast_unsigned();
            registers.orig_rax = u64::MAX;
        }
        // Both fail if the thread is gone.
        let _ = ptrace::setregs(self.thread, registers);
        let _ = ptrace::cont(self.thread, None);
    }
}

/// Finds the instruction in the code that the kernel maps into each process.
fn find_entry(thread: Pid, memory: &File) -> anyhow::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{thread}/maps"))?;
    let vdso = maps.lines().find(|line| line.ends_with("[vdso]")).context("there is no vdso")?;
    let (start, end) = vdso.split(' ').next().and_then(|range| range.split_once('-')).context("a range")?;
    let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
    let mut code = vec![0; usize::try_from(end - start)?];
    memory.read_exact_at(&mut code, start)?;
    let at = code.windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL).context("no call in the vdso")?;
    Ok(start + at as u64)
}
