//! Prints figures of a checkout: `cargo run -p tests-tidy --bin figures [-- PATH]`, here or at a path.
//!
//! It only reads the sources, without cargo, so a checkout of any age can be measured and compared.

#![forbid(unsafe_code)]

use std::{env, path::PathBuf};

use tests_tidy::{
    Checkout, Source,
    breaches::{Breaches, by_folder},
    callers,
    code::Code,
    conversions, cycles, sizes, versions, words,
};

fn main() -> anyhow::Result<()> {
    let here = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checkout = Checkout::read(&env::args().nth(1).map_or_else(here, PathBuf::from))?;
    lines(&checkout.sources);
    names(&checkout);
    prose("lines with banned words", &by_folder(&checkout.sources, words::check));
    println!("crates: {}", checkout.crates.len());
    let locked = versions::locked(&checkout.lock)?;
    let several: Vec<_> = locked.iter().filter(|(_, versions)| versions.len() > 1).collect();
    let duplicates: usize = several.iter().map(|(_, versions)| versions.len() - 1).sum();
    let packages: usize = locked.values().map(Vec::len).sum();
    println!(
        "packages in Cargo.lock: {packages}, of which {duplicates} are further versions of {} crates",
        several.len()
    );
    for (name, versions) in several {
        println!("  {name}: {}", versions.join(", "));
    }
    Ok(())
}

fn lines(sources: &[Source]) {
    let of_tests = |path: &str| format!("/{path}").contains("/tests/") || path.ends_with("tests.rs");
    let product = sources.iter().filter(|source| !of_tests(&source.path));
    for (whose, sources) in [("all", sources.to_vec()), ("the product's", product.cloned().collect())] {
        let files = sizes::longest_files(&sources, usize::MAX);
        let sum: usize = files.iter().map(|file| file.lines).sum();
        if let (Some(longest), Some(median)) = (files.first(), files.get(files.len() / 2)) {
            println!("Rust files, {whose}: {}, with {sum} lines", files.len());
            println!(
                "lines per file: median {}, greatest {} ({})",
                median.lines, longest.lines, longest.what
            );
        }
        let functions = sizes::longest_functions(&sources, usize::MAX);
        let long: Vec<_> =
            functions.iter().filter(|function| function.lines > sizes::FUNCTION_LINES_MAX).collect();
        println!("functions over {} lines: {}", sizes::FUNCTION_LINES_MAX, long.len());
        long.iter().for_each(|function| println!("  {} ({} lines)", function.what, function.lines));
    }
}

fn names(checkout: &Checkout) {
    let code = Code::read(&checkout.crates, &checkout.sources);
    let cycles = cycles::cycles(&code);
    let files: usize = cycles.iter().map(|cycle| cycle.files.len()).sum();
    println!("cycles between modules: {}, of {files} files together", cycles.len());
    cycles.iter().for_each(|cycle| println!("  {}", cycle.line()));
    let product: Vec<_> = checkout.crates.iter().filter(|ours| callers::is_product(ours)).cloned().collect();
    let code = Code::read(&product, &checkout.sources);
    show("public items without a product caller", &callers::check(&product, &code));
    let conversions = conversions::list(&checkout.sources);
    println!("conversions between kubelet and guest for a container: {}", conversions.len());
    conversions.iter().for_each(|conversion| println!("  {conversion}"));
}

fn prose(what: &str, found: &Breaches) {
    println!("{what}: {}", found.values().map(Vec::len).sum::<usize>());
    found.iter().for_each(|(folder, lines)| println!("  {folder}: {}", lines.len()));
}

fn show(what: &str, found: &Breaches) {
    println!("{what}: {}", found.values().map(Vec::len).sum::<usize>());
    found.values().flatten().for_each(|line| println!("  {line}"));
}
