//! Files of credentials in docker's form (`config.json`), also used by podman and others. Read, never
//! written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proto_images::v1::Credentials;
use serde::Deserialize;

/// Longest file, in bytes. A file of a hundred registries has some tens of KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Docker Hub's name in images, and its names in files of a login.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_TOO: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];

/// One file. Other keys belong to other programs.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Content {
    auths: BTreeMap<String, Entry>,
    creds_store: Option<String>,
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase", default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

/// A file of credentials.
pub(crate) struct AuthFile {
    path: PathBuf,
    content: Content,
}

/// Reads the given file, or the existing ones of podman and docker.
///
/// # Errors
/// A given file does not exist, or a file cannot be read.
pub(super) fn read(named: Option<&Path>) -> anyhow::Result<Vec<AuthFile>> {
    if let Some(path) = named {
        return match read_one(path)? {
            Some(file) => Ok(vec![file]),
            None => bail!("{} is not there", path.display()),
        };
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME");
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let docker = variable("DOCKER_CONFIG").or(below_home(".docker"));
    let places = [
        variable("XDG_RUNTIME_DIR").map(|directory| directory.join("containers/auth.json")),
        below_home(".config/containers/auth.json"),
        docker.map(|directory| directory.join("config.json")),
    ];
    let found = places.into_iter().flatten().map(|path| read_one(&path));
    Ok(found.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// `None` if the file does not exist.
fn read_one(path: &Path) -> anyhow::Result<Option<AuthFile>> {
    let reading = || format!("reading {}", path.display());
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.with_context(reading)?,
    };
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).with_context(reading)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("{} has more than {FILE_BYTES_MAX} bytes", path.display());
    }
    // The parser's message may quote the file. Line and column are enough.
    let content = serde_json::from_slice(&text).map_err(|error: serde_json::Error| {
        anyhow::anyhow!(
            "{} is not JSON as a login writes it (line {}, column {})",
            path.display(),
            error.line(),
            error.column()
        )
    })?;
    Ok(Some(AuthFile { path: path.to_owned(), content }))
}

impl AuthFile {
    /// The credentials for a repository, as `docker.io/library/busybox`.
    ///
    /// # Errors
    /// The entry's text is malformed.
    pub(super) fn credentials_for(&self, repository: &str) -> anyhow::Result<Option<Credentials>> {
        let known = best(self.content.auths.iter(), repository);
        let Some(entry) = known else { return Ok(None) };
        let malformed = || format!("an entry of {} is not base64 of USER:PASSWORD", self.path.display());
        entry.credentials().with_context(malformed)
    }

    /// A helper with credentials for the repository, for people.
    pub(super) fn helper_for(&self, repository: &str) -> Option<String> {
        let helpers = &self.content.cred_helpers;
        let helper = best(helpers.iter(), repository).or(self.content.creds_store.as_ref())?;
        Some(format!("{} names the credential helper {helper:?}", self.path.display()))
    }
}

impl Entry {
    /// `None` for an entry with its secret in a helper.
    fn credentials(&self) -> anyhow::Result<Option<Credentials>> {
        let mut found = Credentials {
            username: self.username.clone(),
            password: self.password.clone(),
            identity_token: self.identitytoken.clone(),
            registry_token: self.registrytoken.clone(),
        };
        if found.username.is_empty() && !self.auth.is_empty() {
            // The cause is dropped: it would quote the secret.
            let text = STANDARD.decode(self.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let text = text.context("no text")?;
            let (username, password) = text.split_once(':').context("no colon")?;
            username.clone_into(&mut found.username);
            // Old docker clients pad the password with NULs.
            password.trim_end_matches('\0').clone_into(&mut found.password);
        }
        Ok(Some(found).filter(|found| *found != Credentials::default()))
    }
}

/// The value of the key with the longest match of the repository's name.
fn best<'a, V: 'a>(of: impl Iterator<Item = (&'a String, &'a V)>, repository: &str) -> Option<&'a V> {
    let matching = of.filter_map(|(key, value)| {
        let key = normal(key);
        let rest = repository.strip_prefix(key.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some((key.len(), value))
    });
    matching.max_by_key(|(length, _)| *length).map(|(_, value)| value)
}

/// A key without a scheme, a version, or whatever else old logins put around a registry's name.
fn normal(key: &str) -> String {
    let key = key.strip_prefix("https://").or(key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = ["/v1", "/v2"].iter().find_map(|version| key.strip_suffix(version)).unwrap_or(key);
    let (registry, rest) = key.split_at(key.find('/').unwrap_or(key.len()));
    let registry = if DOCKER_HUB_TOO.contains(&registry) { DOCKER_HUB } else { registry };
    format!("{registry}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> AuthFile {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), text).unwrap();
        read_one(path.path()).unwrap().unwrap()
    }

    fn user(file: &AuthFile, name: &str) -> Option<String> {
        let repository = runtime_image::repository(name).unwrap();
        file.credentials_for(&repository)
            .unwrap()
            .map(|found| format!("{}:{}", found.username, found.password))
    }

    #[test]
    fn the_longest_part_of_the_name_counts() {
        // "hub:h", "all:a", "team:t".
        let file = file(
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"aHViOmg="},"r.example:5000":{"auth":"YWxsOmE="},
            "r.example:5000/team":{"auth":"dGVhbTp0"},"other":{}},"HttpHeaders":{"x":"y"}}"#,
        );
        assert_eq!(user(&file, "busybox").as_deref(), Some("hub:h"));
        assert_eq!(user(&file, "r.example:5000/a:1").as_deref(), Some("all:a"));
        assert_eq!(user(&file, "r.example:5000/team/a:1").as_deref(), Some("team:t"));
        assert_eq!(user(&file, "r.example:5000/teams/a:1").as_deref(), Some("all:a"), "another name");
        assert_eq!(user(&file, "r.example/team/a:1"), None);
    }

    #[test]
    fn tokens_and_plain_users_are_taken_as_they_are() {
        let file = file(
            r#"{"auths":{"a.example":{"auth":"","identitytoken":"i"},"b.example":{"username":"u","password":"p"}}}"#,
        );
        assert_eq!(file.credentials_for("a.example/x").unwrap().unwrap().identity_token, "i");
        assert_eq!(user(&file, "b.example/x").as_deref(), Some("u:p"));
    }

    #[test]
    fn a_helper_is_named_where_it_has_the_secret() {
        let file =
            file(r#"{"auths":{"a.example":{}},"credsStore":"pass","credHelpers":{"b.example":"cloud"}}"#);
        assert!(file.credentials_for("a.example/x").unwrap().is_none());
        assert!(file.helper_for("a.example/x").unwrap().contains("\"pass\""));
        assert!(file.helper_for("b.example/x").unwrap().contains("\"cloud\""));
    }

    #[test]
    fn nothing_of_a_secret_is_in_an_error() {
        let broken = file(r#"{"auths":{"a.example":{"auth":"c2VjcmV0"}}}"#);
        let error = format!("{:#}", broken.credentials_for("a.example/x").unwrap_err());
        assert!(error.contains("not base64 of USER:PASSWORD") && !error.contains("c2VjcmV0"), "{error}");
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), r#"{"auths":"hunter2"}"#).unwrap();
        let error = format!("{:#}", read_one(path.path()).err().unwrap());
        assert!(error.contains("line 1") && !error.contains("hunter2"), "{error}");
        std::fs::write(path.path(), vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(read_one(path.path()).err().unwrap().to_string().contains("more than"));
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let error = read(Some(Path::new("/nowhere/auth.json"))).err().unwrap().to_string();
        assert_eq!(error, "/nowhere/auth.json is not there");
    }
}
