//! The repository keeps its own rules. Each test prints every breach.

// Steps shared by the tests below; clippy's exception for tests knows marked functions only.
#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::LazyLock};

use tests_tidy::{
    Crate, Repository, Source, annotations, book, breaches::Breaches, callers, code::Code, commits, cycles,
    edges, features, fuzz_lock, headers, licences, links, metrics, named_tests, names, quotes, rows,
    sentences, sizes, steps, stored, unsafe_code, versions, words,
};

static REPOSITORY: LazyLock<Repository> = LazyLock::new(|| Repository::read().unwrap());

#[track_caller]
fn holds(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[track_caller]
fn holds_in_all(breaches: &Breaches) {
    holds(&breaches.values().flatten().cloned().collect::<Vec<_>>());
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
fn the_modules_of_a_crate_use_each_other_in_one_direction() {
    let code = Code::read(&REPOSITORY.crates, &REPOSITORY.sources);
    assert!(code.modules.len() > 300 && code.definitions.len() > 3000, "the code is read whole");
    holds_in_all(&cycles::check(&code));
}

#[test]
fn public_items_are_used_by_the_product() {
    let product: Vec<Crate> =
        REPOSITORY.crates.iter().filter(|ours| callers::is_product(ours)).cloned().collect();
    let code = Code::read(&product, &REPOSITORY.sources);
    holds_in_all(&callers::check(&product, &code));
    holds(&callers::check_exceptions(&code));
}

#[test]
fn the_fields_words_are_used() {
    holds(&REPOSITORY.sources.iter().flat_map(words::check).collect::<Vec<_>>());
}

#[test]
fn comments_are_short_sentences() {
    let crates = sentences::count(&REPOSITORY.sources);
    for row in sentences::table(&crates) {
        println!("{row}");
    }
    holds(&sentences::check(&crates));
    holds(&REPOSITORY.sources.iter().flat_map(sentences::check_errors).collect::<Vec<_>>());
}

#[test]
fn tests_that_show_a_wall_are_there() {
    let tree = links::Tree::read().unwrap();
    let page = &tree.pages[named_tests::PAGE];
    assert!(page.lines().flat_map(named_tests::named).count() > 40, "the page is read whole");
    holds(&named_tests::check(page, &REPOSITORY.sources));
}

#[test]
fn commits_say_where_what_and_why() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match commits::read(&root).unwrap() {
        Ok(commits) => holds(&commits::check(&commits)),
        Err(reason) => eprintln!("passed over: {reason}"),
    }
}

#[test]
fn end_to_end_tests_ask_for_no_other_features_of_a_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    holds(&features::check(&features::read(&root).unwrap()));
}

#[test]
fn the_lock_file_of_the_fuzz_targets_follows_the_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lock = std::fs::read_to_string(root.join("tests/fuzz/Cargo.lock")).unwrap();
    let locked = fuzz_lock::locked(&lock).unwrap();
    assert!(locked.contains_key("runtime-pod"), "{locked:?}");
    holds(&fuzz_lock::check(&fuzz_lock::asked(&root, &REPOSITORY.crates).unwrap(), &locked));
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
fn steps_that_leave_something_behind_pass_a_fail_point() {
    holds(&steps::check(&REPOSITORY.sources));
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
fn what_is_linked_has_licences_and_sources_that_are_allowed() {
    assert!(REPOSITORY.dependencies.len() > 100, "the graph is read whole");
    holds(&licences::check(&licences::Allowed::read(&REPOSITORY.deny).unwrap(), &REPOSITORY.dependencies));
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

#[test]
fn links_of_the_pages_lead_somewhere() {
    let tree = links::Tree::read().unwrap();
    assert!(tree.pages.contains_key("README.md") && tree.paths.contains("tests/tidy/src/links.rs"));
    holds(&links::check(&tree));
}

#[test]
fn the_book_has_each_page_once_and_whatever_the_pages_link_to() {
    let tree = links::Tree::read().unwrap();
    assert!(tree.pages.contains_key(book::CONTENTS));
    holds(&book::check(&tree));
}

#[test]
fn error_texts_that_the_pages_quote_are_texts_of_the_code() {
    let tree = links::Tree::read().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = |path: &&str| Source {
        path: (*path).to_owned(),
        text: std::fs::read_to_string(root.join(path)).unwrap(),
    };
    let sources: Vec<_> =
        REPOSITORY.sources.iter().cloned().chain(quotes::SCRIPTS.iter().map(script)).collect();
    let quoted = quotes::PAGES
        .iter()
        .flat_map(|(page, columns)| quotes::check(page, columns, &tree.pages[*page], &sources));
    holds(&quoted.collect::<Vec<_>>());
}

#[test]
fn an_operator_finds_each_error_of_the_daemon_on_a_page() {
    let tree = links::Tree::read().unwrap();
    let pages: Vec<_> =
        quotes::PAGES.iter().map(|(page, columns)| (tree.pages[*page].as_str(), *columns)).collect();
    holds(&rows::check(&pages, &REPOSITORY.sources));
}

#[test]
fn every_block_of_commands_has_a_test_or_a_reason_to_have_none() {
    let tree = links::Tree::read().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let rows = tests_pages::rows(&read(tests_pages::ROWS).unwrap()).unwrap();
    assert!(rows.len() > 20, "the rows are read whole");
    holds(&tests_pages::check(&tree.pages, &rows, &read));
}

#[test]
fn metrics_of_the_code_are_on_the_operators_page() {
    let tree = links::Tree::read().unwrap();
    holds(&metrics::check(&tree.pages[metrics::PAGE], &REPOSITORY.sources));
}

#[test]
fn annotations_of_the_code_are_on_the_operators_page() {
    let tree = links::Tree::read().unwrap();
    assert!(annotations::of_code(&REPOSITORY.sources).len() > 5, "the code is read whole");
    holds(&annotations::check(&tree.pages[annotations::PAGE], &REPOSITORY.sources));
}

#[test]
fn the_stored_form_changes_with_a_decision_about_its_number() {
    let list =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(stored::LIST));
    holds(&stored::check(&REPOSITORY.sources, &list.unwrap()));
}
