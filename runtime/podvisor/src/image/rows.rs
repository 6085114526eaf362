//! The rows of the table of images: one for each tag, and one for an image without tags. Pure.

use proto_cri::v1;

use crate::show::table::Column;
use crate::show::units;

/// The table's columns.
pub(super) fn columns(digests: bool) -> Vec<Column> {
    let mut columns =
        vec![Column::cut("NAME"), Column::whole("ID"), Column::figure("SIZE"), Column::whole("PINNED")];
    if digests {
        columns.push(Column::whole("DIGEST"));
    }
    columns
}

/// Sorts images by their first name; those without a name come last.
pub(super) fn sort(images: &mut [v1::Image]) {
    images.sort_by_cached_key(|image| {
        let name = image.repo_tags.first().or(image.repo_digests.first());
        (name.is_none(), name.cloned(), image.id.clone())
    });
}

/// The rows of these images.
pub(super) fn rows(images: &[v1::Image], digests: bool) -> Vec<Vec<String>> {
    images.iter().flat_map(|image| of_image(image, digests)).collect()
}

fn of_image(image: &v1::Image, digests: bool) -> Vec<Vec<String>> {
    let names = match (&image.repo_tags[..], &image.repo_digests[..]) {
        ([], []) => vec![units::UNKNOWN.to_owned()],
        ([], by_digest) => by_digest.to_vec(),
        (tags, _) => tags.to_vec(),
    };
    names.into_iter().map(|name| row(image, name, digests)).collect()
}

fn row(image: &v1::Image, name: String, digests: bool) -> Vec<String> {
    let digest = digests.then(|| digest_of(&name, &image.repo_digests));
    let pinned = if image.pinned { "yes" } else { units::UNKNOWN };
    let mut row =
        vec![name, units::short_digest(&image.id).to_owned(), units::bytes(image.size), pinned.to_owned()];
    row.extend(digest);
    row
}

/// The digests of the image in the registry of this name.
fn digest_of(name: &str, repo_digests: &[String]) -> String {
    let repository = repository(name);
    let known = repo_digests.iter().filter_map(|known| known.rsplit_once('@'));
    let digests: Vec<&str> = known.filter(|(of, _)| *of == repository).map(|(_, digest)| digest).collect();
    if digests.is_empty() { units::UNKNOWN.to_owned() } else { digests.join(" ") }
}

/// The name without its tag or digest. A colon before the last slash is a registry's port.
fn repository(name: &str) -> &str {
    if let Some((repository, _)) = name.rsplit_once('@') {
        return repository;
    }
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    name[last..].find(':').map_or(name, |colon| &name[..last + colon])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::table;

    fn image(id: char, tags: &[&str], digests: &[&str]) -> v1::Image {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        v1::Image {
            id: format!("sha256:{}", id.to_string().repeat(64)),
            repo_tags: owned(tags),
            repo_digests: owned(digests),
            size: 3 << 20,
            ..Default::default()
        }
    }

    fn words(images: &[v1::Image], digests: bool) -> Vec<Vec<String>> {
        let lines = table::render(&columns(digests), &rows(images, digests), None);
        lines.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn each_tag_has_a_row_and_an_image_without_one_has_its_digest() {
        let mut pinned = image('b', &[], &["r/b@sha256:2"]);
        pinned.pinned = true;
        let mut images = vec![
            image('c', &[], &[]),
            pinned,
            image('a', &["h:5000/a:1", "h:5000/a:2"], &["h:5000/a@sha256:1"]),
        ];
        sort(&mut images);
        let lines = words(&images, false);
        assert_eq!(lines[0], ["NAME", "ID", "SIZE", "PINNED"]);
        assert_eq!(lines[1], ["h:5000/a:1", "aaaaaaaaaaaa", "3.0MiB", "-"]);
        assert_eq!(lines[2][..2], ["h:5000/a:2", "aaaaaaaaaaaa"]);
        assert_eq!(lines[3], ["r/b@sha256:2", "bbbbbbbbbbbb", "3.0MiB", "yes"]);
        assert_eq!(lines[4][..2], ["-", "cccccccccccc"]);
    }

    #[test]
    fn a_digest_stands_beside_the_names_of_its_repository_alone() {
        let images = [image('a', &["h:5000/a:1", "x/y:1"], &["h:5000/a@sha256:1", "z@sha256:2"])];
        let lines = words(&images, true);
        assert_eq!(lines[1][4], "sha256:1");
        assert_eq!(lines[2][4], "-");
    }

    #[test]
    fn a_port_is_no_tag() {
        for (name, expected) in [
            ("h:5000/a", "h:5000/a"),
            ("h:5000/a:1", "h:5000/a"),
            ("a:1", "a"),
            ("h/a:1@sha256:2", "h/a:1"),
            ("", ""),
        ] {
            assert_eq!(repository(name), expected);
        }
    }
}
