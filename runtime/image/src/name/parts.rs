//! The parts of a reference: `registry/repository:tag@digest`. Owns the rules of Docker's references: they
//! decide if a first part is a registry, and the allowed letters of each part. Callers check the digests.

/// The registry of names without one, and its older name.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_OLD: &str = "index.docker.io";

/// Most letters of a full repository name, and of a tag.
const REPOSITORY_MAX: usize = 255;
const TAG_MAX: usize = 128;

/// The parts of a name in normal form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) registry: &'a str,
    pub(super) repository: String,
    pub(super) tag: Option<&'a str>,
    /// The digest, unchanged.
    pub(super) digest: Option<&'a str>,
}

/// Splits a name into its parts. The error names the wrong one.
pub(super) fn split(name: &str) -> Result<Parts<'_>, String> {
    let (named, digest) = match name.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (name, None),
    };
    let (registry, rest) = registry(named);
    let (path, tag) = match rest.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    check_registry(registry)?;
    check_path(path)?;
    let is_short = registry == DOCKER_HUB && !path.contains('/');
    let repository = if is_short { format!("library/{path}") } else { path.to_owned() };
    if repository.len() > REPOSITORY_MAX {
        return Err(format!("its repository has {} letters, of {REPOSITORY_MAX} at most", repository.len()));
    }
    tag.map_or(Ok(()), check_tag)?;
    Ok(Parts { registry, repository, tag, digest })
}

/// Splits the registry off a name. A first part is a registry if it can be nothing else.
fn registry(named: &str) -> (&str, &str) {
    let is_registry = |first: &str| {
        first == "localhost"
            || first.contains(['.', ':'])
            || first.contains(|letter: char| letter.is_uppercase())
    };
    match named.split_once('/') {
        Some((DOCKER_HUB_OLD, rest)) => (DOCKER_HUB, rest),
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (DOCKER_HUB, named),
    }
}

fn check_registry(registry: &str) -> Result<(), String> {
    let wrong = || Err(format!("its registry {registry:?} is no host with or without a port"));
    let (host, port) = match registry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            if address.is_empty()
                || !address.chars().all(|letter| letter == ':' || letter.is_ascii_hexdigit())
            {
                return wrong();
            }
            (None, port)
        }
        None => {
            let end = registry.find(':').unwrap_or(registry.len());
            (Some(&registry[..end]), &registry[end..])
        }
    };
    let is_part = |part: &str| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        !part.is_empty() && part.chars().all(plain) && !part.starts_with('-') && !part.ends_with('-')
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    if has_port && host.is_none_or(|host| host.split('.').all(is_part)) { Ok(()) } else { wrong() }
}

fn check_path(path: &str) -> Result<(), String> {
    if path.contains(|letter: char| letter.is_ascii_uppercase()) {
        return Err(format!("its repository {path:?} must be in lower case"));
    }
    match path.split('/').all(is_component) {
        true => Ok(()),
        false => Err(format!(
            "its repository {path:?} must be parts of letters and digits, with \".\", \"_\", \"__\" or \"-\" between them"
        )),
    }
}

/// Returns true if a part of a path consists of letters and digits, with single separators between them.
fn is_component(part: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_separator =
        |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    part.starts_with(is_plain) && part.ends_with(is_plain) && part.split(is_plain).all(is_separator)
}

fn check_tag(tag: &str) -> Result<(), String> {
    let is_first = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_plain = |letter: char| is_first(letter) || matches!(letter, '.' | '-');
    match tag.starts_with(is_first) && tag.chars().all(is_plain) && tag.len() <= TAG_MAX {
        true => Ok(()),
        false => Err(format!(
            "its tag {tag:?} must be letters, digits, \"_\", \".\" and \"-\", {TAG_MAX} of them at most"
        )),
    }
}
