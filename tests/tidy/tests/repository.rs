//! The repository keeps its own rules. Each test prints every breach that it finds.

// Steps shared by the tests below; clippy's exception for tests knows marked functions only.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use tests_tidy::{Repository, edges, headers, names, sizes, unsafe_code, versions};

static REPOSITORY: LazyLock<Repository> = LazyLock::new(|| Repository::read().unwrap());

#[track_caller]
fn holds(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn the_repository_is_seen_whole() {
    let names: Vec<_> = REPOSITORY.crates.iter().map(|ours| ours.name.as_str()).collect();
    for name in ["podvisor", "podvisor-vmm", "podvisor-agent", "tests-tidy"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(REPOSITORY.sources.iter().any(|source| source.path == "tests/tidy/tests/repository.rs"));
    assert!(REPOSITORY.dependencies.iter().any(|dependency| dependency.name == "vm-memory"));
}

#[test]
fn crates_use_only_the_crates_that_the_architecture_gives_them() {
    holds(&edges::check(&REPOSITORY.crates));
}

#[test]
fn every_file_says_what_it_owns() {
    holds(&headers::check(&REPOSITORY.sources));
}

#[test]
fn unsafe_code_stays_in_its_zones() {
    holds(&unsafe_code::check_sources(&REPOSITORY.sources));
}

#[test]
fn every_other_crate_forbids_unsafe_code() {
    holds(&unsafe_code::check_roots(&REPOSITORY.crates, &REPOSITORY.sources));
}

#[test]
fn names_say_what_is_inside() {
    holds(&names::check(&REPOSITORY.sources));
}

#[test]
fn shared_crates_have_one_version() {
    let shared = versions::shared(&REPOSITORY.deny).unwrap();
    assert!(shared.iter().any(|name| name == "vm-memory"), "{shared:?}");
    holds(&versions::check(&shared, &REPOSITORY.dependencies));
}

#[test]
fn the_longest_files_and_functions_are_shown() {
    let files = sizes::longest_files(&REPOSITORY.sources, 10);
    let functions = sizes::longest_functions(&REPOSITORY.sources, 10);
    assert!(files.len() == 10 && functions.len() == 10);
    for long in files.iter().chain(&functions) {
        println!("{:>5}  {}", long.lines, long.what);
    }
}
