//! The network of a private daemon on a host without a CNI configuration: one bridge, with addresses from
//! host-local. The configuration is written into the daemon's own directory, never into the host's.

use std::path::{Path, PathBuf};

use crate::config::Config;

/// Returns `None` if the operator has a configuration: it is used instead. Otherwise writes one below `dir`
/// and returns its directory. All private daemons share `leases`, because they share the bridge.
pub(super) fn ensure(config: &Config, dir: &Path, leases: &Path) -> std::io::Result<Option<PathBuf>> {
    let configured = std::fs::read_dir(&config.cni.conf_dir)
        .map(|entries| {
            entries.flatten().any(|entry| {
                let path = entry.path();
                path.extension().is_some_and(|extension| {
                    ["conf", "conflist", "json"].iter().any(|known| extension == *known)
                })
            })
        })
        .unwrap_or(false);
    if configured {
        return Ok(None);
    }
    write(dir, &bridge(leases)).map(Some)
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

fn bridge(leases: &Path) -> serde_json::Value {
    serde_json::json!({
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_configuration_is_used_where_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.cni.conf_dir = dir.path().join("net.d");
        let leases = dir.path().join("leases");
        let written = ensure(&config, dir.path(), &leases).unwrap().unwrap();
        assert!(written.join("10-podvisor.conflist").exists());
        std::fs::create_dir_all(&config.cni.conf_dir).unwrap();
        std::fs::write(config.cni.conf_dir.join("10-mine.conflist"), "{}").unwrap();
        assert_eq!(ensure(&config, dir.path(), &leases).unwrap(), None);
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
        assert_ne!(written["name"], bridge(&leases)["name"]);
    }
}
