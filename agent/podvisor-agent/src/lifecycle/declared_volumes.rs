//! Volumes declared by the container's image. Each is a directory of the scratch disk. The container may
//! write to it even if its root is read-only, and it is removed with the container. An overlay shows the
//! image's content at that path, with its owners and modes. If the image has no content there, the volume is
//! a plain directory, because programs with their own overlays need one.
//!
//! An image is hostile: its links are resolved with the image as root and never lead out of it.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oci_spec::runtime::Spec;
use proto_agent::agent::DeclaredVolume;

use crate::containers::{Container, ContainerError};
use crate::lifecycle::build_mount::BuildMount;
use crate::lifecycle::layers::{self, Access, Layers};
use crate::lifecycle::volumes;
use crate::pod::Pod;

/// The step named in errors.
const STEP: &str = "make a volume declared by the image";

/// The image's content at a volume's path.
#[derive(Debug)]
enum Found {
    Nothing,
    /// An empty directory.
    Empty(Metadata),
    Content(PathBuf, Metadata),
}

/// Makes the volumes' directories and sets the sources of the specification's mounts to them. The overlays
/// must live until the container is built.
pub(super) async fn mount(
    pod: &Pod,
    container: &Arc<Container>,
    image: &Path,
    declared: &[DeclaredVolume],
    spec: &mut Spec,
) -> Result<Vec<BuildMount>, ContainerError> {
    let mut overlays = Vec::new();
    for (volume, number) in declared.iter().zip(0..) {
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{:?}: {error}", volume.path));
        let found = find(image, &volume.path).map_err(at).map_err(container.io(STEP))?;
        let (place, overlay) = make(pod, container, number, found).await?;
        overlays.extend(overlay);
        let mounts = spec.mounts_mut().iter_mut().flatten();
        for mount in mounts.filter(|mount| mount.source().as_deref() == Some(Path::new(&volume.source))) {
            mount.set_source(Some(place.clone()));
        }
    }
    Ok(overlays)
}

/// Makes one volume's directory, and the overlay there if the image has content. Returns the path to bind.
async fn make(
    pod: &Pod,
    container: &Arc<Container>,
    number: usize,
    found: Found,
) -> Result<(PathBuf, Option<BuildMount>), ContainerError> {
    let directory = container.scratch().join(format!("volume-{number}"));
    let place = |name: &str| container.directory().join(format!("declared-{number}{name}"));
    let (content, access) = match found {
        Found::Nothing => {
            let (uid, gid) = pod.guest_ids(0, 0)?;
            (None, Access { uid, gid, permissions: Permissions::from_mode(0o755) })
        }
        Found::Empty(like) => (None, Access::of(pod, &like)?),
        Found::Content(content, like) => (Some(content), Access::of(pod, &like)?),
    };
    let lower = content.map(|content| match pod.user_namespace.get() {
        Some(namespace) => BuildMount::mapped(&content, place("-image"), namespace),
        None => BuildMount::directory(&content, place("-image")),
    });
    let lower = lower.transpose().map_err(container.io(STEP))?;
    let (made, target) = (Arc::clone(container), place(""));
    layers::on_disk(pod, container, move || {
        make_on_disk(&directory, &access, lower, target).map_err(made.io(STEP))
    })
    .await
}

/// Makes the directory or overlay of a volume. Blocks on the scratch disk.
fn make_on_disk(
    directory: &Path,
    access: &Access,
    lower: Option<BuildMount>,
    target: PathBuf,
) -> io::Result<(PathBuf, Option<BuildMount>)> {
    let (upper, work) = (directory.join("upper"), directory.join("work"));
    fs::create_dir_all(&upper)?;
    access.give(&upper)?;
    // The overlay has its own mount of it, so this one can end here.
    let Some(lower) = lower else { return Ok((upper, None)) };
    fs::create_dir_all(&work)?;
    let layers = Layers { lower: lower.path(), upper: &upper, work: &work };
    let overlay = BuildMount::overlay(&layers, target)?;
    Ok((overlay.path().to_owned(), Some(overlay)))
}

/// Looks up a volume's path in the image. The image does not change afterwards.
fn find(image: &Path, path: &str) -> io::Result<Found> {
    let place = match volumes::resolve(image, path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        found => found?,
    };
    let like = fs::metadata(&place)?;
    if !like.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    let is_empty = fs::read_dir(&place)?.next().is_none();
    Ok(if is_empty { Found::Empty(like) } else { Found::Content(place, like) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_volumes_content_is_found_in_the_image_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().canonicalize().unwrap().join("image");
        fs::create_dir_all(image.join("srv/data/below")).unwrap();
        fs::create_dir_all(dir.path().join("outside/below")).unwrap();
        fs::create_dir(image.join("empty")).unwrap();
        fs::write(image.join("file"), "").unwrap();
        symlink("/srv", image.join("link")).unwrap();
        symlink("../../outside", image.join("out")).unwrap();
        symlink("loop", image.join("loop")).unwrap();
        let content = |path: &str| match find(&image, path).unwrap() {
            Found::Content(place, _) => place,
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(content("/srv/data"), image.join("srv/data"));
        assert_eq!(content("/link/data"), image.join("srv/data"));
        assert!(matches!(find(&image, "/empty").unwrap(), Found::Empty(_)));
        for nothing in ["/none", "/none/below", "/out", "/out/below"] {
            assert!(matches!(find(&image, nothing).unwrap(), Found::Nothing), "{nothing}");
        }
        for wrong in ["/file", "/file/below", "/loop"] {
            find(&image, wrong).unwrap_err();
        }
    }
}
