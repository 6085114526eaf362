//! The images of an OCI image layout (image-spec, `image-layout.md`): those named by its index. Descriptors
//! with the same name are variants of one image.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::found::Found;
use crate::digest::{self, digest_hex};
use crate::error::{ContentError, ImageError};
use crate::name::Name;
use crate::spool::Spool;

/// The supported version of layouts (`imageLayoutVersion`), up to its second part.
const MAJOR: &str = "1.";

/// The annotation with an image's full name (containerd; docker save since 25).
const WHOLE_NAME: &str = "io.containerd.image.name";

/// The annotation with an image's name, or only with its tag (image-spec, `annotations.md`).
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Media type of a created index.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layout {
    image_layout_version: String,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Value>,
}

/// The images of the index at the layout's root.
pub(super) async fn images(spool: &Spool, index: &[u8]) -> Result<Vec<Found>, ImageError> {
    let wrong = |what: &str, reason: String| ImageError::content(what, ContentError::Json(reason));
    if let Some(layout) = spool.document("oci-layout").await? {
        let parsed: Result<Layout, _> = serde_json::from_slice(&layout);
        let version = parsed.map_err(|error| wrong("oci-layout", error.to_string()))?.image_layout_version;
        if !version.starts_with(MAJOR) {
            return Err(wrong("oci-layout", format!("version {version:?} is not known, but 1.0.0 is")));
        }
    }
    let index: Index =
        serde_json::from_slice(index).map_err(|error| wrong("index.json", error.to_string()))?;
    let mut found = Vec::new();
    for (name, descriptors) in by_name(index.manifests)? {
        let names = name.into_iter().collect();
        found.push(match &descriptors[..] {
            [one] => original(spool, one, names).await?,
            several => joined(several, names),
        });
    }
    Ok(found)
}

type Named = (Option<Name>, Vec<Value>);

/// Groups the descriptors by image name, in the index's order.
fn by_name(descriptors: Vec<Value>) -> Result<Vec<Named>, ImageError> {
    let mut groups: Vec<Named> = Vec::new();
    for descriptor in descriptors {
        let name = name(&descriptor)?;
        let whole = |name: &Option<Name>| name.as_ref().map(Name::whole);
        match groups.iter_mut().find(|(known, _)| whole(known) == whole(&name)) {
            // The same image again, not a variant of it.
            Some((_, group)) if group.iter().any(|known| known["digest"] == descriptor["digest"]) => {}
            // Descriptors without a name belong together only if both declare a platform.
            Some((known, group)) if known.is_some() || has_platforms(group, &descriptor) => {
                group.push(descriptor);
            }
            _ => groups.push((name, vec![descriptor])),
        }
    }
    Ok(groups)
}

fn has_platforms(group: &[Value], descriptor: &Value) -> bool {
    group.iter().chain([descriptor]).all(|one| one["platform"].is_object())
}

/// Returns the full name of a descriptor's image. `None` if it has only a tag, an id, or nothing.
fn name(descriptor: &Value) -> Result<Option<Name>, ImageError> {
    let annotation = |key: &str| descriptor["annotations"][key].as_str().filter(|text| !text.is_empty());
    // containerd keeps an image's id as one more of its names for Kubernetes, and exports it as one.
    let is_id = |text: &&str| digest::parse(text).is_ok();
    let is_whole = |text: &&str| text.contains(['/', ':']);
    let name = annotation(WHOLE_NAME).or(annotation(REF_NAME).filter(is_whole));
    name.filter(|text| !is_id(text)).map(Name::parse).transpose()
}

/// Reads the image of one descriptor. Its document is in the layout.
async fn original(spool: &Spool, descriptor: &Value, names: Vec<Name>) -> Result<Found, ImageError> {
    let digest = descriptor["digest"].as_str().unwrap_or_default();
    digest_hex(digest).map_err(|wrong| ImageError::content("index.json", wrong))?;
    let what = format!("manifest {digest}");
    let document = spool.document_of(digest, &what).await?;
    let (size, actual) = (descriptor["size"].as_u64(), document.len() as u64);
    match size {
        Some(expected) if actual < expected => {
            Err(ImageError::content(what, ContentError::Truncated { expected, actual }))
        }
        Some(expected) if actual > expected => {
            Err(ImageError::content(what, ContentError::TooLong { expected }))
        }
        _ => Ok(Found { names, document, digest: digest.to_owned(), is_original: true }),
    }
}

/// Builds the image of several descriptors, with a new index of them.
fn joined(descriptors: &[Value], names: Vec<Name>) -> Found {
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": descriptors }).to_string();
    let digest = digest::sha256(&index);
    Found { names, document: Bytes::from(index), digest, is_original: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(digest: &str, annotation: Option<(&str, &str)>, platform: bool) -> Value {
        let mut descriptor = json!({ "digest": digest });
        if let Some((key, text)) = annotation {
            descriptor["annotations"] = json!({ key: text });
        }
        if platform {
            descriptor["platform"] = json!({ "os": "linux", "architecture": "amd64" });
        }
        descriptor
    }

    fn grouped(descriptors: Vec<Value>) -> Vec<(Option<String>, usize)> {
        let groups = by_name(descriptors).unwrap();
        groups.into_iter().map(|(name, group)| (name.map(|name| name.whole()), group.len())).collect()
    }

    #[test]
    fn variants_of_one_name_are_one_image_and_names_are_several() {
        let name = |text| Some((REF_NAME, text));
        let groups = grouped(vec![
            descriptor("1", name("r.example/a:1"), true),
            descriptor("2", name("r.example/a:1"), true),
            descriptor("2", name("r.example/a:1"), true),
            descriptor("1", Some((WHOLE_NAME, "docker.io/library/b:1")), false),
            descriptor("3", name("latest"), false),
            descriptor("4", name("v1"), false),
        ]);
        let of = |name: &str, count| (Some(name.to_owned()), count);
        assert_eq!(
            groups,
            [of("r.example/a:1", 2), of("docker.io/library/b:1", 1), (None, 1), (None, 1)],
            "a tag alone is no name"
        );
        assert_eq!(grouped(vec![descriptor("1", None, true), descriptor("2", None, true)]), [(None, 2)]);
    }

    #[test]
    fn an_id_that_kubernetes_images_have_as_a_name_is_none() {
        let id = format!("sha256:{}", "0f".repeat(32));
        let groups = grouped(vec![
            descriptor("1", Some((WHOLE_NAME, "r.example/a:1")), false),
            descriptor("1", Some((WHOLE_NAME, &id)), false),
            descriptor("2", Some((REF_NAME, &id)), false),
        ]);
        assert_eq!(groups, [(Some("r.example/a:1".to_owned()), 1), (None, 1), (None, 1)]);
    }

    #[test]
    fn a_name_that_is_none_is_an_error_with_the_name() {
        let wrong = descriptor("1", Some((WHOLE_NAME, "Not A Name")), false);
        assert!(by_name(vec![wrong]).unwrap_err().to_string().contains("Not A Name"));
    }
}
