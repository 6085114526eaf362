//! The two arguments of `podvisor cp`: a path of this host, a path in a container, or a stream. Pure.

use std::path::PathBuf;

/// One side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On this host.
    Here(Here),
    /// In a container, as its user named it.
    Container(String, Inside),
}

/// A place on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Here {
    Path(PathBuf),
    /// Standard input or output, as a tar archive.
    Stream,
}

/// A path in a container: absolute, without dots and doubled slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) path: String,
    /// The last slash, or what follows it.
    pub(super) end: End,
}

/// What a path ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Name,
    /// `/`: it is meant to be a directory.
    Slash,
    /// `/.`: the contents of a directory.
    Contents,
}

impl End {
    pub(super) fn of(path: &str) -> End {
        match path.rsplit('/').next() {
            Some(".") => End::Contents,
            Some("") => End::Slash,
            _ => End::Name,
        }
    }
}

impl Place {
    /// Reads an argument. It names a container if it has a colon before the first slash, and does not begin
    /// with a dot.
    pub(super) fn of(argument: &str) -> Place {
        if argument == "-" {
            return Place::Here(Here::Stream);
        }
        match argument.split_once(':') {
            Some((container, path)) if !container.is_empty() && !argument.starts_with(['/', '.']) => {
                Place::Container(container.to_owned(), Inside::of(path))
            }
            _ => Place::Here(Here::Path(PathBuf::from(argument))),
        }
    }
}

impl Inside {
    /// A path is relative to the container's root, as in Docker.
    fn of(path: &str) -> Inside {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let end = if parts.is_empty() { End::Contents } else { End::of(path) };
        Inside { path: format!("/{}", parts.join("/")), end }
    }

    /// The directory with this path, and the name there. The root has no name.
    pub(super) fn split(&self) -> (&str, &str) {
        match self.path.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some((directory, name)) => (directory, name),
            None => ("/", &self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(path: &str, end: End) -> Inside {
        Inside { path: path.to_owned(), end }
    }

    #[test]
    fn an_argument_with_a_colon_names_a_container_unless_it_is_plainly_a_path() {
        for (argument, container, path, end) in [
            ("web:/etc/hosts", "web", "/etc/hosts", End::Name),
            ("web:etc", "web", "/etc", End::Name),
            ("shop/web/app:/a//b/../c/", "shop/web/app", "/a/c", End::Slash),
            ("web:/etc/.", "web", "/etc", End::Contents),
            ("web:", "web", "/", End::Contents),
            ("web:/../..", "web", "/", End::Contents),
            ("web:/a/b/..", "web", "/a", End::Name),
            ("web:a:b", "web", "/a:b", End::Name),
        ] {
            let place = Place::of(argument);
            assert_eq!(place, Place::Container(container.to_owned(), inside(path, end)), "{argument}");
        }
        for path in ["/tmp/a:b", "./a:b", "file", ":x", "../x"] {
            assert_eq!(Place::of(path), Place::Here(Here::Path(path.into())));
        }
        assert_eq!(Place::of("-"), Place::Here(Here::Stream));
    }

    #[test]
    fn a_path_has_a_directory_and_a_name() {
        for (path, directory, name) in [("/etc/hosts", "/etc", "hosts"), ("/etc", "/", "etc"), ("/", "/", "")]
        {
            assert_eq!(inside(path, End::Name).split(), (directory, name));
        }
    }
}
