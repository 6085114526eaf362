//! The host's `resolv.conf`, as a pod in a VM can use it. A name server on the host's loopback address, such
//! as the stub of systemd-resolved, cannot be reached from a guest: the address is the guest's own there.
//! The module reads no file; its callers do.

use std::net::IpAddr;

/// Path of the host's file.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Path of the file with the servers behind the stub of systemd-resolved (systemd-resolved.service(8)).
pub const RESOLVED_CONF: &str = "/run/systemd/resolve/resolv.conf";

/// The host's `resolv.conf` without the servers that a guest cannot reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostResolvConf {
    /// The file's text. It is the host's, byte for byte, if a guest can reach all its servers.
    pub text: Vec<u8>,
    /// The remaining servers, in their order.
    pub servers: Vec<String>,
    /// Servers left out.
    pub unreachable: Vec<String>,
}

impl HostResolvConf {
    /// Takes the servers from the host's file, or from systemd-resolved's if the host's has only those that a
    /// guest cannot reach. `resolved` returns the text of that file, empty if there is none. It is called
    /// only if needed.
    ///
    /// # Errors
    /// Those of `resolved`.
    pub fn reachable<E>(
        host: &[u8],
        resolved: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<HostResolvConf, E> {
        let own = HostResolvConf::filtered(host);
        if !own.is_cut_off() {
            return Ok(own);
        }
        let behind = HostResolvConf::filtered(&resolved()?);
        Ok(if behind.servers.is_empty() { own } else { behind })
    }

    /// Whether the host has name servers, but none that a guest can reach.
    pub fn is_cut_off(&self) -> bool {
        self.servers.is_empty() && !self.unreachable.is_empty()
    }

    fn filtered(text: &[u8]) -> HostResolvConf {
        let mut filtered = HostResolvConf::default();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match server(line) {
                Some(server) if is_of_the_guest(&server) => {
                    filtered.unreachable.push(server);
                    continue;
                }
                Some(server) => filtered.servers.push(server),
                None => {}
            }
            filtered.text.extend_from_slice(line);
        }
        filtered
    }
}

/// The server in a line of the file.
fn server(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    (words.next() == Some("nameserver")).then(|| words.next().map(str::to_owned)).flatten()
}

/// Whether the address means the guest itself inside a guest. Linux sends packets for the unspecified address
/// to the loopback interface.
fn is_of_the_guest(server: &str) -> bool {
    server
        .parse::<IpAddr>()
        .map(|ip| ip.to_canonical())
        .is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reachable(host: &str, resolved: &str) -> HostResolvConf {
        HostResolvConf::reachable(host.as_bytes(), || Ok::<_, ()>(resolved.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn servers_behind_a_stub_take_its_place() {
        let stub = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch a.example\n";
        let found = reachable(stub, "nameserver 192.0.2.1\nsearch b.example\n");
        assert_eq!(found.text, b"nameserver 192.0.2.1\nsearch b.example\n");
        assert_eq!(found.servers, ["192.0.2.1"]);
        assert!(!found.is_cut_off());
    }

    #[test]
    fn a_file_with_reachable_servers_stays_and_loses_only_the_others() {
        let never = || -> Result<Vec<u8>, ()> { panic!("systemd-resolved's file is not needed") };
        let whole = b"# \xff\nnameserver\t192.0.2.1\nnameserver fe80::1%eth0\noptions rotate";
        assert_eq!(HostResolvConf::reachable(whole, never).unwrap().text, whole);
        let mixed = b"nameserver ::1\nnameserver 192.0.2.1\nnameserver 127.0.0.1";
        let found = HostResolvConf::reachable(mixed, never).unwrap();
        assert_eq!(found.text, b"nameserver 192.0.2.1\n");
        assert_eq!(found.unreachable, ["::1", "127.0.0.1"]);
        assert_eq!(HostResolvConf::reachable(b"", never).unwrap(), HostResolvConf::default());
    }

    #[test]
    fn a_host_with_loopback_servers_alone_is_cut_off() {
        for server in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.53", "0.0.0.0", "::"] {
            let found = reachable(&format!("search a\nnameserver {server}\n"), "nameserver 127.0.0.1\n");
            assert!(found.is_cut_off(), "{server}");
            assert_eq!(
                (&*found.text, &found.unreachable[..]),
                (&b"search a\n"[..], &[server.to_owned()][..])
            );
        }
    }

    #[test]
    fn an_unreadable_file_of_systemd_resolved_is_an_error() {
        assert_eq!(HostResolvConf::reachable(b"nameserver ::1", || Err("unreadable")), Err("unreadable"));
    }
}
