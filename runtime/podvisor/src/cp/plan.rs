//! Decides the names of the copies by what is there, as Docker does. Pure.
//!
//! | source | destination | result |
//! |---|---|---|
//! | any | a directory | the source's name in it; the contents of the source if it ends in `/.` |
//! | a directory | absent | a new directory with the contents |
//! | a file | absent, or a file | the destination's name |
//! | a directory | a file | refused |

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use super::place::{End, Inside};

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Directory,
    /// A file, a link, or anything else.
    Other,
    Absent,
}

/// A copy out of a container.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Out<'a> {
    /// The directory in the container where the archive is made, and the name there.
    pub(super) directory: &'a str,
    pub(super) name: &'a str,
    /// The directory here for the archive's files. It is made unless it exists.
    pub(super) into: PathBuf,
    /// The new name of the archive's only file.
    pub(super) rename: Option<String>,
}

/// A copy into a container.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct In<'a> {
    /// The directory in the container where the archive is unpacked.
    pub(super) directory: &'a str,
    /// The source's name there. `.` are its contents.
    pub(super) name: &'a str,
}

/// The contents of a directory, as a name.
const CONTENTS: &str = ".";

/// Plans a copy out of a container. `is_directory` says whether the source is one.
pub(super) fn out<'a>(
    source: &'a Inside,
    is_directory: bool,
    destination: &Path,
    found: Found,
) -> anyhow::Result<Out<'a>> {
    let contents = |into: PathBuf| Out { directory: &source.path, name: CONTENTS, into, rename: None };
    let (directory, name) = source.split();
    let shown = destination.display();
    match (is_directory, found) {
        (true, Found::Directory) if source.end == End::Contents => Ok(contents(destination.to_owned())),
        (_, Found::Directory) => Ok(Out { directory, name, into: destination.to_owned(), rename: None }),
        (true, Found::Absent) => Ok(contents(destination.to_owned())),
        (true, Found::Other) => bail!("{shown} is a file, and {} is a directory", source.path),
        (false, Found::Absent | Found::Other) => {
            let is_name = End::of(&destination.to_string_lossy()) == End::Name;
            ensure!(is_name, "{shown} is no directory; leave out the slash to name the file so");
            let (parent, rename) = (destination.parent(), destination.file_name());
            let Some(rename) = rename.and_then(|name| name.to_str()) else { bail!("{shown} is no name") };
            // The parent of a name alone is empty.
            let into = parent.filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(Out { directory, name, into: into.to_owned(), rename: Some(rename.to_owned()) })
        }
    }
}

/// Plans a copy into a container. `name` is the source's own, and `end` what its path ends in.
pub(super) fn into<'a>(
    (name, end, is_directory): (&'a str, End, bool),
    destination: &'a Inside,
    found: Found,
) -> anyhow::Result<In<'a>> {
    let (parent, new_name) = destination.split();
    let shown = &destination.path;
    match (is_directory, found) {
        (true, Found::Directory) if end == End::Contents => {
            Ok(In { directory: &destination.path, name: CONTENTS })
        }
        (_, Found::Directory) => Ok(In { directory: &destination.path, name }),
        (true, Found::Other) => bail!("{shown} in the container is a file, and {name} is a directory"),
        (false, _) if destination.end != End::Name => {
            bail!("{shown} in the container is no directory; leave out the slash to name the file so")
        }
        (true, Found::Absent) | (false, Found::Absent | Found::Other) => {
            Ok(In { directory: parent, name: new_name })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;

    fn inside(path: &str) -> Inside {
        match Place::of(&format!("c:{path}")) {
            Place::Container(_, inside) => inside,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_copy_out_is_named_as_docker_names_it() {
        use Found::{Absent, Directory, Other};
        for (source, is_directory, destination, found, expected) in [
            ("/a/b", true, "d", Directory, ("/a", "b", "d", None)),
            ("/a/b/.", true, "d", Directory, ("/a/b", ".", "d", None)),
            ("/", true, "d", Directory, ("/", ".", "d", None)),
            ("/a/b", false, "d", Directory, ("/a", "b", "d", None)),
            ("/a/b", true, "new", Absent, ("/a/b", ".", "new", None)),
            ("/a/b", false, "x/new", Absent, ("/a", "b", "x", Some("new"))),
            ("/a/b", false, "new", Other, ("/a", "b", ".", Some("new"))),
        ] {
            let source = inside(source);
            let plan = out(&source, is_directory, Path::new(destination), found).unwrap();
            let rename = plan.rename.as_deref();
            assert_eq!((plan.directory, plan.name, plan.into.to_str().unwrap(), rename), expected);
        }
        let refused = |is_directory, destination: &str, found| {
            out(&inside("/a/b"), is_directory, Path::new(destination), found).unwrap_err().to_string()
        };
        assert_eq!(refused(true, "file", Other), "file is a file, and /a/b is a directory");
        assert!(refused(false, "new/", Absent).starts_with("new/ is no directory"));
    }

    #[test]
    fn a_copy_in_is_named_as_docker_names_it() {
        use Found::{Absent, Directory, Other};
        for (source, destination, found, expected) in [
            (("s", End::Name, true), "/d", Directory, ("/d", "s")),
            (("s", End::Contents, true), "/d", Directory, ("/d", ".")),
            (("s", End::Name, false), "/", Directory, ("/", "s")),
            (("s", End::Contents, true), "/d/new", Absent, ("/d", "new")),
            (("s", End::Name, true), "/d/new/", Absent, ("/d", "new")),
            (("s", End::Name, false), "/d/new", Absent, ("/d", "new")),
            (("s", End::Name, false), "/d/file", Other, ("/d", "file")),
        ] {
            let destination = inside(destination);
            let plan = into(source, &destination, found).unwrap();
            assert_eq!((plan.directory, plan.name), expected);
        }
        let refused = |is_directory, destination: &str, found| {
            into(("s", End::Name, is_directory), &inside(destination), found).unwrap_err().to_string()
        };
        assert_eq!(refused(true, "/d", Other), "/d in the container is a file, and s is a directory");
        assert!(refused(false, "/new/", Absent).starts_with("/new in the container is no directory"));
    }
}
