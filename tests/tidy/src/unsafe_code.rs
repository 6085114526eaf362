//! Unsafe code stays in its zones, and every other crate forbids it. (clippy checks for the reason at each
//! unsafe block.)

use proc_macro2::{TokenStream, TokenTree};

use crate::{Crate, Source};

/// Zones of unsafe code, as beginnings of paths, and why. A crate with a zone for some of its files denies
/// unsafe code at its root and allows it there; a crate with a zone as a whole need not.
pub const ZONES: &[(&str, &str)] = &[
    ("tests/floor/", "KVM's memory slots"),
    ("tests/fuzz/vmm/src/memory.rs", "guest memory between pages that nobody may touch"),
    ("tests/fuzz/vmm/src/lib.rs", "a fuzz target has no `main` that ignores SIGPIPE"),
    ("vmm/vm/", "KVM's memory slots, mmap and the vCPUs' run pages"),
    ("vmm/sched-batch/", "sched_setscheduler(2): no safe crate sets a thread's policy and nothing else"),
    ("vmm/devices/", "guest memory as iovecs, and ioctls on taps and vhost"),
    ("agent/container/src/syscall", "system calls that nix does not have"),
    ("runtime/large-pages/src/mapping.rs", "mmap and MADV_COLLAPSE: no safe crate has the request"),
    ("runtime/net/src/tap.rs", "two tap ioctls: no safe crate opens a tap with a 12-byte virtio-net header"),
    ("runtime/share/src/setattr.rs", "mount_setattr(2): neither nix nor rustix has it"),
    ("runtime/share/src/user_namespace.rs", "a process in a user namespace, which mount_setattr(2) takes"),
];

/// One line for each file with unsafe code, or leave for it, outside the zones.
///
/// Reads tokens, not syntax: macros' arguments count, comments and strings do not. An invalid Rust file is
/// reported too.
#[must_use]
pub fn check_sources(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| zone(&source.path).is_none()) {
        match source.text.parse::<TokenStream>() {
            Err(error) => breaches.push(format!("{}: cannot be read: {error}", source.path)),
            Ok(tokens) => {
                if let Some(line) = find(tokens) {
                    breaches.push(format!("{}:{line}: unsafe code outside the zones", source.path));
                }
            }
        }
    }
    breaches
}

/// One line for each library or program without a forbidding root (denying, with a zone), and for each zone
/// without a file.
#[must_use]
pub fn check_roots(crates: &[Crate], sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for ours in crates {
        let dir = format!("{}/", ours.dir);
        if ZONES.iter().any(|(zone, _)| dir.starts_with(zone)) {
            continue;
        }
        let wanted = if ZONES.iter().any(|(zone, _)| zone.starts_with(&dir)) {
            "#![deny(unsafe_code)]"
        } else {
            "#![forbid(unsafe_code)]"
        };
        for root in &ours.roots {
            let says_so = |source: &Source| source.text.lines().any(|line| line == wanted);
            if !sources.iter().any(|source| source.path == *root && says_so(source)) {
                breaches.push(format!("{root}: must have the line {wanted}"));
            }
        }
    }
    for (zone, _) in ZONES {
        if !sources.iter().any(|source| source.path.starts_with(zone)) {
            breaches.push(format!("{zone}: a zone for unsafe code, but nothing is there"));
        }
    }
    breaches
}

fn zone(path: &str) -> Option<&'static str> {
    ZONES.iter().map(|(zone, _)| *zone).find(|zone| path.starts_with(zone))
}

/// The line of the first `unsafe`, `allow(unsafe_code)` or `expect(unsafe_code)`.
fn find(tokens: TokenStream) -> Option<usize> {
    let mut before = String::new();
    for token in tokens {
        let line = token.span().start().line;
        let word = match token {
            TokenTree::Ident(word) if word == "unsafe" => return Some(line),
            TokenTree::Ident(word) => word.to_string(),
            TokenTree::Group(group) => {
                let leave = before == "allow" || before == "expect";
                if leave && group.stream().into_iter().any(|t| t.to_string() == "unsafe_code") {
                    return Some(line);
                }
                if let Some(line) = find(group.stream()) {
                    return Some(line);
                }
                String::new()
            }
            _ => String::new(),
        };
        before = word;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn unsafe_code_outside_the_zones_is_found_in_every_form() {
        for text in [
            "fn f() { unsafe { g() } }",
            "unsafe fn f() {}",
            "unsafe impl Send for X {}",
            "unsafe extern \"C\" { fn f(); }",
            "#[unsafe(no_mangle)] fn f() {}",
            "#![allow(unsafe_code)]",
            "#[allow(missing_docs, unsafe_code)] mod m {}",
            "#[expect(unsafe_code)] fn f() {}",
            "macro_rules! m { () => { unsafe { g() } } }",
        ] {
            let found = check_sources(&[source("runtime/net/src/netns.rs", text)]);
            assert_eq!(found, ["runtime/net/src/netns.rs:1: unsafe code outside the zones"], "{text}");
        }
    }

    #[test]
    fn zones_words_and_denials_are_no_breach() {
        let sources = [
            source("runtime/net/src/tap.rs", "unsafe fn f() {}"),
            source("vmm/vm/src/memory.rs", "unsafe fn f() {}"),
            source(
                "runtime/x.rs",
                "#![forbid(unsafe_code)]\n// unsafe\n/// unsafe\nconst X: &str = \"unsafe\";",
            ),
        ];
        assert_eq!(check_sources(&sources), Vec::<String>::new());
    }

    #[test]
    fn a_root_that_does_not_forbid_is_found() {
        let ours = |dir: &str| Crate {
            name: dir.replace('/', "-"),
            dir: dir.into(),
            roots: vec![format!("{dir}/src/lib.rs")],
            ..Crate::default()
        };
        let crates = [ours("runtime/net"), ours("runtime/logs"), ours("vmm/vm"), ours("proto/vmm")];
        let sources = [
            source("runtime/net/src/lib.rs", "#![forbid(unsafe_code)]"),
            source("runtime/logs/src/lib.rs", "// #![forbid(unsafe_code)]"),
            source("proto/vmm/src/lib.rs", "//! Header.\n\n#![forbid(unsafe_code)]\n"),
            source("vmm/vm/src/lib.rs", ""),
            source("vmm/devices/src/lib.rs", ""),
            source("runtime/large-pages/src/mapping.rs", ""),
            source("runtime/net/src/tap.rs", ""),
            source("vmm/sched-batch/src/lib.rs", ""),
            source("tests/floor/src/main.rs", ""),
            source("tests/fuzz/vmm/src/lib.rs", ""),
            source("tests/fuzz/vmm/src/memory.rs", ""),
            source("runtime/share/src/setattr.rs", ""),
            source("runtime/share/src/user_namespace.rs", ""),
        ];
        let found = check_roots(&crates, &sources);
        let expected = [
            "runtime/net/src/lib.rs: must have the line #![deny(unsafe_code)]",
            "runtime/logs/src/lib.rs: must have the line #![forbid(unsafe_code)]",
            "agent/container/src/syscall: a zone for unsafe code, but nothing is there",
        ];
        assert_eq!(found, expected);
    }
}
