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

/// Gives the devices the names of the interfaces, in their order. Returns the links' indices.
pub(super) async fn rename(
    handle: &Handle,
    devices: &[String],
    interfaces: &[Interface],
) -> Result<Vec<u32>, NetworkError> {
    let names: Vec<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
    names.iter().try_for_each(|name| checked(name))?;
    let mut indices = Vec::new();
    for device in devices {
        indices.push(find(handle, device).await?);
    }
    for (number, name) in renames(devices, &names) {
        let message = LinkUnspec::new_with_index(indices[number]).name(name);
        let renamed = handle.link().change(message.build()).execute().await;
        renamed.map_err(failed("rename the link of", names[number]))?;
    }
    Ok(indices)
}

fn checked(name: &str) -> Result<(), NetworkError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(['/', ' ', '\0']) {
        let text = name.chars().take(64).collect();
        return Err(NetworkError::Malformed { what: "interface name", text });
    }
    Ok(())
}

/// Returns the renames, in order, from the devices' names to the wanted ones, by the devices' places. The
/// kernel numbers devices by their slots, and plugins name interfaces in any order. So a wanted name may be
/// another device's. That device first gets a free name.
fn renames(devices: &[String], wanted: &[&str]) -> Vec<(usize, String)> {
    let is_device = |name: &str| devices.iter().any(|device| device == name);
    let unlike = |number: &usize| wanted[*number] != devices[*number];
    let changing: Vec<usize> = (0..devices.len().min(wanted.len())).filter(unlike).collect();
    let free = (0..).map(|number| format!("link{number}"));
    let mut free = free.filter(|name| !is_device(name) && !wanted.contains(&name.as_str()));
    let in_the_way = changing.iter().filter(|number| wanted.contains(&devices[**number].as_str()));
    let mut renames: Vec<_> = in_the_way.copied().zip(&mut free).collect();
    renames.extend(changing.iter().map(|number| (*number, wanted[*number].to_owned())));
    renames
}

/// Sets a link's MAC and MTU from the request, and brings it up.
pub(super) async fn configure(
    handle: &Handle,
    interface: &Interface,
    index: u32,
) -> Result<(), NetworkError> {
    let name = interface.name.as_str();
    let mut message = LinkUnspec::new_with_index(index);
    if !interface.mac.is_empty() {
        message = message.address(address::mac(&interface.mac)?);
    }
    if interface.mtu != 0 {
        message = message.mtu(interface.mtu);
    }
    handle.link().change(message.build()).execute().await.map_err(failed("configure", name))?;
    // In a separate message, because a link may refuse a new MAC while it is up.
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().change(up).execute().await.map_err(failed("bring up", name))
}

fn failed(what: &'static str, name: &str) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    let name = name.to_owned();
    move |source| NetworkError::Netlink { what, name, source }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_the_kernel_that_are_right_stay() {
        assert_eq!(renames(&["eth0".into(), "eth1".into()], &["eth0", "eth1"]), []);
        assert_eq!(renames(&["eth0".into(), "eth1".into()], &["eth0", "net1"]), [(1, "net1".into())]);
    }

    proptest! {
        #[test]
        fn every_order_of_names_is_reached_by_free_names_alone(
            wanted in Just(vec!["eth0", "eth1", "eth2", "eth3", "net1", "link0"]).prop_shuffle(),
            count in 0..=4_usize,
        ) {
            let mut names: Vec<String> = (0..count).map(|number| format!("eth{number}")).collect();
            let steps = renames(&names, &wanted[..count]);
            prop_assert!(steps.len() <= 2 * count);
            for (number, name) in steps {
                prop_assert!(!names.contains(&name), "{name} is taken: {names:?}");
                names[number] = name;
            }
            prop_assert_eq!(&names[..], &wanted[..count]);
        }
    }
}
