//! Names of images. Owns the normal form of references; never contacts a registry.
//!
//! | given | pulls | tag kept | digest kept |
//! |---|---|---|---|
//! | `a` | `docker.io/library/a:latest` | `docker.io/library/a:latest` | `docker.io/library/a@sha256:…` |
//! | `host/a:1` | `host/a:1` | `host/a:1` | `host/a@sha256:…` |
//! | `host/a@sha256:…`, `host/a:1@sha256:…` | by digest | none | `host/a@sha256:…` |
//!
//! The rules are those of Docker's references (distribution, `reference`), as in every Kubernetes runtime.

use oci_client::Reference;

use crate::digest::{self, Algorithm, digest_hex};
use crate::error::ImageError;
use parts::Parts;

mod parts;
#[cfg(test)]
mod tests;

/// Fewest digits of a shortened image id: `crictl images` shows 13.
const SHORTEST_ID: usize = 12;

/// Most digits of an image id: those of sha512.
const LONGEST_ID: usize = 128;

/// Most letters of an invalid name shown in an error.
const SHOWN_MAX: usize = 512;

/// A reference to pull, in normal form.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) reference: Reference,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Result<Name, ImageError> {
        reference(name).map(|reference| Name { reference }).map_err(|reason| {
            let name = name.chars().take(SHOWN_MAX).collect();
            ImageError::Name { name, reason }
        })
    }

    /// Parses the name of an imported image: a name with a tag, not with a digest.
    pub(crate) fn of_tag(name: &str) -> Result<Name, ImageError> {
        let parsed = Name::parse(name)?;
        if parsed.reference.digest().is_some() {
            let reason = "the name of an imported image has a tag and no digest".to_owned();
            return Err(ImageError::Name { name: name.to_owned(), reason });
        }
        Ok(parsed)
    }

    /// `registry/repository`.
    fn repository(&self) -> String {
        format!("{}/{}", self.reference.registry(), self.reference.repository())
    }

    /// Returns the image's tag. `None` if it is pulled by digest.
    pub(crate) fn repo_tag(&self) -> Option<String> {
        self.reference.tag().map(|tag| format!("{}:{tag}", self.repository()))
    }

    /// Returns the digest name of a manifest in this repository.
    pub(crate) fn repo_digest(&self, digest: &str) -> String {
        format!("{}@{digest}", self.repository())
    }

    /// Returns the full name, with tag or digest.
    pub(crate) fn whole(&self) -> String {
        match self.reference.digest() {
            Some(digest) => self.repo_digest(digest),
            None => self.repo_tag().unwrap_or_else(|| self.repository()),
        }
    }
}

/// Converts a name to normal form. The error names the wrong part.
fn reference(name: &str) -> Result<Reference, String> {
    if digest::of_hex(name).is_some() || digest::parse(name).is_ok() {
        return Err("it is the id of an image, and no name to pull".to_owned());
    }
    let Parts { registry, repository, tag, digest } = parts::split(name)?;
    let registry = registry.to_owned();
    match digest {
        // With both, the digest counts.
        Some(digest) if digest_hex(digest).is_ok() => {
            Ok(Reference::with_digest(registry, repository, digest.to_owned()))
        }
        Some(digest) => Err(format!(
            "its digest {digest:?} is not sha256 with 64 digits in lower case, sha384 with 96 or sha512 with 128"
        )),
        None => Ok(Reference::with_tag(registry, repository, tag.unwrap_or("latest").to_owned())),
    }
}

/// Returns the full name of a reference's repository, like `docker.io/library/busybox`. Credentials are found
/// by it.
///
/// # Errors
/// [`ImageError::Name`].
pub fn repository(reference: &str) -> Result<String, ImageError> {
    Name::parse(reference).map(|name| name.repository())
}

/// Returns the full name of a reference, with its tag or digest: `docker.io/library/busybox:latest`.
///
/// # Errors
/// [`ImageError::Name`].
pub fn whole_name(reference: &str) -> Result<String, ImageError> {
    Name::parse(reference).map(|name| name.whole())
}

/// An image id, whole or shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdPrefix<'a> {
    algorithm: Option<Algorithm>,
    hex: &'a str,
}

impl IdPrefix<'_> {
    /// Returns true if the image with this id may be meant.
    pub(crate) fn is_of(&self, id: &str) -> bool {
        digest::split(id).is_some_and(|(algorithm, hex)| {
            self.algorithm.is_none_or(|wanted| wanted == algorithm) && hex.starts_with(self.hex)
        })
    }
}

/// Returns the image id in `name`, if it could be one.
pub(crate) fn id_prefix(name: &str) -> Option<IdPrefix<'_>> {
    let (algorithm, hex, shortest) = match digest::split(name) {
        Some((algorithm, hex)) => (Some(algorithm), hex, 1),
        None => (None, name, SHORTEST_ID),
    };
    let is_long_enough = (shortest..=LONGEST_ID).contains(&hex.len());
    (is_long_enough && digest::is_hex(hex)).then_some(IdPrefix { algorithm, hex })
}
