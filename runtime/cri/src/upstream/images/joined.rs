//! ListImages of two stores as one list. An image in both stores is one item. Its id is the same in both,
//! because it is the digest of the image's configuration.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;

use super::super::fields;

/// Both lists as one, in the order of the first, then of the second. Items of only one store keep their
/// bytes.
pub(in super::super) fn joined(ours: &Bytes, theirs: &Bytes) -> Bytes {
    let mut items: Vec<(Bytes, Bytes)> = Vec::new();
    let mut at: BTreeMap<String, usize> = BTreeMap::new();
    for (whole, item) in [ours, theirs].into_iter().flat_map(|list| fields::items(list).unwrap_or_default()) {
        let id = fields::text(&item, 1).unwrap_or_default().to_owned();
        let known = *at.entry(id).or_insert(items.len());
        match items.get_mut(known) {
            None => items.push((whole, item)),
            Some(one) => *one = both(&one.1, &item).unwrap_or_else(|| one.clone()),
        }
    }
    items.into_iter().flat_map(|(whole, _)| whole).collect()
}

/// One image in two stores: all of its names, and the space of both.
fn both(one: &Bytes, other: &Bytes) -> Option<(Bytes, Bytes)> {
    let mut image = v1::Image::decode(one.clone()).ok()?;
    let other = v1::Image::decode(other.clone()).ok()?;
    for (names, others) in
        [(&mut image.repo_tags, other.repo_tags), (&mut image.repo_digests, other.repo_digests)]
    {
        for name in others {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    image.size = image.size.saturating_add(other.size);
    image.pinned |= other.pinned;
    let item = Bytes::from(image.encode_to_vec());
    let whole = v1::ListImagesResponse { images: vec![image] }.encode_to_vec().into();
    Some((whole, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, tag: &str, pinned: bool) -> v1::Image {
        let repo_tags = vec![tag.to_owned()];
        v1::Image { id: id.into(), repo_tags, size: 10, pinned, ..Default::default() }
    }

    fn list(images: Vec<v1::Image>) -> Bytes {
        v1::ListImagesResponse { images }.encode_to_vec().into()
    }

    #[test]
    fn an_image_of_both_stores_is_listed_once_with_all_names_and_the_space_of_both() {
        let ours = list(vec![image("1", "a", false), image("2", "b", false)]);
        let theirs = list(vec![image("3", "pause", true), image("1", "c", true)]);
        let joined = v1::ListImagesResponse::decode(joined(&ours, &theirs)).unwrap().images;
        let mut first = image("1", "a", true);
        first.repo_tags.push("c".into());
        first.size = 20;
        assert_eq!(joined, [first, image("2", "b", false), image("3", "pause", true)]);
    }

    #[test]
    fn a_store_without_images_changes_nothing() {
        let ours = list(vec![image("1", "a", false)]);
        assert_eq!(joined(&ours, &Bytes::new()), ours);
        assert_eq!(joined(&Bytes::new(), &ours), ours);
    }
}
