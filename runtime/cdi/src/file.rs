//! One file: reading its bytes, within bounds, and parsing them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use serde::de::DeserializeOwned;

use crate::check::{Checked, check};
use crate::document::{Document, Head};
use crate::fault::{Fault, FaultError};

/// Largest file. A node with many devices, each split many times, has some hundred KiB.
const FILE_BYTES_MAX: u64 = 2 << 20;

/// Most bytes of all files together. Each file is parsed for each container requesting a device.
pub(crate) const ALL_BYTES_MAX: u64 = 16 << 20;

/// Deepest nesting in YAML: a file has six levels. JSON is bounded by its parser, to 128.
const DEPTH_MAX: usize = 32;

/// The language of a file, by its extension (SPEC.md has JSON, the library accepts these two).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Language {
    Json,
    Yaml,
}

impl Language {
    /// The language of the file at this path. `None` if it is no CDI file.
    pub(crate) fn of(path: &Path) -> Option<Language> {
        match path.extension()?.to_str()? {
            "json" => Some(Language::Json),
            "yaml" => Some(Language::Yaml),
            _ => None,
        }
    }
}

/// Reads and checks the file, at most `bytes_left` bytes. Also returns the number of its bytes.
pub(crate) fn read(path: &Path, language: Language, bytes_left: u64) -> (u64, Result<Checked, Box<Fault>>) {
    let fault = |error| Box::new(Fault { path: path.to_owned(), kind: None, error });
    match bytes(path, bytes_left) {
        Ok(bytes) => {
            let count = bytes.len().try_into().unwrap_or(u64::MAX);
            (count, parse(path.to_owned(), language, &bytes))
        }
        Err(error) => (0, Err(fault(error))),
    }
}

/// The bytes of a regular file. Other kinds are not opened, because that could block for ever or have side
/// effects.
fn bytes(path: &Path, bytes_left: u64) -> Result<Vec<u8>, FaultError> {
    let failed = |error: io::Error| FaultError::io(&error);
    let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed(errno.into()))?;
    let status = fstat(&found).map_err(|errno| failed(errno.into()))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(FaultError::NoFile);
    }
    let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
    if size > FILE_BYTES_MAX {
        return Err(FaultError::Large { bytes: size, bytes_max: FILE_BYTES_MAX });
    }
    if size > bytes_left {
        return Err(FaultError::LargeTogether { bytes_max: ALL_BYTES_MAX });
    }
    // Opens the same file again, even if the path has changed.
    let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    match u64::try_from(bytes.len()) {
        // The file has grown since the check.
        Ok(count) if count > FILE_BYTES_MAX => {
            Err(FaultError::Large { bytes: count, bytes_max: FILE_BYTES_MAX })
        }
        _ => Ok(bytes),
    }
}

/// Parses and checks the file's content. For a file with a fault, the kind of its devices is kept if
/// readable.
pub(crate) fn parse(path: PathBuf, language: Language, bytes: &[u8]) -> Result<Checked, Box<Fault>> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(Box::new(Fault { path, kind: None, error: FaultError::NotUtf8 }));
    };
    let document = written::<Document>(language, text).map_err(FaultError::Syntax);
    document.and_then(|document| check(&document)).map_err(|error| {
        let head = written::<Head>(language, text).ok();
        Box::new(Fault { path, kind: head.and_then(|head| head.kind.parse().ok()), error })
    })
}

fn written<T: DeserializeOwned>(language: Language, text: &str) -> Result<T, String> {
    match language {
        Language::Json => serde_json::from_str(text).map_err(|error| error.to_string()),
        Language::Yaml => {
            serde_saphyr::from_str_with_options(text, yaml()).map_err(|error| error.to_string())
        }
    }
}

/// YAML as the CDI library reads it: a mode of 0660 is octal. Errors quote nothing of the file, because its
/// path may be a mistake.
fn yaml() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX, max_documents: 1 },
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::edits::Edits;

    const YAML: &str = "---\n# made by hand\ncdiVersion: 0.7.0\nkind: vendor.com/class\ndevices:\n- name: 0\n  \
                        containerEdits:\n    env: [A=1]\n    deviceNodes:\n    - path: /dev/fuse\n      fileMode: 0660\n";

    fn parsed(language: Language, text: &str) -> Result<Checked, Box<Fault>> {
        parse("/etc/cdi/x".into(), language, text.as_bytes())
    }

    fn fault(language: Language, text: &str) -> Fault {
        *parsed(language, text).unwrap_err()
    }

    #[test]
    fn yaml_and_json_say_the_same() {
        let json = r#"{"cdiVersion":"0.7.0","kind":"vendor.com/class","devices":[{"name":"0","containerEdits":
            {"env":["A=1"],"deviceNodes":[{"path":"/dev/fuse","fileMode":432}]}}]}"#;
        let (yaml, json) = (parsed(Language::Yaml, YAML).unwrap(), parsed(Language::Json, json).unwrap());
        assert_eq!(yaml, json);
        assert_eq!(yaml.devices["0"].device_nodes[0].file_mode, Some(0o660));
        // JSON is YAML, too.
        let text = r#"{"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}"#;
        assert_eq!(parsed(Language::Yaml, text).unwrap(), parsed(Language::Json, text).unwrap());
    }

    #[test]
    fn fields_without_a_value_count_as_absent() {
        let text = "cdiVersion: 0.7.0\nkind: v/c\nannotations:\ncontainerEdits:\ndevices:\n- name: a\n  annotations: ~\n  \
                    containerEdits:\n    env: [A=1]\n    mounts:\n    hooks: null\n    additionalGIDs:\n";
        let checked = parsed(Language::Yaml, text).unwrap();
        assert_eq!(checked.edits, Edits::default());
        assert_eq!(checked.devices["a"], Edits { env: vec![("A".into(), "1".into())], ..Edits::default() });
    }

    #[test]
    fn a_truncated_file_is_a_fault_wherever_it_ends() {
        let json = r#"{"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}"#;
        parsed(Language::Json, json).unwrap();
        for end in 0..json.len() {
            fault(Language::Json, &json[..end]);
        }
        // YAML that ends before the first device's edits is not a file either.
        let edits = YAML.find("env").unwrap();
        for end in 0..edits {
            fault(Language::Yaml, &YAML[..end]);
        }
    }

    #[test]
    fn a_faulty_file_says_which_devices_it_concerns_where_that_can_be_read() {
        let unknown = "cdiVersion: 0.7.0\nkind: v/c\ndevices:\n- name: a\n  gpu: 1\n";
        let fault = self::fault(Language::Yaml, unknown);
        assert_eq!(fault.kind, Some("v/c".parse().unwrap()));
        let text = fault.to_string();
        assert!(text.starts_with("/etc/cdi/x: ") && text.contains("gpu"), "{text}");
        assert!(!text.contains('\n'), "{text:?}");
        let json = r#"{"cdiVersion":"9.0.0","kind":"v/c","devices":[]}"#;
        let fault = self::fault(Language::Json, json);
        assert_eq!(fault.kind, Some("v/c".parse().unwrap()));
        assert!(fault.to_string().contains("\"9.0.0\""), "{fault}");
        for neither in ["", "null", "[]", "7", "kind: v/c\nkind: v/d\n", "{", "\t", "kind: -/c\n"] {
            assert_eq!(self::fault(Language::Yaml, neither).kind, None, "{neither:?}");
        }
    }

    #[test]
    fn bombs_are_refused_without_being_blown_up() {
        let mut aliases = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let refs = vec![format!("*a{}", level - 1); 10].join(", ");
            aliases.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
        }
        fault(Language::Yaml, &aliases);
        let merged = format!("{aliases}cdiVersion: 0.7.0\nkind: v/c\ndevices: *a11\n");
        fault(Language::Yaml, &merged);
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            for count in [100, 100_000] {
                let deep = format!("{}1{}", open.repeat(count), close.repeat(count));
                fault(Language::Yaml, &deep);
                fault(Language::Json, &deep);
                fault(Language::Yaml, &format!("kind: v/c\nx: {deep}"));
            }
        }
        fault(Language::Yaml, &"- ".repeat(100_000));
    }

    #[test]
    fn what_is_not_utf8_or_not_one_document_is_a_fault() {
        let fault = parse("/x".into(), Language::Json, b"{\"kind\":\"\xff\"}").unwrap_err();
        assert_eq!(fault.to_string(), "/x: is not UTF-8");
        self::fault(Language::Yaml, &format!("{YAML}{YAML}"));
        self::fault(Language::Json, "{}{}");
    }

    #[test]
    fn only_json_and_yaml_are_cdi_files() {
        for (name, language) in [
            ("a.json", Some(Language::Json)),
            ("a.yaml", Some(Language::Yaml)),
            ("a.yml", None),
            ("a.json.tmp", None),
            ("json", None),
            (".json", None),
        ] {
            assert_eq!(Language::of(Path::new(name)), language, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_file_or_a_fault(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            text in "[-?:,\\[\\]{}#&*!|>'\"%@` \n\ta-c0-9~<]{0,60}",
            at in 0..YAML.len(),
            removed in 0..30_usize,
        ) {
            for put in [&bytes, text.as_bytes()] {
                let rest = &YAML.as_bytes()[(at + removed).min(YAML.len())..];
                let spliced = [&YAML.as_bytes()[..at], put, rest].concat();
                for content in [put, &spliced] {
                    for language in [Language::Json, Language::Yaml] {
                        match parse("/x".into(), language, content) {
                            Ok(checked) => prop_assert!(!checked.devices.is_empty()),
                            Err(fault) => prop_assert!(fault.to_string().starts_with("/x: ")),
                        }
                    }
                }
            }
        }
    }
}
