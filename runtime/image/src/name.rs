//! Names of images. Owns the normal form of references; never talks to a registry.
//!
//! | given | pulls | tag kept | digest kept |
//! |---|---|---|---|
//! | `busybox` | `docker.io/library/busybox:latest` | `docker.io/library/busybox:latest` | `docker.io/library/busybox@sha256:…` |
//! | `host/a:1` | `host/a:1` | `host/a:1` | `host/a@sha256:…` |
//! | `host/a@sha256:…`, `host/a:1@sha256:…` | by digest | none | `host/a@sha256:…` |

use oci_client::Reference;

use crate::error::{ContentError, ImageError};

/// Hexadecimal digits of a sha256.
const DIGITS: usize = 64;

/// Fewest digits of an image id that is cut short: `crictl images` shows 13.
const SHORTEST_ID: usize = 12;

/// A reference to pull, in normal form.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) reference: Reference,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Result<Name, ImageError> {
        let wrong = |reason: String| ImageError::Name { name: name.to_owned(), reason };
        let reference: Reference =
            name.parse().map_err(|error: oci_client::ParseError| wrong(error.to_string()))?;
        let repository = reference.repository().to_owned();
        let registry = reference.registry().to_owned();
        let reference = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => {
                if digest_hex(digest).is_err() {
                    return Err(wrong("its digest is not sha256".to_owned()));
                }
                Reference::with_digest(registry, repository, digest.to_owned())
            }
            (None, tag) => Reference::with_tag(registry, repository, tag.unwrap_or("latest").to_owned()),
        };
        Ok(Name { reference })
    }

    /// The name that an image gets from whoever has it, and so has a tag.
    pub(crate) fn of_tag(name: &str) -> Result<Name, ImageError> {
        let parsed = Name::parse(name)?;
        if parsed.reference.digest().is_some() {
            let reason = "the name of an image that is imported has a tag and no digest".to_owned();
            return Err(ImageError::Name { name: name.to_owned(), reason });
        }
        Ok(parsed)
    }

    /// `registry/repository`.
    fn repository(&self) -> String {
        format!("{}/{}", self.reference.registry(), self.reference.repository())
    }

    /// The tag that the image will have; none if it is pulled by digest.
    pub(crate) fn repo_tag(&self) -> Option<String> {
        self.reference.tag().map(|tag| format!("{}:{tag}", self.repository()))
    }

    /// The digest name of a manifest in this repository.
    pub(crate) fn repo_digest(&self, digest: &str) -> String {
        format!("{}@{digest}", self.repository())
    }

    /// The whole name, with tag or digest.
    pub(crate) fn whole(&self) -> String {
        match self.reference.digest() {
            Some(digest) => self.repo_digest(digest),
            None => self.repo_tag().unwrap_or_else(|| self.repository()),
        }
    }
}

/// The whole name of the repository that a reference means, as `docker.io/library/busybox`: by it credentials are found.
///
/// # Errors
/// [`ImageError::Name`].
pub fn repository(reference: &str) -> Result<String, ImageError> {
    Name::parse(reference).map(|name| name.repository())
}

/// The digits of a `sha256:` digest in lower case, which is also a safe file name.
pub(crate) fn digest_hex(digest: &str) -> Result<&str, ContentError> {
    digest
        .strip_prefix("sha256:")
        .filter(|hex| {
            hex.len() == DIGITS && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
        .ok_or_else(|| ContentError::DigestFormat(digest.chars().take(128).collect()))
}

/// The digits of an image id, whole or cut short, if `name` could be one.
pub(crate) fn id_prefix(name: &str) -> Option<&str> {
    let (hex, shortest) = match name.strip_prefix("sha256:") {
        Some(hex) => (hex, 1),
        None => (name, SHORTEST_ID),
    };
    let hexadecimal = hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (hexadecimal && (shortest..=DIGITS).contains(&hex.len())).then_some(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn tag(name: &str) -> Option<String> {
        Name::parse(name).unwrap().repo_tag()
    }

    #[test]
    fn short_names_get_docker_hub_and_latest() {
        assert_eq!(tag("busybox").as_deref(), Some("docker.io/library/busybox:latest"));
        assert_eq!(tag("me/tool:2").as_deref(), Some("docker.io/me/tool:2"));
        assert_eq!(tag("localhost:5000/a/b").as_deref(), Some("localhost:5000/a/b:latest"));
        assert_eq!(tag("registry.k8s.io/pause:3.10").as_deref(), Some("registry.k8s.io/pause:3.10"));
    }

    #[test]
    fn a_digest_wins_over_a_tag() {
        let name = Name::parse(&format!("host.example/a:1@{DIGEST}")).unwrap();
        assert_eq!(name.repo_tag(), None);
        assert_eq!(name.whole(), format!("host.example/a@{DIGEST}"));
    }

    #[test]
    fn nonsense_is_refused_with_the_name_in_the_message() {
        let error = Name::parse("Not A Name").unwrap_err().to_string();
        assert!(error.contains("Not A Name"), "{error}");
        assert!(Name::parse("").is_err());
        assert!(Name::parse("a@sha256:12").is_err());
        assert!(Name::parse(&format!("a@sha512:{}", "0".repeat(128))).is_err());
    }

    #[test]
    fn ids_may_be_whole_bare_or_short() {
        assert_eq!(id_prefix(DIGEST), Some(&DIGEST[7..]));
        assert_eq!(id_prefix(&DIGEST[7..]), Some(&DIGEST[7..]));
        assert_eq!(id_prefix("0123456789abc"), Some("0123456789abc"));
        assert_eq!(id_prefix("beef"), None);
        assert_eq!(id_prefix("busybox"), None);
    }

    #[test]
    fn only_lower_case_sha256_is_a_digest() {
        assert!(digest_hex(DIGEST).is_ok());
        assert!(digest_hex("sha256:../../../../etc/passwd").is_err());
        assert!(digest_hex(&DIGEST.to_uppercase()).is_err());
        assert!(digest_hex("sha512:00").is_err());
    }
}
