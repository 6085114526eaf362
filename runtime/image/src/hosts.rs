//! Finds the hosts of a registry: the operator's mirrors, from containerd's `hosts.toml` directories. Owns
//! the files' syntax. Never opens a connection; `endpoint.rs` does.
//!
//! ```text
//! <config_dir>/<registry>/hosts.toml          also <host>_<port>_ for <host>:<port>
//! <config_dir>/_default/hosts.toml            where a registry has no directory of its own
//! <config_dir>/<registry>/*.crt               without hosts.toml: Docker's form, see `certificates.rs`
//!
//! server = "https://registry-1.docker.io"     the upstream, if it is not the registry's own name; asked last
//! [host."http://127.0.0.1:5000"]              asked in the order of the file
//! capabilities = ["pull", "resolve"]          resolve: turns a tag into a digest
//! ca = "mirror.crt"                           one file or several, relative to the directory
//! client = [["me.crt", "me.key"]]             or one file with both
//! header = { x-key = ["value"] }
//! skip_verify = false
//! override_path = false                       true: the address is used as it is, without /v2 at its end
//! dial_timeout = "5s"
//! ```
//! Files are read at each pull, so a change needs no restart. Unknown keys are skipped with a warning, as in
//! containerd: the directories are shared with it, and it may know more keys.

mod certificates;
mod keys;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;
use url::{Host as UrlHost, Url};

use self::certificates::Certificates;
use self::keys::{Capability, Keys};
use crate::error::ImageError;

/// Name of the file in a registry's directory.
const FILE: &str = "hosts.toml";

/// Directory for registries without their own.
const DEFAULT_DIRECTORY: &str = "_default";

/// Most hosts in one file. Each unreachable host costs a pull the time to find that out.
const HOSTS_MAX: usize = 16;

/// The end of every registry's address, before the repository.
const API: &str = "/v2";

/// One host of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// Host, port, and path before `/v2`. `None` for the registry's own name.
    pub(crate) address: Option<String>,
    /// The end of the address: `/v2`, or nothing if the address is used unchanged.
    pub(crate) api: &'static str,
    /// Prefix of the host's repositories: the path after `/v2`, with a trailing slash if not empty.
    pub(crate) prefix: String,
    /// Whether plain HTTP is used. `None` to decide by the registry's own name.
    pub(crate) plain: Option<bool>,
    /// Whether the host serves manifests and blobs by digest.
    pub(crate) pulls: bool,
    /// Whether the host resolves tags to digests.
    pub(crate) resolves: bool,
    /// Whether to skip the check of the host's certificate.
    pub(crate) skip_verify: bool,
    /// More roots for the host's certificate, as PEM.
    pub(crate) roots: Vec<Vec<u8>>,
    /// Client certificate and key for the host, as PEM.
    pub(crate) identity: Option<Vec<u8>>,
    /// Headers of every request.
    pub(crate) headers: HeaderMap,
    /// Most time to open a connection. `None` for the default.
    pub(crate) connect: Option<Duration>,
    /// Whether the host is the registry itself. The caller's credentials are meant for it.
    pub(crate) upstream: bool,
}

/// Reads the hosts of a registry in the order of requests. The last is the upstream.
pub(crate) fn read(config_dir: Option<&Path>, registry: &str) -> Result<Vec<Host>, ImageError> {
    for directory in config_dir.map(|root| directories(root, registry)).unwrap_or_default() {
        let path = directory.join(FILE);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory.is_dir() => {
                let invalid = |reason| ImageError::HostsFile { path: directory.clone(), reason };
                let Certificates { roots, identity } = certificates::read(&directory).map_err(invalid)?;
                return Ok(vec![Host { roots, identity, ..Host::upstream() }]);
            }
            Ok(text) => {
                let invalid = |reason| ImageError::HostsFile { path: path.clone(), reason };
                let mut unknown = Vec::new();
                let hosts = parse(&directory, registry, &text, &mut unknown).map_err(invalid)?;
                warn_once(&path, &unknown);
                return Ok(hosts);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(ImageError::disk("reading", &path)(error)),
        }
    }
    Ok(vec![Host::upstream()])
}

/// Warns about a file's unknown keys, once per file: repeating it at every pull would not help the operator.
fn warn_once(path: &Path, unknown: &[String]) {
    static WARNED: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);
    let first = || WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
    if !unknown.is_empty() && first() {
        let (path, unknown) = (path.display(), unknown.join(", "));
        tracing::warn!(%path, unknown, "a hosts file has unknown keys, and they are ignored");
    }
}

/// Possible directories of a registry's file, the most specific first. A registry's name is a host and a
/// port, without a slash.
fn directories(root: &Path, registry: &str) -> Vec<PathBuf> {
    let port = registry.rsplit_once(':').map(|(host, port)| root.join(format!("{host}_{port}_")));
    port.into_iter().chain([root.join(registry), root.join(DEFAULT_DIRECTORY)]).collect()
}

/// Parses a file, and adds its unknown keys to `unknown`.
fn parse(
    directory: &Path,
    registry: &str,
    text: &str,
    unknown: &mut Vec<String>,
) -> Result<Vec<Host>, String> {
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
        let host = match keys {
            toml::Value::Table(keys) => Keys::take(keys, unknown),
            _ => Err("it is not a table".to_owned()),
        };
        let host = host.and_then(|keys| Host::new(directory, Some(&address), &keys));
        let host = host.map_err(|reason| format!("host {address:?}: {}", reason.trim_end()))?;
        found.push(Host { upstream: host.is(registry), ..host });
    }
    let server = match &server {
        None => None,
        Some(toml::Value::String(server)) => Some(server.as_str()),
        Some(_) => return Err("`server` is not a string".to_owned()),
    };
    let keys = Keys::take(upstream, unknown)?;
    let upstream = Host::new(directory, server, &keys).map_err(|reason| format!("server: {reason}"))?;
    // A server also listed as a mirror has been asked already. It is the registry itself, with the keys given
    // there.
    match found.iter_mut().find(|host| host.address.is_some() && host.address == upstream.address) {
        Some(host) => host.upstream = true,
        None => found.push(Host { upstream: true, ..upstream }),
    }
    Ok(found)
}

impl Host {
    /// Returns the registry under its own name.
    fn upstream() -> Host {
        Host {
            address: None,
            api: API,
            prefix: String::new(),
            plain: None,
            pulls: true,
            resolves: true,
            skip_verify: false,
            roots: Vec::new(),
            identity: None,
            headers: HeaderMap::new(),
            connect: None,
            upstream: true,
        }
    }

    fn new(directory: &Path, address: Option<&str>, keys: &Keys) -> Result<Host, String> {
        let (pulls, resolves) = (keys.can(Capability::Pull), keys.can(Capability::Resolve));
        let mut host = Host { pulls, resolves, skip_verify: keys.skip_verify, ..Host::upstream() };
        host.roots = keys.roots(directory)?;
        host.identity = keys.identity(directory)?;
        host.headers = keys.headers()?;
        host.connect = keys.connect()?;
        if let Some(address) = address {
            let url = url(address)?;
            let (before, api, after) = split_path(url.path(), keys.override_path);
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            host.address = Some(format!("{}{port}{before}", url.host_str().unwrap_or_default()));
            host.api = api;
            host.prefix = after;
            host.plain = Some(url.scheme() == "http");
        } else if keys.override_path {
            return Err("`override_path` needs a `server`".to_owned());
        }
        Ok(host)
    }

    /// Returns true if the operator has certificates for the host, and so expects TLS.
    pub(crate) fn has_certificates(&self) -> bool {
        !self.roots.is_empty() || self.identity.is_some()
    }

    /// Returns true if the host is this registry, whatever the path.
    fn is(&self, registry: &str) -> bool {
        let authority = self.address.as_deref().and_then(|address| address.split('/').next());
        let default_port = if self.plain == Some(true) { ":80" } else { ":443" };
        authority
            .is_some_and(|authority| own_name(authority, default_port) == own_name(registry, default_port))
    }

    /// The host's name in errors.
    pub(crate) fn name(&self, registry: &str) -> String {
        match &self.address {
            Some(address) if !self.is(registry) => address.clone(),
            _ => registry.to_owned(),
        }
    }
}

/// Docker Hub's name for each of the names of its registry.
pub(crate) fn canonical(host: &str) -> &str {
    match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    }
}

/// The one name of a host and port.
fn own_name(authority: &str, default_port: &str) -> String {
    let lower = authority.to_ascii_lowercase();
    canonical(lower.strip_suffix(default_port).unwrap_or(&lower)).to_owned()
}

/// Returns true if a registry's address, with port and path, is on this node.
pub(crate) fn is_loopback(registry: &str) -> bool {
    Url::parse(&format!("http://{registry}")).is_ok_and(|url| is_on_loopback(&url))
}

/// Returns true if an address is on this node.
pub(crate) fn is_on_loopback(url: &Url) -> bool {
    match url.host() {
        Some(UrlHost::Domain(name)) => name == "localhost",
        Some(UrlHost::Ipv4(address)) => address.is_loopback(),
        Some(UrlHost::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Parses an address. Without a scheme it is HTTP on loopback, and HTTPS otherwise.
fn url(address: &str) -> Result<Url, String> {
    let parse = |text: &str| Url::parse(text).map_err(|error| error.to_string());
    let mut url = match address.contains("://") {
        true => parse(address)?,
        false => parse(&format!("http://{address}"))?,
    };
    if !url.has_host() {
        return Err("it names no host".to_owned());
    }
    if !address.contains("://") && !is_on_loopback(&url) {
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

/// Splits the path into three: the part before `/v2`, `/v2` itself if present, and the prefix of repositories
/// after it.
fn split_path(path: &str, override_path: bool) -> (String, &'static str, String) {
    let path = path.trim_end_matches('/');
    if let Some(before) = path.strip_suffix(API) {
        return (before.to_owned(), API, String::new());
    }
    match path.split_once("/v2/") {
        Some((before, after)) if override_path => (before.to_owned(), API, format!("{after}/")),
        _ => (path.to_owned(), if override_path { "" } else { API }, String::new()),
    }
}

#[cfg(test)]
mod tests;
