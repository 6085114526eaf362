//! Attempts with one wall only, each with the reason why that is enough.

use crate::victim::Role::{self, Share, Vcpu};

/// By role and name.
pub(crate) const ONE_WALL: &[(Role, &str, &str)] = &[
    (Vcpu, "send a descriptor", "nobody reads it, and closing it waits only for files that wait"),
    (Vcpu, "start a process", PROCESS),
    (Share, "start a process", PROCESS),
    (Vcpu, "enter a user namespace", NAMESPACE),
    (Share, "enter a user namespace", NAMESPACE),
    (Vcpu, "map executable memory", PROGRAM),
    (Share, "map executable memory", PROGRAM),
    (Vcpu, "set up an I/O ring", RING),
    (Share, "set up an I/O ring", RING),
    (Share, "take all capabilities", "the kernel's own rule: a process keeps what it gave up"),
    (Share, "change the mode of a file of the node", "Landlock has no right for modes"),
    (Share, "open a file beside the volume by its handle", HANDLE),
    (Share, "open a device in the volume", "the kernel's own rule: a mount's flag"),
    (Share, "leave a key to the node's root", "a process of root has root's keyring"),
];

const HANDLE: &str = "linking an open file takes the same capability, and Landlock lets a mount's files pass";
const PROCESS: &str = "the cgroup bounds processes and is emptied at the pod's end";
const NAMESPACE: &str = "it gives rights over nothing outside";
const PROGRAM: &str = "code that is there can be used as well";
const RING: &str = "it does what its process may do";

/// The reason for an attempt's single wall, if it is accepted.
pub(crate) fn reason(role: Role, name: &str) -> Option<&'static str> {
    let found = ONE_WALL.iter().find(|(one, attempt, _)| (*one, *attempt) == (role, name));
    found.map(|(_, _, reason)| *reason)
}
