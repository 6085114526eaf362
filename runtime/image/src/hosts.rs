//! Finds the hosts that serve a registry's images: the operator's mirrors, as containerd's `hosts.toml` directories
//! name them. Owns the files' syntax; never opens a connection, which `endpoint.rs` does.
//!
//! ```text
//! <config_dir>/<registry>/hosts.toml          also <host>_<port>_ for <host>:<port>
//! <config_dir>/_default/hosts.toml            where a registry has none of its own
//!
//! server = "https://registry-1.docker.io"     the upstream, if it is not the registry's own name; asked last
//! [host."http://127.0.0.1:5000"]              asked in the order of the file
//! capabilities = ["pull", "resolve"]          resolve: turns a tag into a digest
//! ca = "mirror.crt"                           one file or several, relative to the directory
//! skip_verify = false
//! override_path = false                       true: the address has its /v2 already
//! ```
//! Files are read at each pull, so that a change needs no restart. A key that is not honoured is refused by name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use url::{Host as UrlHost, Url};

use crate::error::ImageError;

/// Name of the file in a registry's directory.
const FILE: &str = "hosts.toml";

/// Directory for registries that have none of their own.
const DEFAULT_DIRECTORY: &str = "_default";

/// Most hosts in one file. Each host that is down costs a pull the time to find that out.
const HOSTS_MAX: usize = 16;

/// The end of every registry's address, before the repository.
const API: &str = "/v2";

/// One host that serves a registry's images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// Host, port, and path before `/v2`; none for the registry's own name.
    pub(crate) address: Option<String>,
    /// Prefix of the host's repositories: the path after `/v2`, with a slash at its end if it is not empty.
    pub(crate) prefix: String,
    /// Whether plain HTTP is used; none to decide by the registry's own name.
    pub(crate) plain: Option<bool>,
    /// Whether the host serves manifests and blobs by digest.
    pub(crate) pulls: bool,
    /// Whether the host resolves tags to digests.
    pub(crate) resolves: bool,
    /// Whether the host's certificate is left unchecked.
    pub(crate) skip_verify: bool,
    /// More roots for the host's certificate, as PEM.
    pub(crate) roots: Vec<Vec<u8>>,
    /// Whether the host is the registry itself: the caller's credentials are meant for that one.
    pub(crate) upstream: bool,
}

/// The keys of one host.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    capabilities: Option<Vec<Capability>>,
    ca: Option<Files>,
    client: Option<toml::Value>,
    header: Option<toml::Value>,
    skip_verify: bool,
    override_path: bool,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Capability {
    Pull,
    Resolve,
    /// Accepted without effect: nothing here pushes or asks for referrers.
    Push,
    Referrers,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Files {
    One(PathBuf),
    Many(Vec<PathBuf>),
}

/// Reads the hosts of a registry, in the order in which they are asked; the last is the upstream.
pub(crate) fn read(config_dir: Option<&Path>, registry: &str) -> Result<Vec<Host>, ImageError> {
    for directory in config_dir.map(|root| directories(root, registry)).unwrap_or_default() {
        let path = directory.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let invalid = |reason| ImageError::HostsFile { path: path.clone(), reason };
                return parse(&directory, registry, &text).map_err(invalid);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(ImageError::disk("reading", &path)(error)),
        }
    }
    Ok(vec![Host::upstream()])
}

/// Directories that may hold a registry's file, the most specific first. A registry's name is a host and a port, without
/// a slash.
fn directories(root: &Path, registry: &str) -> Vec<PathBuf> {
    let port = registry.rsplit_once(':').map(|(host, port)| root.join(format!("{host}_{port}_")));
    port.into_iter().chain([root.join(registry), root.join(DEFAULT_DIRECTORY)]).collect()
}

fn parse(directory: &Path, registry: &str, text: &str) -> Result<Vec<Host>, String> {
    let mut upstream: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let server = upstream.remove("server");
    let hosts = match upstream.remove("host") {
        None => toml::Table::new(),
        Some(toml::Value::Table(hosts)) => hosts,
        Some(_) => return Err("`host` is not a table".to_owned()),
    };
    if hosts.len() > HOSTS_MAX {
        return Err(format!("{} hosts are more than {HOSTS_MAX}", hosts.len()));
    }
    let mut found = Vec::new();
    for (address, keys) in hosts {
        let host = keys
            .try_into()
            .map_err(|error| error.to_string())
            .and_then(|keys| Host::new(directory, Some(&address), keys))
            .map_err(|reason| format!("host {address:?}: {}", reason.trim_end()))?;
        found.push(Host { upstream: host.is(registry), ..host });
    }
    let server = match &server {
        None => None,
        Some(toml::Value::String(server)) => Some(server.as_str()),
        Some(_) => return Err("`server` is not a string".to_owned()),
    };
    let keys = upstream.try_into().map_err(|error| error.to_string().trim_end().to_owned())?;
    let upstream = Host::new(directory, server, keys).map_err(|reason| format!("server: {reason}"))?;
    // A server that is also a mirror has been asked by then.
    if !found.iter().any(|host| host.address.is_some() && host.address == upstream.address) {
        found.push(Host { upstream: true, ..upstream });
    }
    Ok(found)
}

impl Host {
    /// Returns the registry under its own name.
    fn upstream() -> Host {
        Host {
            address: None,
            prefix: String::new(),
            plain: None,
            pulls: true,
            resolves: true,
            skip_verify: false,
            roots: Vec::new(),
            upstream: true,
        }
    }

    fn new(directory: &Path, address: Option<&str>, keys: Keys) -> Result<Host, String> {
        let refused = [("client", keys.client.is_some()), ("header", keys.header.is_some())];
        if let Some((key, _)) = refused.iter().find(|(_, given)| *given) {
            return Err(format!("`{key}` is not supported"));
        }
        let can = |capability| keys.capabilities.as_ref().is_none_or(|all| all.contains(&capability));
        let (pulls, resolves) = (can(Capability::Pull), can(Capability::Resolve));
        let mut host = Host { pulls, resolves, skip_verify: keys.skip_verify, ..Host::upstream() };
        let files = match keys.ca {
            None => Vec::new(),
            Some(Files::One(file)) => vec![file],
            Some(Files::Many(files)) => files,
        };
        for file in files {
            host.roots.push(certificates(&directory.join(file))?);
        }
        if let Some(address) = address {
            let url = url(address)?;
            let (before, after) = split_path(url.path(), keys.override_path)?;
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            host.address = Some(format!("{}{port}{before}", url.host_str().unwrap_or_default()));
            host.prefix = after;
            host.plain = Some(url.scheme() == "http");
        } else if keys.override_path {
            return Err("`override_path` needs a `server`".to_owned());
        }
        Ok(host)
    }

    /// Whether the host is that registry, whatever the path.
    fn is(&self, registry: &str) -> bool {
        let authority = self.address.as_deref().and_then(|address| address.split('/').next());
        authority == Some(registry)
    }

    /// The host's name in errors.
    pub(crate) fn name(&self, registry: &str) -> String {
        match &self.address {
            Some(address) if !self.is(registry) => address.clone(),
            _ => registry.to_owned(),
        }
    }
}

/// Parses an address; without a scheme it is HTTPS, but on loopback HTTP.
fn url(address: &str) -> Result<Url, String> {
    let parse = |text: &str| Url::parse(text).map_err(|error| error.to_string());
    let mut url = match address.contains("://") {
        true => parse(address)?,
        false => parse(&format!("http://{address}"))?,
    };
    let loopback = match url.host() {
        Some(UrlHost::Domain(name)) => name == "localhost",
        Some(UrlHost::Ipv4(address)) => address.is_loopback(),
        Some(UrlHost::Ipv6(address)) => address.is_loopback(),
        None => return Err("it names no host".to_owned()),
    };
    if !address.contains("://") && !loopback {
        url = parse(&format!("https://{address}"))?;
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("scheme {:?} is neither http nor https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a user in the address is not supported".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("an address has no query and no fragment".to_owned());
    }
    Ok(url)
}

/// Splits the path into the part before `/v2` and the prefix of repositories after it.
fn split_path(path: &str, override_path: bool) -> Result<(String, String), String> {
    let path = path.trim_end_matches('/');
    if !override_path {
        return Ok((path.strip_suffix(API).unwrap_or(path).to_owned(), String::new()));
    }
    let (before, after) = path
        .strip_suffix(API)
        .map(|before| (before, ""))
        .or_else(|| path.split_once("/v2/"))
        .ok_or("`override_path` with an address that has no /v2 is not supported")?;
    let prefix = if after.is_empty() { String::new() } else { format!("{after}/") };
    Ok((before.to_owned(), prefix))
}

fn certificates(path: &Path) -> Result<Vec<u8>, String> {
    let pem = fs::read(path).map_err(|error| format!("`ca` {}: {error}", path.display()))?;
    let marker = b"-----BEGIN CERTIFICATE-----";
    if !pem.windows(marker.len()).any(|window| window == marker) {
        return Err(format!("`ca` {}: no PEM certificate is in it", path.display()));
    }
    Ok(pem)
}

#[cfg(test)]
mod tests;
