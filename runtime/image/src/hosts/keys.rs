//! The keys of one host in a hosts file, in containerd's forms (its `docs/hosts.md`). Owns their types and
//! the referenced files; never an address.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Identity;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::error::chain;

/// Known keys.
const KNOWN: [&str; 7] =
    ["capabilities", "ca", "client", "header", "skip_verify", "override_path", "dial_timeout"];

/// The keys of one host.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Keys {
    capabilities: Option<Vec<Capability>>,
    ca: Option<OneOrMany<PathBuf>>,
    client: Option<OneOrMany<Client>>,
    header: BTreeMap<String, OneOrMany<String>>,
    pub(super) skip_verify: bool,
    pub(super) override_path: bool,
    dial_timeout: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Capability {
    Pull,
    Resolve,
    /// Capabilities without effect: nothing here pushes or asks for referrers.
    #[serde(other)]
    Other,
}

/// Known capabilities; the last two have no effect.
const CAPABILITIES: [&str; 4] = ["pull", "resolve", "push", "referrers"];

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    /// First, because two files in a list are no pair.
    Many(Vec<T>),
    One(T),
}

impl<T> OneOrMany<T> {
    fn all(&self) -> &[T] {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
    }
}

/// A certificate with its key, in one file or in two. The second may be empty.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Client {
    File(PathBuf),
    Pair([PathBuf; 2]),
}

impl Keys {
    /// Takes the known keys, and adds the others to `unknown`.
    pub(super) fn take(mut table: toml::Table, unknown: &mut Vec<String>) -> Result<Keys, String> {
        table.retain(|key, _| {
            let known = KNOWN.contains(&key);
            if !known {
                unknown.push(format!("`{key}`"));
            }
            known
        });
        if let Some(toml::Value::Array(given)) = table.get_mut("capabilities") {
            for name in given {
                let Some(lower) = name.as_str().map(str::to_lowercase) else {
                    return Err(format!("capability {name} is not a string"));
                };
                if !CAPABILITIES.contains(&lower.as_str()) {
                    unknown.push(format!("capability {lower:?}"));
                }
                *name = lower.into();
            }
        }
        let keys = toml::Value::Table(table).try_into();
        keys.map_err(|error: toml::de::Error| error.to_string().trim_end().to_owned())
    }

    /// Returns true if the host has a capability. A host without a list has all of them, as in containerd.
    pub(super) fn can(&self, capability: Capability) -> bool {
        self.capabilities.as_ref().is_none_or(|all| all.is_empty() || all.contains(&capability))
    }

    /// Reads the roots for the host's certificate.
    pub(super) fn roots(&self, directory: &Path) -> Result<Vec<Vec<u8>>, String> {
        let files = self.ca.as_ref().map(OneOrMany::all).unwrap_or_default();
        files.iter().map(|file| pem("ca", &directory.join(file))).collect()
    }

    /// Reads the client certificate and key for the host.
    pub(super) fn identity(&self, directory: &Path) -> Result<Option<Vec<u8>>, String> {
        let client = match self.client.as_ref().map(OneOrMany::all).unwrap_or_default() {
            [] => return Ok(None),
            [client] => client,
            several => {
                return Err(format!("`client` has {} certificates, and one can be shown", several.len()));
            }
        };
        match client {
            Client::File(file) => identity(&directory.join(file), None).map(Some),
            Client::Pair([file, none]) if none.as_os_str().is_empty() => {
                identity(&directory.join(file), None).map(Some)
            }
            Client::Pair([certificate, key]) => {
                identity(&directory.join(certificate), Some(&directory.join(key))).map(Some)
            }
        }
    }

    /// The headers of every request.
    pub(super) fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, values) in &self.header {
            let wrong = |why: String| format!("`header` {name:?}: {why}");
            let name: HeaderName = name.parse().map_err(|error| wrong(format!("{error}")))?;
            for value in values.all() {
                // The message never repeats the value, because it may be a secret.
                let mut value = HeaderValue::from_str(value).map_err(|error| wrong(error.to_string()))?;
                value.set_sensitive(true);
                headers.append(name.clone(), value);
            }
        }
        Ok(headers)
    }

    /// Most time to open a connection.
    pub(super) fn connect(&self) -> Result<Option<Duration>, String> {
        let Some(text) = &self.dial_timeout else { return Ok(None) };
        let parsed: Result<jiff::SignedDuration, _> = text.parse();
        let positive =
            parsed.ok().and_then(|span| Duration::try_from(span).ok()).filter(|span| !span.is_zero());
        positive.map(Some).ok_or_else(|| format!("`dial_timeout` {text:?} is not a time, as \"10s\""))
    }
}

fn read(key: &str, path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("`{key}` {}: {error}", path.display()))
}

/// Reads a client's certificate and its key, which may be in the same file.
pub(super) fn identity(certificate: &Path, key: Option<&Path>) -> Result<Vec<u8>, String> {
    let mut both = pem("client", certificate)?;
    if let Some(key) = key {
        both.push(b'\n');
        both.extend(read("client", key)?);
    }
    Identity::from_pem(&both).map_err(|error| format!("`client`: {}", chain(&error)))?;
    Ok(both)
}

/// Reads a file with certificates.
pub(super) fn pem(key: &str, path: &Path) -> Result<Vec<u8>, String> {
    let pem = read(key, path)?;
    let marker = b"-----BEGIN CERTIFICATE-----";
    if !pem.windows(marker.len()).any(|window| window == marker) {
        return Err(format!("`{key}` {}: no PEM certificate is in it", path.display()));
    }
    Ok(pem)
}
