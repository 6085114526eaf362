//! Annotations of pods for other runtimes. They have no effect here, and the log says so.

use std::collections::BTreeMap;

/// Beginnings of the annotations of Kata Containers and of gVisor.
const PREFIXES: [&str; 2] = ["io.katacontainers.", "dev.gvisor."];

/// Most annotations named in the log, and most bytes of each name.
const NAMES_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 253;

/// The names of these annotations for other runtimes.
pub(super) fn names(annotations: &BTreeMap<String, String>) -> Vec<&str> {
    let of_another = |name: &&String| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let cut = |name: &String| name.floor_char_boundary(NAME_BYTES_MAX);
    annotations.keys().filter(of_another).take(NAMES_MAX).map(|name| &name[..cut(name)]).collect()
}

/// Logs the annotations for other runtimes, if there are any.
pub(super) fn warn_of(annotations: &BTreeMap<String, String>) {
    let names = names(annotations);
    if !names.is_empty() {
        tracing::warn!(
            ?names,
            "annotations of another runtime have no effect; docs/migrating.md has their counterparts"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_other_runtimes_are_named_and_no_others() {
        let of = |names: &[&str]| names.iter().map(|&name| (name.to_owned(), "1".to_owned())).collect();
        let kata = "io.katacontainers.config.hypervisor.default_memory";
        let given =
            of(&[kata, "dev.gvisor.spec.mount.x", "io.katacontainers", "cpu.podvisor.io/x", "dev.gvisorx/a"]);
        assert_eq!(names(&given), ["dev.gvisor.spec.mount.x", kata]);
        let long = format!("dev.gvisor.{}", "é".repeat(200));
        let many: BTreeMap<_, _> = (0..99).map(|n| (format!("{long}{n}"), String::new())).collect();
        assert_eq!(names(&many).len(), NAMES_MAX);
        assert!(names(&many).iter().all(|name| name.len() <= NAME_BYTES_MAX));
    }
}
