//! The user and group of a request on the host. They are the program's in the guest, set as the kernel's
//! ids for files (setfsuid(2)). On the node's own file systems they decide the owner of a new file. A
//! server of files (NFS with root_squash, for one) gives a user its rights on the node, and gives root
//! none.
//!
//! The guest's kernel has decided already if the program may, and the thread keeps its capabilities. A
//! request does not name the program's other groups: the channel's thread has those of the pod (`link`).
//! Only the kernel's file systems look at these ids. With the real or effective ones, a process of this
//! user on the node could send the share signals.

use std::cell::Cell;
use std::io;

use fuse_backend_rs::api::filesystem::Context;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::Share;

/// No id. Asking for it changes nothing, and the answer is the present one.
const NONE: u32 = u32::MAX;

thread_local! {
    /// User and group of this thread's requests, once known. Most requests come from the user of the one
    /// before.
    static PRESENT: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
}

impl Share {
    /// Runs a request as the caller. If its user is refused, the request is tried as root, because of
    /// groups unknown here.
    pub(super) fn as_caller<T>(&self, ctx: &Context, request: impl Fn() -> io::Result<T>) -> io::Result<T> {
        as_caller(ctx, request)
    }

    /// Runs a request to make a file of the caller's. It gets the context of root: otherwise the library
    /// would change the thread's effective ids, and look at the new file as root.
    pub(super) fn making<T>(
        &self,
        ctx: &Context,
        request: impl FnOnce(&Context) -> io::Result<T>,
    ) -> io::Result<T> {
        making(ctx, request)
    }

    /// Acts as the caller from here on, until the next request.
    pub(super) fn act_as(&self, ctx: &Context) -> io::Result<()> {
        act_as(ctx)
    }
}

fn as_caller<T>(ctx: &Context, request: impl Fn() -> io::Result<T>) -> io::Result<T> {
    act_as(ctx)?;
    match request() {
        Err(error) if ctx.uid != 0 && is_refusal(&error) => {
            become_user(0, 0)?;
            request()
        }
        outcome => outcome,
    }
}

fn making<T>(ctx: &Context, request: impl FnOnce(&Context) -> io::Result<T>) -> io::Result<T> {
    act_as(ctx)?;
    request(&Context { uid: 0, gid: 0, ..*ctx })
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

fn act_as(ctx: &Context) -> io::Result<()> {
    become_user(ctx.uid, ctx.gid)
}

fn become_user(user: u32, group: u32) -> io::Result<()> {
    let known = PRESENT.get();
    let before = known.unwrap_or_else(present);
    if before == (user, group) {
        PRESENT.set(Some(before));
        return Ok(());
    }
    setfsgid(Gid::from_raw(group));
    setfsuid(Uid::from_raw(user));
    // Neither call reports if it did anything.
    let now = present();
    PRESENT.set(Some(now));
    // A process without the right to be anybody else serves as itself.
    let is_itself = known.is_none_or(|known| known.0 != 0) && now == before && before.0 != 0;
    if now == (user, group) || is_itself { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

fn present() -> (u32, u32) {
    (setfsuid(Uid::from_raw(NONE)).as_raw(), setfsgid(Gid::from_raw(NONE)).as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn caller(uid: u32, gid: u32) -> Context {
        Context { uid, gid, pid: 1 }
    }

    /// Only root may act as others.
    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn each_request_acts_as_its_caller_with_the_ids_for_files_alone() {
        if !is_root() {
            return;
        }
        for (uid, gid) in [(1000, 2000), (1000, 2000), (0, 0), (7, 0), (0, 8)] {
            as_caller(&caller(uid, gid), || {
                let status = std::fs::read_to_string("/proc/thread-self/status")?;
                assert!(status.contains(&format!("Uid:\t0\t0\t0\t{uid}\n")), "{status}");
                assert!(status.contains(&format!("Gid:\t0\t0\t0\t{gid}\n")), "{status}");
                Ok(())
            })
            .unwrap();
        }
    }

    #[test]
    fn what_a_user_is_refused_is_tried_as_root_once() {
        if !is_root() {
            return;
        }
        let asked_as = std::cell::RefCell::new(Vec::new());
        let refuse = |errno| {
            let request = || {
                asked_as.borrow_mut().push(present());
                Err::<(), _>(io::Error::from_raw_os_error(errno))
            };
            as_caller(&caller(1000, 1000), request).unwrap_err().raw_os_error()
        };
        assert_eq!(refuse(libc::EACCES), Some(libc::EACCES));
        assert_eq!(refuse(libc::ENOENT), Some(libc::ENOENT));
        assert_eq!(*asked_as.borrow(), [(1000, 1000), (0, 0), (1000, 1000)]);
    }

    #[test]
    fn a_thread_begins_as_the_one_that_started_it_and_learns_of_it() {
        if !is_root() {
            return;
        }
        act_as(&caller(1000, 1000)).unwrap();
        let seen = std::thread::spawn(|| {
            let before = present();
            act_as(&caller(0, 0)).unwrap();
            (before, present())
        });
        assert_eq!(seen.join().unwrap(), ((1000, 1000), (0, 0)));
    }

    #[test]
    fn a_new_file_is_the_callers_and_the_library_sees_root() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        let path = dir.path().join("file");
        making(&caller(1000, 2000), |ctx| {
            assert_eq!((ctx.uid, ctx.gid), (0, 0));
            std::fs::write(&path, "")
        })
        .unwrap();
        let found = std::fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid()), (1000, 2000));
    }

    #[test]
    fn an_id_that_is_none_is_refused() {
        if !is_root() {
            return;
        }
        assert_eq!(act_as(&caller(NONE, 0)).unwrap_err().raw_os_error(), Some(libc::EPERM));
        act_as(&caller(0, 0)).unwrap();
    }
}
