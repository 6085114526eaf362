//! The network of a private daemon on a host without a CNI configuration: one bridge, with addresses from
//! host-local. The configuration is written into the daemon's own directory, never into the host's.

use std::env;
use std::path::{Path, PathBuf};

use runtime_net::Cni;

use crate::config::Config;

/// The network of a private daemon's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodNetwork {
    /// The node's, if it has one.
    OfTheNode,
    /// A bridge, for a node whose own network is a cluster's and may accept only the cluster's pods.
    Bridge,
    /// A network with access to the node alone, for the same reason.
    OfItsOwn,
}

/// Returns `None` if `pods` may have the operator's configuration and it can serve one now: it is used
/// instead. Otherwise writes one below `dir` and returns its directory. All private daemons share `leases`,
/// because they share the bridge.
pub(super) async fn ensure(
    config: &Config,
    dir: &Path,
    leases: &Path,
    pods: PodNetwork,
) -> std::io::Result<Option<PathBuf>> {
    let may_be_the_nodes = pods == PodNetwork::OfTheNode;
    // As the node's daemon asks: a broken configuration, or one without its plugins, would fail the pod.
    let configured = may_be_the_nodes && Cni::new(config.cni.pod_networks()).status().await.is_ok();
    if configured {
        return Ok(None);
    }
    write(dir, &bridge(leases, can_open_firewall(config))).map(Some)
}

/// Writes a configuration below `dir` with a link between each pod and the node, and nothing else. Returns
/// its directory. The link ends with its pod. Only the addresses in `leases` stay on the node.
pub(super) fn write_link(dir: &Path, leases: &Path) -> std::io::Result<PathBuf> {
    write(dir, &link(leases))
}

fn write(dir: &Path, network: &serde_json::Value) -> std::io::Result<PathBuf> {
    let conf_dir = dir.join("cni");
    std::fs::create_dir_all(&conf_dir)?;
    std::fs::write(conf_dir.join("10-podvisor.conflist"), network.to_string())?;
    Ok(conf_dir)
}

/// The addresses are from an unassigned range (RFC 5737, TEST-NET-1).
fn link(leases: &Path) -> serde_json::Value {
    serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "podvisor-link",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": leases,
                "ranges": [[{ "subnet": "192.0.2.0/24" }]],
                "routes": [{ "dst": "0.0.0.0/0" }]
            }
        }]
    })
}

/// Whether the node has the plugin that lets pods through its firewall, and the program that the plugin runs.
fn can_open_firewall(config: &Config) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    config.cni.bin_dirs.iter().any(|dir| dir.join("firewall").exists())
        && env::split_paths(&path).any(|dir| dir.join("iptables").exists())
}

/// Docker, firewalld and ufw drop whatever the node forwards and they do not know, frames of the bridge too.
fn bridge(leases: &Path, opens_firewall: bool) -> serde_json::Value {
    let firewall = opens_firewall.then(|| serde_json::json!({ "type": "firewall" }));
    let mut network = serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "podvisor",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "podvisor0",
                "isGateway": true,
                "ipMasq": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": leases,
                    "ranges": [[{ "subnet": "10.87.0.0/16" }]],
                    "routes": [{ "dst": "0.0.0.0/0" }]
                }
            },
            { "type": "portmap", "capabilities": { "portMappings": true } }
        ]
    });
    network["plugins"].as_array_mut().expect("it is one").extend(firewall);
    network
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn an_operators_configuration_is_used_where_it_can_serve_a_pod() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.cni.conf_dir = dir.path().join("net.d");
        config.cni.bin_dirs = vec![dir.path().join("bin")];
        let leases = dir.path().join("leases");
        let ensured = async |pods| ensure(&config, dir.path(), &leases, pods).await.unwrap();
        let written = ensured(PodNetwork::OfTheNode).await.unwrap();
        assert!(written.join("10-podvisor.conflist").exists());
        for made in [&config.cni.conf_dir, &config.cni.bin_dirs[0]] {
            std::fs::create_dir_all(made).unwrap();
        }
        // Left over from a network add-on: the file is there, and its plugin is not.
        let list = r#"{"cniVersion": "1.0.0", "name": "mine", "plugins": [{"type": "mine"}]}"#;
        for unusable in ["{}", list] {
            std::fs::write(config.cni.conf_dir.join("10-mine.conflist"), unusable).unwrap();
            assert_eq!(ensured(PodNetwork::OfTheNode).await.as_ref(), Some(&written), "{unusable}");
        }
        let plugin = config.cni.bin_dirs[0].join("mine");
        std::fs::write(&plugin, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(ensured(PodNetwork::OfTheNode).await, None);
        assert_eq!(ensured(PodNetwork::Bridge).await, Some(written));
    }

    #[test]
    fn a_bridges_pods_get_through_the_nodes_firewall_where_a_plugin_can_do_it() {
        let dir = tempfile::tempdir().unwrap();
        let types = |opens_firewall| {
            let network = bridge(dir.path(), opens_firewall);
            let plugins = network["plugins"].as_array().unwrap().iter();
            plugins.map(|plugin| plugin["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(types(true), ["bridge", "portmap", "firewall"]);
        assert_eq!(types(false), ["bridge", "portmap"]);
        let mut config = Config::default();
        config.cni.bin_dirs = vec![dir.path().join("none")];
        assert!(!can_open_firewall(&config));
    }

    #[test]
    fn a_link_is_written_whatever_the_node_has_and_leases_are_kept_beside_the_bridges() {
        let dir = tempfile::tempdir().unwrap();
        let leases = dir.path().join("leases");
        let conf_dir = write_link(dir.path(), &leases).unwrap();
        let text = std::fs::read_to_string(conf_dir.join("10-podvisor.conflist")).unwrap();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(written["plugins"][0]["type"], "ptp");
        assert_eq!(written["plugins"][0]["ipam"]["dataDir"], leases.to_str().unwrap());
        assert_ne!(written["name"], bridge(&leases, true)["name"]);
    }
}
