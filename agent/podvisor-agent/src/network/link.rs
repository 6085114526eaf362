//! Links: found by the kernel's name, moved, renamed, and brought up.

use std::os::fd::{AsRawFd, BorrowedFd};

use futures::TryStreamExt;
use proto_agent::agent::Interface;
use rtnetlink::{Handle, LinkUnspec};

use crate::network::address;
use crate::network::error::NetworkError;
use crate::network::netlink::handle;

/// Index of the loopback link in every network namespace (`LOOPBACK_IFINDEX`).
pub(super) const LOOPBACK: u32 = 1;
/// Longest name of a link: `IFNAMSIZ` less its zero byte.
const NAME_BYTES_MAX: usize = 15;

/// Brings up `lo`.
pub(crate) async fn loopback_up() -> Result<(), NetworkError> {
    let up = LinkUnspec::new_with_index(LOOPBACK).up().build();
    handle()?.link().change(up).execute().await.map_err(failed("bring up", "lo"))
}

/// Moves a link to another network namespace.
pub(super) async fn move_to(
    handle: &Handle,
    device: &str,
    namespace: BorrowedFd<'_>,
) -> Result<(), NetworkError> {
    let index = find(handle, device).await?;
    let message = LinkUnspec::new_with_index(index).setns_by_fd(namespace.as_raw_fd()).build();
    handle.link().change(message).execute().await.map_err(failed("move", device))
}

/// Returns the index of the link with this name.
async fn find(handle: &Handle, device: &str) -> Result<u32, NetworkError> {
    let mut found = handle.link().get().match_name(device.to_owned()).execute();
    let link = found.try_next().await.map_err(failed("find", device))?;
    Ok(link.ok_or_else(|| NetworkError::NoInterface(device.to_owned()))?.header.index)
}

/// Sets the device's name, MAC and MTU from the request, and brings it up. Returns the link's index.
pub(super) async fn configure(
    handle: &Handle,
    interface: &Interface,
    device: &str,
) -> Result<u32, NetworkError> {
    let name = interface.name.as_str();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(['/', ' ', '\0']) {
        return Err(NetworkError::Malformed {
            what: "interface name",
            text: name.chars().take(64).collect(),
        });
    }
    let index = find(handle, device).await?;
    let mut message = LinkUnspec::new_with_index(index);
    if device != name {
        message = message.name(name);
    }
    if !interface.mac.is_empty() {
        message = message.address(address::mac(&interface.mac)?);
    }
    if interface.mtu != 0 {
        message = message.mtu(interface.mtu);
    }
    handle.link().change(message.build()).execute().await.map_err(failed("configure", name))?;
    // In a separate message, because a link refuses a new name while it is up.
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().change(up).execute().await.map_err(failed("bring up", name))?;
    Ok(index)
}

fn failed(what: &'static str, name: &str) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    let name = name.to_owned();
    move |source| NetworkError::Netlink { what, name, source }
}
