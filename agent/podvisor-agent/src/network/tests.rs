//! Requests applied to a network of this kernel with plain links in it. Needs root and `ip`; says so and
//! passes without.

use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use proto_agent::agent::{ConfigurePodRequest, Interface, Route};

use super::*;

/// Applies the request in a new namespace to links with these names, in the order of the interfaces. Then
/// runs `check` there.
fn configured(devices: &[&str], request: ConfigurePodRequest, check: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() || Command::new("ip").arg("-V").output().is_err() {
        eprintln!("skipped: needs root and ip");
        return;
    }
    let devices: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let in_guest = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        for device in &devices {
            ip(&format!("link add {device} type veth peer name peer-{device}"));
            ip(&format!("link set peer-{device} up"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            loopback_up().await.unwrap();
            configure(&request, &devices).await.unwrap();
        });
        check();
    };
    thread::spawn(in_guest).join().unwrap();
}

/// The output of `ip`, one line for each object.
fn ip(arguments: &str) -> String {
    let output = Command::new("ip").arg("-oneline").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn interface(name: &str, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(ToString::to_string).collect();
    Interface { name: name.into(), addresses, ..Default::default() }
}

fn route(interface: &str, destination: &str, gateway: &str, metric: u32) -> Route {
    let (interface, destination, gateway) = (interface.into(), destination.into(), gateway.into());
    Route { interface, destination, gateway, metric, ..Default::default() }
}

/// A route to the link itself, with the scope that IPv4 needs for it.
fn on_link(interface: &str, destination: &str, metric: u32) -> Route {
    let scope = if destination.contains(':') { 0 } else { 253 };
    Route { scope, ..route(interface, destination, "", metric) }
}

/// The plugin ptp and others remove the kernel's route for an address: neighbours are behind the gateway.
#[test]
fn a_connected_route_removed_by_a_plugin_does_not_come_back() {
    let request = ConfigurePodRequest {
        interfaces: vec![interface("eth0", &["10.88.0.5/24", "fd00:88::5/64"])],
        routes: vec![
            on_link("eth0", "10.88.0.1/32", 0),
            on_link("eth0", "fd00:88::1/128", 1024),
            route("eth0", "fd00:88::/64", "fd00:88::1", 1024),
            route("eth0", "0.0.0.0/0", "10.88.0.1", 0),
        ],
        ..Default::default()
    };
    configured(&["eth0"], request, || {
        for (to, gateway) in [("10.88.0.77", "10.88.0.1"), ("fd00:88::77", "fd00:88::1")] {
            let way = ip(&format!("route get {to}"));
            assert!(way.contains(&format!("via {gateway} ")), "{way}");
        }
        let own = ip("-6 route show dev eth0");
        assert!(own.contains("fe80::/64"), "the guest's own route is missing: {own}");
    });
}

#[test]
fn two_interfaces_in_one_subnet_keep_their_routes() {
    let request = ConfigurePodRequest {
        interfaces: vec![
            interface("eth0", &["10.9.0.5/24", "fd00:9::5/64"]),
            interface("net1", &["10.9.0.6/24", "fd00:9::6/64"]),
        ],
        routes: vec![
            on_link("eth0", "10.9.0.0/24", 0),
            on_link("net1", "10.9.0.0/24", 0),
            on_link("eth0", "fd00:9::/64", 256),
            on_link("net1", "fd00:9::/64", 256),
            route("eth0", "0.0.0.0/0", "10.9.0.1", 0),
            route("eth0", "::/0", "fd00:9::1", 1024),
        ],
        ..Default::default()
    };
    configured(&["eth0", "net1"], request, || {
        for (family, subnet) in [("-4", "10.9.0.0/24"), ("-6", "fd00:9::/64")] {
            let routes = ip(&format!("{family} route show {subnet}"));
            let links: Vec<_> = routes.lines().filter_map(|line| line.split(' ').nth(2)).collect();
            assert_eq!(links, ["eth0", "net1"], "{routes}");
            let default = ip(&format!("{family} route show default"));
            assert!(default.contains("dev eth0"), "{default}");
        }
    });
}

/// The namespace may distinguish routes by details that the request does not have.
#[test]
fn a_route_named_twice_is_one_route() {
    let twice = || [on_link("eth0", "10.9.0.0/24", 0), on_link("eth0", "fd00:9::/64", 256)];
    let request = ConfigurePodRequest {
        interfaces: vec![interface("eth0", &["10.9.0.5/24", "fd00:9::5/64"])],
        routes: [twice(), twice()].concat(),
        ..Default::default()
    };
    configured(&["eth0"], request, || {
        assert_eq!(ip("-4 route show 10.9.0.0/24").lines().count(), 1);
        assert_eq!(ip("-6 route show fd00:9::/64").lines().count(), 1);
    });
}

#[test]
fn interfaces_have_their_names_in_whatever_order_the_kernel_numbered_them() {
    let interface = |name: &str, mac: &str| Interface { mac: mac.into(), ..interface(name, &[]) };
    let request = ConfigurePodRequest {
        interfaces: vec![
            interface("eth1", "02:00:00:00:00:01"),
            interface("eth2", "02:00:00:00:00:02"),
            interface("eth0", "02:00:00:00:00:03"),
        ],
        ..Default::default()
    };
    configured(&["eth0", "eth1", "eth2"], request, || {
        for (name, mac) in [("eth1", "00:01"), ("eth2", "00:02"), ("eth0", "00:03")] {
            let link = ip(&format!("link show dev {name}"));
            assert!(link.contains(&format!("02:00:00:00:{mac}")), "{link}");
        }
    });
}
