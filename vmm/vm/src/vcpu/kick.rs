//! Gets a vCPU thread out of the guest with a real-time signal. The signal's handler sets `immediate_exit` in
//! the thread's own `kvm_run`, so a kick just before KVM_RUN is not lost either (KVM API, 5).

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;

use kvm_ioctls::VcpuFd;
use vmm_sys_util::errno::Error as Errno;
use vmm_sys_util::signal::{Killable, SIGRTMIN, register_signal_handler};

thread_local! {
    /// `immediate_exit` of this thread's vCPU; null on other threads.
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(null_mut()) };
}

/// As long as this lives, [`kick`] reaches this thread's vCPU.
pub(super) struct Kickable(PhantomData<*mut u8>);

impl Drop for Kickable {
    fn drop(&mut self) {
        IMMEDIATE_EXIT.set(null_mut());
    }
}

/// Makes the calling thread kickable out of `vcpu`. The vCPU must outlive the result.
pub(super) fn accept(vcpu: &mut VcpuFd) -> Kickable {
    IMMEDIATE_EXIT.set(&raw mut vcpu.get_kvm_run().immediate_exit);
    Kickable(PhantomData)
}

/// Installs the signal's handler, once per process.
pub(super) fn install() -> std::io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed =
        INSTALLED.get_or_init(|| register_signal_handler(SIGRTMIN(), on_kick).map_err(Errno::errno));
    installed.map_err(std::io::Error::from_raw_os_error)
}

/// Kicks a vCPU's thread. It leaves the guest when the signal arrives, at the latest.
pub(super) fn kick(thread: &JoinHandle<()>) {
    // Fails only if the thread has ended, and then there is nothing to kick.
    let _ = thread.kill(SIGRTMIN());
}

extern "C" fn on_kick(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let exit = IMMEDIATE_EXIT.get();
    if !exit.is_null() {
        // SAFETY: `accept` set the pointer on this thread, into the mapping of a vCPU that lives until
        // `Kickable` is dropped on this thread; the thread touches the byte only between signals.
        unsafe { AtomicU8::from_ptr(exit) }.store(1, Ordering::SeqCst);
    }
}
