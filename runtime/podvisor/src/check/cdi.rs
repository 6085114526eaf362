//! Examines the node's CDI files: most nodes have none. A file with errors affects only containers that
//! ask for its devices.

use runtime_cdi::Registry;

use super::finding::{Finding, Problem};

/// The need, as shown in the lines.
const WHAT: &str = "CDI files";

/// The remedy for an invalid file.
const REMEDY: &str =
    "correct or remove the file; until then, containers that ask for its devices are refused";

/// One line for each invalid file, and for each device with several definitions. Otherwise one line for all.
pub(super) fn examine(registry: &Registry) -> Vec<Finding> {
    let found = registry.read();
    let faults = found.faults();
    if faults.is_empty() {
        let outcome = Ok(format!("{} with {} devices", found.file_count(), found.devices().len()));
        return vec![Finding { what: WHAT, outcome }];
    }
    let problem = |fault: runtime_cdi::Fault| Problem::new(fault.to_string(), REMEDY).minor();
    faults.into_iter().map(|fault| Finding { what: WHAT, outcome: Err(problem(fault)) }).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn lines(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(dir.path().join(name), content).unwrap();
        }
        let below = format!("{}/", dir.path().display());
        let findings = examine(&Registry::new(vec![dir.path().to_owned()]));
        findings.iter().map(|finding| finding.to_string().replace(&below, "")).collect()
    }

    #[test]
    fn a_file_with_errors_is_a_note_with_its_path_and_what_to_do() {
        let good = r#"{"cdiVersion":"1.0.0","kind":"v/c","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}"#;
        assert_eq!(lines(&[]), ["ok    CDI files: 0 with 0 devices"]);
        assert_eq!(lines(&[("a.json", good)]), ["ok    CDI files: 1 with 1 devices"]);
        let broken = lines(&[("a.json", good), ("b.json", good), ("c.json", "{")]);
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].starts_with("note  CDI files: c.json: EOF"), "{broken:?}");
        assert!(
            broken[1].starts_with("note  CDI files: a.json: device v/c=a is in b.json too"),
            "{broken:?}"
        );
        assert!(broken.iter().all(|line| line.ends_with(REMEDY)), "{broken:?}");
    }
}
