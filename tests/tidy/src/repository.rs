//! Reads the repository once: its crates as cargo resolves them, and its Rust sources. Judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use walkdir::{DirEntry, WalkDir};

/// The one target Podvisor is built for; crates for others are in the lock file only.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// One crate of the workspace.
#[derive(Clone, Debug, Default)]
pub struct Crate {
    /// "runtime-net".
    pub name: String,
    /// "runtime/net", from the repository's root.
    pub dir: String,
    /// Its dependencies in the workspace, build scripts included, tests not.
    pub uses: BTreeSet<String>,
    /// Every crate linked into it, directly or not, without build scripts and procedural macros.
    pub linked: BTreeSet<String>,
    /// Root files of its library and binaries, from the repository's root.
    pub roots: Vec<String>,
}

/// One version of a crate linked into something of ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// "rustix".
    pub name: String,
    /// "1.1.6".
    pub version: String,
    /// Its licences as an SPDX expression, if its manifest has one.
    pub licence: Option<String>,
    /// Where it comes from, as cargo says it; none for our own.
    pub source: Option<String>,
}

/// One Rust file.
#[derive(Clone, Debug)]
pub struct Source {
    /// From the repository's root, with '/'.
    pub path: String,
    /// The file's text.
    pub text: String,
}

/// Everything for the checks.
#[derive(Debug)]
pub struct Repository {
    /// The workspace's crates.
    pub crates: Vec<Crate>,
    /// Everything linked into any of them.
    pub dependencies: BTreeSet<Dependency>,
    /// Every Rust file outside build directories.
    pub sources: Vec<Source>,
    /// The text of deny.toml.
    pub deny: String,
}

/// A checkout as its files alone describe it, without cargo. The checkout may be of any age, and need not
/// build.
#[derive(Debug)]
pub struct Checkout {
    /// The crates with a manifest in the checkout; [`Crate::linked`] is empty.
    pub crates: Vec<Crate>,
    /// Every Rust file outside build directories.
    pub sources: Vec<Source>,
    /// The text of Cargo.lock.
    pub lock: String,
}

impl Checkout {
    /// Reads the checkout at a path.
    ///
    /// # Errors
    /// If a file of it cannot be read, or a manifest is no TOML.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let manifests = files(root, |path| path.file_name().is_some_and(|name| name == "Cargo.toml"))?;
        let manifests: Vec<_> = manifests
            .into_iter()
            .map(|file| Ok((file.path.clone(), file.text.parse::<toml::Table>().context(file.path)?)))
            .collect::<anyhow::Result<_>>()?;
        let sources = sources(root)?;
        let crates =
            manifests.iter().filter_map(|(path, manifest)| listed(path, manifest, &manifests, &sources));
        let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
        Ok(Self { crates: crates.collect(), sources, lock })
    }
}

/// The crate of a manifest, if it has one.
fn listed(
    path: &str,
    manifest: &toml::Table,
    manifests: &[(String, toml::Table)],
    sources: &[Source],
) -> Option<Crate> {
    let name = |manifest: &toml::Table| Some(manifest.get("package")?.get("name")?.as_str()?.to_owned());
    let dir = path.strip_suffix("/Cargo.toml")?;
    let ours: BTreeSet<_> = manifests.iter().filter_map(|(_, manifest)| name(manifest)).collect();
    let keys = |table: &str| {
        let table = manifest.get(table).and_then(toml::Value::as_table);
        table.into_iter().flat_map(|table| table.keys().cloned()).collect::<Vec<_>>()
    };
    let used = keys("dependencies").into_iter().chain(keys("build-dependencies"));
    let bins = manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
    let named = bins.filter_map(|bin| Some(format!("{dir}/{}", bin.get("path")?.as_str()?)));
    let usual = ["lib.rs", "main.rs"].map(|file| format!("{dir}/src/{file}"));
    let folder = format!("{dir}/src/bin/");
    let beside = sources.iter().map(|source| source.path.clone()).filter(|path| path.starts_with(&folder));
    let roots: BTreeSet<_> = usual.into_iter().chain(named).chain(beside).collect();
    Some(Crate {
        name: name(manifest)?,
        dir: dir.to_owned(),
        uses: used.filter(|name| ours.contains(name)).collect(),
        linked: BTreeSet::new(),
        roots: roots.into_iter().filter(|root| sources.iter().any(|source| source.path == *root)).collect(),
    })
}

impl Repository {
    /// Reads this crate's repository.
    ///
    /// # Errors
    /// If cargo cannot resolve the workspace, or a file cannot be read.
    pub fn read() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .other_options(["--filter-platform".to_owned(), TARGET.to_owned()])
            .exec()
            .context("cargo metadata")?;
        let graph = Graph::new(&metadata);
        let mut crates = Vec::new();
        let mut dependencies = BTreeSet::new();
        for package in metadata.workspace_packages() {
            let linked = graph.linked(&package.id);
            crates.push(crate_of(package, &graph, &linked, &root));
            dependencies.extend(linked.iter().map(|id| graph.dependency(id)));
        }
        let deny = fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
        Ok(Self { crates, dependencies, sources: sources(&root)?, deny })
    }
}

fn crate_of(package: &Package, graph: &Graph<'_>, linked: &BTreeSet<&PackageId>, root: &Path) -> Crate {
    let from_root = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    let dir = package.manifest_path.parent().map_or_else(PathBuf::new, Into::into);
    let shipped =
        |kind: &TargetKind| matches!(kind, TargetKind::Lib | TargetKind::Bin | TargetKind::ProcMacro);
    let targets = package.targets.iter().filter(|target| target.kind.iter().any(shipped));
    let ours =
        package.dependencies.iter().filter(|d| d.path.is_some() && d.kind != DependencyKind::Development);
    Crate {
        name: package.name.to_string(),
        dir: from_root(&dir),
        uses: ours.map(|dependency| dependency.name.clone()).collect(),
        linked: linked.iter().map(|id| graph.dependency(id).name).collect(),
        roots: targets.map(|target| from_root(target.src_path.as_std_path())).collect(),
    }
}

/// Cargo's resolved graph, by id.
struct Graph<'a> {
    packages: BTreeMap<&'a PackageId, &'a Package>,
    edges: BTreeMap<&'a PackageId, Vec<&'a PackageId>>,
}

impl<'a> Graph<'a> {
    fn new(metadata: &'a Metadata) -> Self {
        let packages: BTreeMap<_, _> =
            metadata.packages.iter().map(|package| (&package.id, package)).collect();
        let macros = |id: &PackageId| packages[id].targets.iter().any(cargo_metadata::Target::is_proc_macro);
        let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let edges = nodes.map(|node| {
            let normal = node.deps.iter().filter(|dependency| {
                dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            });
            (&node.id, normal.map(|dependency| &dependency.pkg).filter(|id| !macros(id)).collect())
        });
        Self { edges: edges.collect(), packages }
    }

    /// Everything reachable from `id` by normal dependencies, without `id` itself.
    fn linked(&self, id: &PackageId) -> BTreeSet<&'a PackageId> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<_> = self.edges.get(id).into_iter().flatten().copied().collect();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(self.edges.get(next).into_iter().flatten());
            }
        }
        seen
    }

    fn dependency(&self, id: &PackageId) -> Dependency {
        let package = self.packages[id];
        Dependency {
            name: package.name.to_string(),
            version: package.version.to_string(),
            licence: package.license.clone(),
            source: package.source.as_ref().map(ToString::to_string),
        }
    }
}

fn sources(root: &Path) -> anyhow::Result<Vec<Source>> {
    files(root, |path| path.extension().is_some_and(|extension| extension == "rs"))
}

/// Files outside build directories and hidden ones.
fn files(root: &Path, wanted: impl Fn(&Path) -> bool) -> anyhow::Result<Vec<Source>> {
    let built = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() > 0 && (name.starts_with('.') || name == "target" || name.starts_with("target-"))
    };
    let mut files = Vec::new();
    for entry in WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(|entry| !built(entry)) {
        let entry = entry?;
        if entry.file_type().is_file() && wanted(entry.path()) {
            let path = entry.path().strip_prefix(root)?.to_string_lossy().into_owned();
            let text = fs::read_to_string(entry.path()).with_context(|| path.clone())?;
            files.push(Source { path, text });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_gives_its_crate_with_roots_and_the_crates_of_ours_that_it_uses() {
        let manifest = |text: &str| text.parse::<toml::Table>().unwrap();
        let manifests = [
            ("Cargo.toml".to_owned(), manifest("[workspace]\nmembers = [\"a/*\"]")),
            ("a/lib/Cargo.toml".to_owned(), manifest("[package]\nname = \"a-lib\"")),
            (
                "a/prog/Cargo.toml".to_owned(),
                manifest(
                    "[package]\nname = \"prog\"\n[dependencies]\na-lib.workspace = true\nanyhow.workspace = true\n\
                     [dev-dependencies]\nprog.workspace = true\n[[bin]]\nname = \"x\"\npath = \"src/x.rs\"",
                ),
            ),
        ];
        let paths = [
            "a/lib/src/lib.rs",
            "a/prog/src/main.rs",
            "a/prog/src/x.rs",
            "a/prog/src/bin/y.rs",
            "a/prog/src/z.rs",
        ];
        let sources = paths.map(|path| Source { path: path.into(), text: String::new() });
        let crates: Vec<_> =
            manifests.iter().filter_map(|(path, text)| listed(path, text, &manifests, &sources)).collect();
        assert_eq!(crates.iter().map(|ours| ours.name.as_str()).collect::<Vec<_>>(), ["a-lib", "prog"]);
        assert_eq!(crates[0].roots, ["a/lib/src/lib.rs"]);
        assert_eq!(crates[1].roots, ["a/prog/src/bin/y.rs", "a/prog/src/main.rs", "a/prog/src/x.rs"]);
        assert_eq!(crates[1].uses, BTreeSet::from(["a-lib".to_owned()]));
    }
}
