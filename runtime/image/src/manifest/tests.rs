//! Manifests and indexes of every kind, and documents of neither kind.

use super::*;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn manifest(layer_type: &str, size: i64) -> String {
    format!(
        r#"{{"schemaVersion":2,"config":{{"mediaType":"{}","digest":"{DIGEST}","size":2}},
            "layers":[{{"mediaType":"{layer_type}","digest":"{DIGEST}","size":{size}}}]}}"#,
        CONFIGS[0]
    )
}

fn parsed(text: &str) -> Result<Document, String> {
    parse("manifest m", text.as_bytes(), &Limits::default()).map_err(|error| error.to_string())
}

/// The sizes of an image's layers.
fn sizes(text: &str) -> Vec<u64> {
    match parsed(text) {
        Ok(Document::Image(found)) => found.layers.iter().map(|layer| layer.size).collect(),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn every_type_of_layer_and_config_is_known() {
    for media_type in [
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
        "application/vnd.docker.image.rootfs.foreign.diff.tar",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ] {
        assert_eq!(sizes(&manifest(media_type, 5)), [5]);
    }
    for media_type in CONFIGS {
        assert_eq!(sizes(&manifest(LAYERS[0], 5).replace(CONFIGS[0], media_type)), [5]);
    }
}

#[test]
fn every_type_of_document_is_known_and_fields_say_what_has_none() {
    let typed =
        |text: &str, media_type: &str| text.replacen('{', &format!(r#"{{"mediaType":{media_type},"#), 1);
    let quoted = |known: [&str; 2]| known.map(|known| format!("\"{known}\""));
    let none = ["null", "\"\"", "\"application/octet-stream\""].map(str::to_owned);
    for media_type in quoted(MANIFESTS).iter().chain(&none) {
        assert_eq!(sizes(&typed(&manifest(LAYERS[0], 5), media_type)), [5]);
    }
    for media_type in quoted(INDEXES).iter().chain(&none) {
        let refused = parsed(&typed(r#"{"schemaVersion":2,"manifests":[]}"#, media_type)).unwrap_err();
        assert!(refused.contains("it has nothing for linux/amd64"), "{refused}");
    }
}

#[test]
fn a_document_is_read_as_go_reads_it() {
    let text = manifest(LAYERS[0], 5);
    for (from, to) in [
        ("schemaVersion", "SCHEMAVERSION"),
        ("layers", "Layers"),
        ("digest", "DIGEST"),
        (r#""schemaVersion":2,"#, ""),
        (r#""schemaVersion":2,"#, r#""schemaVersion":null,"manifests":null,"subject":{"x":1e999},"#),
        (r#""size":5"#, r#""size":7,"size":5,"size":null,"urls":null,"annotations":{"a":null}"#),
        (r#""layers":"#, r#""layers":null,"layers":"#),
        ("{\"schema", " \n{\"schema"),
    ] {
        assert!(text.contains(from));
        assert_eq!(sizes(&text.replace(from, to)), [5], "{to}");
    }
    assert_eq!(sizes(&text.replace("[{", "null,\"x\":[{")), [0_u64; 0]);
}

#[test]
fn what_is_not_an_image_is_refused_by_name() {
    let good = manifest(LAYERS[0], 1);
    let both = |media_type: &str| good.replacen('{', &format!("{{{media_type}\"manifests\":[],"), 1);
    let typed = format!("\"mediaType\":\"{}\",", MANIFESTS[0]);
    let layer = format!("layer 1 ({DIGEST}): media type \"application/x-iso\"");
    for (text, words) in [
        ("not json", "manifest m: it cannot be parsed"),
        (r#"{"schemaVersion":1}"#, "it is a manifest of Docker's schema 1"),
        (r#"{"fsLayers":[{}]}"#, "it is a manifest of Docker's schema 1"),
        (r#"{"schemaVersion":3}"#, "schemaVersion: 3 where 2 is wanted"),
        (r#"{"schemaVersion":2,"mediaType":"text/html"}"#, "media type \"text/html\""),
        (r#"{"schemaVersion":2,"mediaType":7}"#, "mediaType: a number where a text is wanted"),
        (r#"{"schemaVersion":2}"#, "it has neither config nor manifests"),
        (r#"{"config":{}}"#, "\"\" is not a digest of sha256, sha384 or sha512"),
        (&both(""), "config: an index has none"),
        (&both(&typed), "manifests: a manifest has none"),
        (&manifest("application/x-iso", 1), &layer),
        (
            &manifest("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", 1),
            "+encrypted\" is not supported",
        ),
        (&manifest(LAYERS[0], -1), "layer 1: it has the negative size -1"),
        (&manifest(LAYERS[0], i64::MAX), "more than the limit"),
        (&good.replace("\"size\":1", "\"size\":1.5"), "layer 1: size: 1.5 where a whole number"),
        (&good.replace(DIGEST, "sha256:/etc"), "\"sha256:/etc\" is not a digest"),
        (
            &good.replace(CONFIGS[0], "application/wasm"),
            "an artifact and not an image to run: its config has the media type \"application/wasm\"",
        ),
    ] {
        let refused = parsed(text).unwrap_err();
        assert!(refused.contains(words), "{text}: {refused}");
    }
}

/// Builds an index of these platforms with one-digit digests, from 1, and returns the choice for this level.
fn chosen(platforms: &[&str], level: u8) -> Result<String, String> {
    let entries = platforms.iter().zip('1'..).map(|(platform, digit)| {
        let mut entry = serde_json::json!({
            "mediaType": MANIFESTS[0], "digest": format!("sha256:{}", digit.to_string().repeat(64)), "size": 1
        });
        let parts: Vec<&str> = platform.split('/').collect();
        if let [os, architecture, variant @ ..] = &parts[..] {
            entry["platform"] = serde_json::json!({ "os": os, "architecture": architecture });
            variant.iter().for_each(|variant| entry["platform"]["variant"] = (*variant).into());
        }
        entry
    });
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": entries.collect::<Vec<_>>() });
    let index = index.to_string();
    let chosen = choices("i", &Json::parse(index.as_bytes()).unwrap().fields().unwrap(), level);
    let shown =
        |choice: &Choice| format!("{}{}", &choice.digest[7..8], if choice.is_named { "" } else { "?" });
    chosen.map(|all| all.iter().map(shown).collect()).map_err(|error| error.to_string())
}

#[test]
fn an_index_gives_the_manifest_for_our_architecture() {
    assert_eq!(chosen(&["linux/arm64", "linux/amd64", "windows/amd64", "unknown/unknown"], 1).unwrap(), "2");
    let error = chosen(&["linux/arm64", "linux/amd64/v3"], 2).unwrap_err();
    assert_eq!(error, "i: it has nothing for linux/amd64, but for linux/arm64, linux/amd64/v3");
}

#[test]
fn the_best_variant_for_the_processor_comes_first() {
    let all = ["linux/amd64", "linux/amd64/v2", "linux/amd64/v4", "linux/amd64/v3", "linux/amd64/v9"];
    for (level, expected) in [(1, "1"), (2, "21"), (3, "421"), (4, "3421")] {
        assert_eq!(chosen(&all, level).unwrap(), expected, "v{level}");
    }
}

#[test]
fn an_entry_without_a_platform_may_be_ours_and_comes_last() {
    assert_eq!(chosen(&["", "linux/arm64", "linux/amd64", ""], 1).unwrap(), "31?4?");
}

#[test]
fn programs_of_32_bits_are_taken_where_there_are_no_others() {
    assert_eq!(chosen(&["", "linux/386", "linux/arm/v7", "linux/AMD64"], 1).unwrap(), "421?");
    assert_eq!(chosen(&["linux/arm/v7", "linux/i386"], 1).unwrap(), "2");
}
