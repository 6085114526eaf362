//! Contents of the files for each pod, as pure functions.

use std::net::IpAddr;

/// `/etc/hosts`: the loopback names, and the pod's own name at its addresses.
pub(crate) fn hosts(hostname: &str, ips: &[IpAddr]) -> String {
    let mut text = String::from(
        "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        text += &format!("{ip}\t{hostname}\n");
    }
    text
}

/// A MAC as the agent reads it.
pub(crate) fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_finds_itself_by_name_at_every_address() {
        let text = hosts("web", &["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()]);
        assert!(text.starts_with("127.0.0.1\tlocalhost\n"));
        assert!(text.ends_with("10.0.0.5\tweb\nfd00::5\tweb\n"));
    }

    #[test]
    fn macs_have_colons_and_leading_zeros() {
        assert_eq!(mac([0x0a, 0, 1, 0xff, 2, 3]), "0a:00:01:ff:02:03");
    }
}
