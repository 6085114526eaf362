//! The proxies of the environment, and the addresses asked without one. Owns the forms of the variables.
//!
//! The forms are Go's (`golang.org/x/net/http/httpproxy`), so containerd's settings mean the same here:
//!
//! ```text
//! NO_PROXY=registry.example            the name, and all names below it
//! NO_PROXY=.example,*.example          all names below it
//! NO_PROXY=10.0.0.5,10.0.0.0/8,::1     an address, a network
//! NO_PROXY=*                           everything
//! ```
//! A name or an address may have a port, and then counts for this port alone. `ALL_PROXY` is in addition to
//! Go's. Loopback addresses are never asked through a proxy: it has its own loopback.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use crate::hosts::is_on_loopback;

/// The proxies by scheme, and what is asked without them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    direct: Vec<Direct>,
}

/// Addresses asked without a proxy.
#[derive(Debug, PartialEq, Eq)]
enum Direct {
    All,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    /// Names with this end, which begins with a dot. With `itself` also the name without the dot.
    Names {
        end: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl Proxies {
    /// Reads the environment of the process.
    pub(crate) fn of_environment() -> Proxies {
        Proxies::read(|name| std::env::var(name).ok())
    }

    /// Reads the variables, each by its name in upper or lower case. Unusable addresses do not count.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let text = |name: &str| {
            let mut both = [name.to_owned(), name.to_lowercase()].into_iter();
            both.find_map(|name| variable(&name).filter(|text| !text.is_empty()))
        };
        let proxy = |name: &str| text(name).and_then(|text| address(&text));
        let all = proxy("ALL_PROXY");
        let list = text("NO_PROXY").unwrap_or_default();
        Proxies {
            http: proxy("HTTP_PROXY").or_else(|| all.clone()),
            https: proxy("HTTPS_PROXY").or(all),
            direct: list.split(',').filter_map(Direct::parse).collect(),
        }
    }

    /// Returns the proxy for requests to an address, if there is one.
    pub(crate) fn of(&self, url: &Url) -> Option<Url> {
        if is_on_loopback(url) || self.direct.iter().any(|direct| direct.has(url)) {
            return None;
        }
        if url.scheme() == "http" { self.http.clone() } else { self.https.clone() }
    }
}

/// Parses the address of a proxy. Without a scheme it is HTTP.
fn address(text: &str) -> Option<Url> {
    let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    url.ok().filter(Url::has_host)
}

impl Direct {
    /// Parses one part of the list. `None` if it is empty.
    fn parse(part: &str) -> Option<Direct> {
        let part = part.trim().to_lowercase();
        if part == "*" {
            return Some(Direct::All);
        }
        if let Ok(network) = part.parse() {
            return Some(Direct::Network(network));
        }
        // An IPv6 address has colons, and only in brackets a port.
        if let Ok(address) = part.parse() {
            return Some(Direct::Address(address, None));
        }
        let with_port = part.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = with_port.map_or((part.as_str(), None), |(host, port)| (host, Some(port)));
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = host.parse() {
            return Some(Direct::Address(address, port));
        }
        let name = host.strip_prefix('*').filter(|name| name.starts_with('.')).unwrap_or(host);
        let itself = !name.starts_with('.');
        let end = if itself { format!(".{name}") } else { name.to_owned() };
        (end.len() > 1).then_some(Direct::Names { end, itself, port })
    }

    fn has(&self, url: &Url) -> bool {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
            _ => None,
        };
        let is_port = |port: &Option<u16>| port.is_none() || *port == url.port_or_known_default();
        match (self, url.host(), address) {
            (Direct::All, ..) => true,
            (Direct::Network(network), _, Some(address)) => network.contains(&address),
            (Direct::Address(direct, port), _, Some(address)) => *direct == address && is_port(port),
            (Direct::Names { end, itself, port }, Some(Host::Domain(name)), _) => {
                (name.ends_with(end.as_str()) || *itself && name == &end[1..]) && is_port(port)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Proxies::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn of(variables: &[(&str, &str)], url: &str) -> Option<String> {
        proxies(variables).of(&Url::parse(url).unwrap()).map(String::from)
    }

    #[test]
    fn each_part_of_the_list_counts_in_the_forms_of_go() {
        for (list, direct, through) in [
            ("a.b", &["https://a.b", "http://x.a.b:1"][..], &["https://xa.b", "https://b"][..]),
            (".a.b", &["https://x.a.b"], &["https://a.b", "https://xa.b"]),
            ("*.a.b", &["https://x.a.b", "https://y.x.a.b:5"], &["https://a.b", "https://xa.b"]),
            ("h:5000", &["https://h:5000", "http://x.h:5000"], &["https://h", "http://h:5001"]),
            ("*.a.b:443", &["https://x.a.b", "http://x.a.b:443"], &["http://x.a.b", "https://a.b"]),
            ("10.0.0.5:5000", &["http://10.0.0.5:5000"], &["https://10.0.0.5", "http://10.0.0.6:5000"]),
            ("10.0.0.0/8", &["https://10.9.8.7:6"], &["https://11.0.0.1", "https://10.example"]),
            ("10.0.0.5", &["https://10.0.0.5:6"], &["https://10.0.0.50"]),
            ("[fd00::1]:5", &["http://[fd00::1]:5"], &["http://[fd00::1]", "http://[fd00::2]:5"]),
            ("fd00::1,fd01::/16", &["http://[fd00::1]:7", "http://[fd01::9]"], &["http://[fd00::2]"]),
            ("*", &["https://a", "http://10.0.0.1"], &[]),
            (" x , Registry.Corp ,", &["https://registry.corp", "https://x"], &["https://y"]),
            ("", &[], &["https://a", "http://10.0.0.1"]),
            (" , .,:5,*.:", &[], &["https://a:5", "http://10.0.0.1"]),
        ] {
            let variables = [("ALL_PROXY", "http://proxy:3128"), ("NO_PROXY", list)];
            for url in direct {
                assert_eq!(of(&variables, url), None, "{list}: {url}");
            }
            for url in through {
                assert_eq!(of(&variables, url).as_deref(), Some("http://proxy:3128/"), "{list}: {url}");
            }
        }
    }

    #[test]
    fn a_proxy_is_of_its_scheme_or_of_all() {
        let https = [("HTTPS_PROXY", "https://me:secret@s:1"), ("HTTP_PROXY", "")];
        assert_eq!(of(&https, "https://a").as_deref(), Some("https://me:secret@s:1/"));
        assert_eq!(of(&https, "http://a"), None);
        let both = [("http_proxy", "p:1"), ("all_proxy", "http://all")];
        assert_eq!(of(&both, "http://a").as_deref(), Some("http://p:1/"));
        assert_eq!(of(&both, "https://a").as_deref(), Some("http://all/"));
        assert_eq!(of(&[("ALL_PROXY", "http://")], "https://a"), None);
    }

    #[test]
    fn loopback_needs_no_word() {
        for url in ["http://localhost:5000", "https://127.0.0.9", "http://[::1]:1"] {
            assert_eq!(of(&[("ALL_PROXY", "http://proxy")], url), None, "{url}");
        }
    }
}
