//! Files of the node, outside the pod's volumes.

use nix::errno::Errno;

use crate::attempt::{Attempt, BOTH, SHARE, attempt, change};
use crate::hand::{HERE, Hand, Refusal, Tried};
use crate::node::{Node, SECRET};

pub(super) const ALL: &[Attempt] = &[
    attempt("read a file of the node", BOTH, read),
    attempt("read a file of the node upwards", BOTH, read_upwards),
    attempt("read a file of the node through a link in the volume", SHARE, read_through_link),
    attempt("read a file of the node through a process's root", BOTH, read_through_proc),
    attempt("open a file beside the volume by its handle", BOTH, open_by_handle),
    attempt("create a file on the node", BOTH, create),
    attempt("rename a file of the node", BOTH, rename),
    attempt("change the mode of a file of the node", BOTH, change_mode),
    attempt("mount over the node's files", BOTH, mount),
    attempt("make a file system", BOTH, open_file_system),
    change("change the root directory", BOTH, change_root),
    attempt("watch all files", BOTH, watch),
];

fn has_secret(hand: &mut Hand, file: u64) -> Tried {
    let room = hand.put(&[0; 64])?;
    hand.call(libc::SYS_read, &[file, room, 64])?;
    let read = hand.get(room, SECRET.len())?;
    if read == SECRET.as_bytes() { Ok(()) } else { Err(Refusal::NoEffect) }
}

fn read(hand: &mut Hand, node: &Node) -> Tried {
    let file = hand.open(&node.path("secret"), libc::O_RDONLY)?;
    has_secret(hand, file)
}

fn read_upwards(hand: &mut Hand, node: &Node) -> Tried {
    let path = format!("{}{}", "../".repeat(16), node.path("secret").trim_start_matches('/'));
    let file = hand.open(&path, libc::O_RDONLY)?;
    has_secret(hand, file)
}

fn read_through_link(hand: &mut Hand, node: &Node) -> Tried {
    let target = hand.text(&node.path("secret"))?;
    let links = node.volumes().map(|volume| format!("{volume}/link"));
    let opened = hand.first(&links, |hand, link| {
        match hand.call(libc::SYS_symlinkat, &[target, HERE, link]) {
            Ok(_) | Err(Refusal::Error(Errno::EEXIST)) => {}
            Err(refusal) => return Err(refusal),
        }
        hand.call(libc::SYS_openat, &[HERE, link, 0, 0])
    })?;
    has_secret(hand, opened)
}

fn read_through_proc(hand: &mut Hand, node: &Node) -> Tried {
    let file = hand.open(&format!("/proc/1/root{}", node.path("secret")), libc::O_RDONLY)?;
    has_secret(hand, file)
}

/// Opens the top of the disk by its well-known handle, and the secret from there. The share has the
/// capability for it (CAP_DAC_READ_SEARCH).
fn open_by_handle(hand: &mut Hand, node: &Node) -> Tried {
    /// `FILEID_INO32_GEN` (include/linux/exportfs.h), and ext4's first directory.
    const KIND: u32 = 1;
    const TOP: u32 = 2;
    let handle = hand.put(&[8, KIND, TOP, 0].map(u32::to_le_bytes).concat())?;
    let volumes = node.volumes();
    let volume = hand.first(&volumes, |hand, path| {
        hand.call(libc::SYS_openat, &[HERE, path, libc::O_DIRECTORY as u64, 0])
    })?;
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY) as u64;
    let top = hand.call(libc::SYS_open_by_handle_at, &[volume, handle, flags])?;
    let name = hand.text("secret")?;
    let file = hand.call(libc::SYS_openat, &[top, name, 0, 0])?;
    has_secret(hand, file)
}

fn create(hand: &mut Hand, node: &Node) -> Tried {
    let path = node.path("created");
    hand.open(&path, libc::O_CREAT | libc::O_WRONLY)?;
    let is_there = std::path::Path::new(&path).exists();
    let _ = std::fs::remove_file(&path);
    if is_there { Ok(()) } else { Err(Refusal::NoEffect) }
}

fn rename(hand: &mut Hand, node: &Node) -> Tried {
    let (old, new) = (node.path("renamed"), node.path("renamed-by-an-attacker"));
    std::fs::write(&old, "")?;
    let (from, to) = (hand.text(&old)?, hand.text(&new)?);
    let done = hand.call(libc::SYS_renameat2, &[HERE, from, HERE, to, 0]);
    let is_there = std::fs::remove_file(&new).is_ok();
    done?;
    if is_there { Ok(()) } else { Err(Refusal::NoEffect) }
}

fn change_mode(hand: &mut Hand, node: &Node) -> Tried {
    let path = node.path("changed");
    std::fs::write(&path, "")?;
    let name = hand.text(&path)?;
    hand.call(libc::SYS_fchmodat, &[HERE, name, 0o4777]).map(drop)
}

fn mount(hand: &mut Hand, node: &Node) -> Tried {
    let (kind, place) = (hand.text("tmpfs")?, hand.text(&node.path("mounted"))?);
    hand.call(libc::SYS_mount, &[kind, place, kind, 0, 0])?;
    // It has come to the node, if mounts do.
    let _ = nix::mount::umount2(node.path("mounted").as_str(), nix::mount::MntFlags::MNT_DETACH);
    Ok(())
}

fn open_file_system(hand: &mut Hand, _: &Node) -> Tried {
    let kind = hand.text("tmpfs")?;
    hand.call(libc::SYS_fsopen, &[kind, 0]).map(drop)
}

fn change_root(hand: &mut Hand, _: &Node) -> Tried {
    let place = hand.text("/")?;
    hand.call(libc::SYS_chroot, &[place]).map(drop)
}

/// Events of all files with a say in their opening (fanotify(7)).
fn watch(hand: &mut Hand, _: &Node) -> Tried {
    let with_content = u64::from(libc::FAN_CLASS_CONTENT);
    hand.call(libc::SYS_fanotify_init, &[with_content, 0]).map(drop)
}
