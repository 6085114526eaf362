//! Digests of contents (OCI image-spec, `descriptor.md`), as `algorithm:digits`. Owns their form and their
//! hashing. The algorithms are those of containerd: sha256, sha512, and sha384.

use sha2::{Digest as _, Sha256, Sha384, Sha512};

use crate::error::ContentError;

/// Most letters of an invalid digest shown in an error.
const SHOWN_MAX: usize = 144;

/// A hash algorithm of digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    const ALL: [Algorithm; 3] = [Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha384 => "sha384",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// Hexadecimal digits of a digest.
    fn digits(self) -> usize {
        match self {
            Algorithm::Sha256 => 64,
            Algorithm::Sha384 => 96,
            Algorithm::Sha512 => 128,
        }
    }
}

/// Splits a text at its algorithm, if it begins with one. The rest may be any text.
pub(crate) fn split(text: &str) -> Option<(Algorithm, &str)> {
    let (name, rest) = text.split_once(':')?;
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).map(|algorithm| (algorithm, rest))
}

/// Splits a digest into its algorithm and digits.
///
/// # Errors
/// [`ContentError::DigestFormat`] if the algorithm is unknown, or its digits are not as many as it has, in
/// lower case.
pub(crate) fn parse(digest: &str) -> Result<(Algorithm, &str), ContentError> {
    split(digest)
        .filter(|(algorithm, hex)| hex.len() == algorithm.digits() && is_hex(hex))
        .ok_or_else(|| ContentError::DigestFormat(digest.chars().take(SHOWN_MAX).collect()))
}

/// Returns a digest's digits. They are also a safe file name, and no two algorithms have equally many.
///
/// # Errors
/// As [`parse`].
pub(crate) fn digest_hex(digest: &str) -> Result<&str, ContentError> {
    parse(digest).map(|(_, hex)| hex)
}

/// Returns the digest with these digits. Their number decides the algorithm.
pub(crate) fn of_hex(hex: &str) -> Option<String> {
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.digits() == hex.len())?;
    is_hex(hex).then(|| format!("{}:{hex}", algorithm.name()))
}

/// Returns true if a text has nothing but hexadecimal digits in lower case.
pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A digest being computed.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn new(algorithm: Algorithm) -> Hasher {
        match algorithm {
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha384 => Hasher::Sha384(Sha384::new()),
            Algorithm::Sha512 => Hasher::Sha512(Sha512::new()),
        }
    }

    /// A hasher to compare with this digest. An invalid one is never equal.
    pub(crate) fn like(digest: &str) -> Hasher {
        Hasher::new(split(digest).map_or(Algorithm::Sha256, |(algorithm, _)| algorithm))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hash) => hash.update(bytes),
            Hasher::Sha384(hash) => hash.update(bytes),
            Hasher::Sha512(hash) => hash.update(bytes),
        }
    }

    /// Returns the digest of all bytes.
    pub(crate) fn finish(self) -> String {
        match self {
            Hasher::Sha256(hash) => format!("sha256:{}", hex::encode(hash.finalize())),
            Hasher::Sha384(hash) => format!("sha384:{}", hex::encode(hash.finalize())),
            Hasher::Sha512(hash) => format!("sha512:{}", hex::encode(hash.finalize())),
        }
    }
}

/// Returns the sha256 digest of a document.
pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_its_digits_and_hashes_as_its_published_example() {
        // FIPS 180-4: the beginnings of the digests of "abc".
        let starts = ["sha256:ba7816bf", "sha384:cb00753f", "sha512:ddaf35a1"];
        for (algorithm, start) in Algorithm::ALL.into_iter().zip(starts) {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"a");
            hasher.update(b"bc");
            let digest = hasher.finish();
            assert!(digest.starts_with(start), "{digest}");
            let (found, hex) = parse(&digest).unwrap();
            assert_eq!((found, of_hex(hex)), (algorithm, Some(digest.clone())));
            let mut again = Hasher::like(&digest);
            again.update(b"abc");
            assert_eq!(again.finish(), digest);
        }
    }

    #[test]
    fn a_digest_is_an_algorithm_and_its_digits_in_lower_case() {
        let hex = "0f".repeat(32);
        assert_eq!(digest_hex(&format!("sha256:{hex}")).unwrap(), hex);
        let upper = format!("sha256:{}", hex.to_uppercase());
        let wrong =
            [&upper, &format!("sha512:{hex}"), &format!("md5:{}", &hex[..32]), &hex, "sha256:", "sha256", ""];
        for wrong in wrong.map(str::to_owned) {
            assert_eq!(parse(&wrong), Err(ContentError::DigestFormat(wrong.clone())));
        }
        assert_eq!((of_hex(""), of_hex(&hex[1..]), of_hex(&"g".repeat(64))), (None, None, None));
    }

    #[test]
    fn an_invalid_digest_is_shown_cut() {
        let Err(ContentError::DigestFormat(shown)) = parse(&"é".repeat(1000)) else {
            panic!("it is refused")
        };
        assert_eq!(shown.chars().count(), SHOWN_MAX);
    }
}
