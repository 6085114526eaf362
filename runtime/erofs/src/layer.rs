//! The rules for applying an OCI layer to the tree below it (image-spec, `layer.md`). Owns whiteouts,
//! replacement and hard links; never reads an archive.
//!
//! | entry | effect |
//! |---|---|
//! | directory over directory | attributes replaced, children kept |
//! | anything else over anything | replaced with its subtree |
//! | `.wh.name` | lower layers' `name` is gone; this layer's own stays |
//! | `.wh..wh..opq` | lower layers' children of the directory are gone; this layer's own stay |
//! | hard link | a second name for the target, even a lower layer's; attributes replaced, other xattrs kept |
//! | root | nothing: a container's root directory is the runtime's own, as in containerd and Docker |
//!
//! Whiteouts affect only lower layers, whatever their place in the archive: each name knows its own layer.
//! Parents that are symbolic links are followed inside the tree, as if the layer were unpacked on a disk
//! below the image's own root.

use serde::{Deserialize, Serialize};

use crate::attributes::{Attributes, Device};
use crate::data::Extent;
use crate::error::{Problem, TreeError};
use crate::limits::MAX_SYMLINK_BYTES;
use crate::path::{check_name, components};
use crate::tree::{Content, NodeId, Resolved, Tree, at};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names with this prefix are bookkeeping of old union file systems and mean nothing.
const WHITEOUT_META: &[u8] = b".wh..wh.";

/// One entry of a layer, unchanged from the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path from the image's root, unchanged from the archive.
    pub path: Vec<u8>,
    /// Attributes; a whiteout's and the root's are ignored.
    pub attributes: Attributes,
    /// Kind of the entry, with its content or target.
    pub kind: EntryKind,
}

/// Kinds of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file with its content. Whiteouts are regular files too, recognized by their names.
    File(Extent),
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// A hard link to the path of a file.
    HardLink(Vec<u8>),
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
}

impl Tree {
    /// Applies one layer on top of the tree. The contents of the layer's files are in blob number `blob`. The
    /// caller numbers blobs from 0.
    ///
    /// # Errors
    /// The first failing entry. The tree is then unusable.
    pub fn apply_layer(
        &mut self,
        blob: usize,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<(), TreeError> {
        self.layer += 1;
        self.blob = blob;
        self.cleared.clear();
        for entry in entries {
            let Entry { path, attributes, kind } = entry;
            self.apply(&path, attributes, kind).map_err(at(&path))?;
        }
        Ok(())
    }

    fn apply(&mut self, path: &[u8], mut attributes: Attributes, kind: EntryKind) -> Result<(), Problem> {
        let parts = components(path)?;
        let Some((name, parents)) = parts.split_last() else {
            return apply_root(&kind);
        };
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return self.apply_whiteout(parents, name, hidden);
        }
        attributes.check()?;
        let Resolved::Directory(directory) = self.resolve(parents, true)? else {
            return Err(Problem::LinkTargetMissing(path.escape_ascii().to_string()));
        };
        let content = match kind {
            EntryKind::HardLink(target) => {
                let node = self.apply_link(directory, name, &target)?;
                return self.set_attributes(node, attributes);
            }
            EntryKind::Directory => {
                if let Some(link) = self.lookup(directory, name)
                    && self.entries(link.node).is_some()
                {
                    self.charge(attributes.bytes())?;
                    self.nodes[link.node].attributes = attributes;
                    return self.bind(directory, name, link.node);
                }
                Content::Directory(std::collections::BTreeMap::new())
            }
            EntryKind::File(extent) => Content::File { blob: self.blob, extent },
            EntryKind::Symlink(target) => {
                if target.is_empty() || target.len() > MAX_SYMLINK_BYTES || target.contains(&0) {
                    return Err(Problem::SymlinkTarget(target.len()));
                }
                // Linux gives every symbolic link this mode, whatever the archive says.
                attributes.mode = 0o777;
                Content::Symlink(target)
            }
            EntryKind::CharDevice(device) => device.check().map(|()| Content::CharDevice(device))?,
            EntryKind::BlockDevice(device) => device.check().map(|()| Content::BlockDevice(device))?,
            EntryKind::Fifo => Content::Fifo,
        };
        let node = self.add_node(attributes, content)?;
        self.bind(directory, name, node)
    }

    /// Adds a hard link. Returns the node with the additional name.
    fn apply_link(&mut self, directory: NodeId, name: &[u8], target: &[u8]) -> Result<NodeId, Problem> {
        let shown = || target.escape_ascii().to_string();
        let parts = components(target)?;
        let Some((last, parents)) = parts.split_last() else {
            return Err(Problem::LinkTargetDirectory(shown()));
        };
        let Resolved::Directory(at) = self.resolve(parents, false)? else {
            return Err(Problem::LinkTargetMissing(shown()));
        };
        let link = self.lookup(at, last).ok_or_else(|| Problem::LinkTargetMissing(shown()))?;
        if self.entries(link.node).is_some() {
            return Err(Problem::LinkTargetDirectory(shown()));
        }
        self.bind(directory, name, link.node)?;
        Ok(link.node)
    }

    /// Applies a hard link entry's attributes to its target, as other unpackers do.
    fn set_attributes(&mut self, node: NodeId, mut attributes: Attributes) -> Result<(), Problem> {
        self.charge(attributes.bytes())?;
        let node = &mut self.nodes[node];
        if matches!(node.content, Content::Symlink(_)) {
            attributes.mode = node.attributes.mode;
        }
        for (name, value) in std::mem::take(&mut node.attributes.xattrs) {
            attributes.xattrs.entry(name).or_insert(value);
        }
        node.attributes = attributes;
        Ok(())
    }

    fn apply_whiteout(&mut self, parents: &[&[u8]], name: &[u8], hidden: &[u8]) -> Result<(), Problem> {
        if name != OPAQUE && name.starts_with(WHITEOUT_META) {
            return Ok(());
        }
        let directory = match self.resolve(parents, false) {
            Ok(Resolved::Directory(directory)) => directory,
            // There is nothing to hide.
            Ok(_) | Err(Problem::ParentNotDirectory(_)) => return Ok(()),
            Err(problem) => return Err(problem),
        };
        if name == OPAQUE {
            self.remove_lower(directory);
            return Ok(());
        }
        check_name(hidden).map_err(|_| Problem::Whiteout)?;
        let Some(link) = self.lookup(directory, hidden) else { return Ok(()) };
        let kept = self.remove_lower(link.node);
        if link.layer != self.layer
            && !kept
            && let Some(entries) = self.entries_mut(directory)
        {
            entries.remove(hidden);
        }
        Ok(())
    }

    /// Removes lower layers' names from a directory and its subtree. Returns true if any name of this layer
    /// is left. The tree's depth is bounded, so the recursion is too. A directory is walked once per layer,
    /// because it holds nothing older afterwards.
    fn remove_lower(&mut self, directory: NodeId) -> bool {
        let Some(entries) = self.entries(directory) else { return false };
        if self.cleared.contains(&directory) {
            return !entries.is_empty();
        }
        let links: Vec<(Vec<u8>, NodeId, u32)> =
            entries.iter().map(|(name, link)| (name.clone(), link.node, link.layer)).collect();
        let mut kept = false;
        for (name, node, layer) in links {
            let inner = self.remove_lower(node);
            if layer == self.layer || inner {
                kept = true;
            } else if let Some(entries) = self.entries_mut(directory) {
                entries.remove(&name);
            }
        }
        self.cleared.insert(directory);
        kept
    }
}

fn apply_root(kind: &EntryKind) -> Result<(), Problem> {
    if matches!(kind, EntryKind::Directory) { Ok(()) } else { Err(Problem::RootNotDirectory) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::tree::ROOT;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        Entry { path: path.as_bytes().to_vec(), attributes: Attributes::default(), kind }
    }

    fn directory(path: &str) -> Entry {
        entry(path, EntryKind::Directory)
    }

    /// A file, recognized by its length.
    fn file(path: &str, length: u64) -> Entry {
        entry(path, EntryKind::File(Extent { offset: 0, length }))
    }

    fn symlink(path: &str, target: &str) -> Entry {
        entry(path, EntryKind::Symlink(target.as_bytes().to_vec()))
    }

    fn link(path: &str, target: &str) -> Entry {
        entry(path, EntryKind::HardLink(target.as_bytes().to_vec()))
    }

    fn stacked(layers: impl IntoIterator<Item = Vec<Entry>>) -> Result<Tree, TreeError> {
        let mut tree = Tree::new();
        for layer in layers {
            tree.apply_layer(0, layer)?;
        }
        Ok(tree)
    }

    fn problem(layers: impl IntoIterator<Item = Vec<Entry>>) -> Problem {
        stacked(layers).unwrap_err().problem
    }

    /// Every path with `/` for directories, `@` for links, and the length for files.
    fn shown(tree: &Tree) -> Vec<String> {
        let mut found = BTreeMap::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, node)) = todo.pop() {
            for (name, link) in tree.entries(node).unwrap() {
                let path = format!("{path}{}", String::from_utf8_lossy(name));
                let mark = match &tree.nodes[link.node].content {
                    Content::Directory(_) => {
                        todo.push((format!("{path}/"), link.node));
                        "/".to_owned()
                    }
                    Content::Symlink(_) => "@".to_owned(),
                    Content::File { extent, .. } => format!("={}", extent.length),
                    _ => "?".to_owned(),
                };
                found.insert(path.clone(), format!("{path}{mark}"));
            }
        }
        found.into_values().collect()
    }

    #[test]
    fn a_whiteout_hides_what_lower_layers_have() {
        let tree = stacked([
            vec![directory("d"), file("d/a", 1), file("d/b", 2)],
            vec![file("d/.wh.a", 0), file(".wh.absent", 0), file("nowhere/.wh.x", 0), file("d/b/.wh.x", 0)],
        ]);
        assert_eq!(shown(&tree.unwrap()), ["d/", "d/b=2"]);
    }

    #[test]
    fn a_directory_takes_the_place_of_a_lower_layers_file_and_of_no_other() {
        let file_below = || file("d/a/b", 2);
        let tree = stacked([vec![directory("d"), file("d/a", 1)], vec![file_below()]]);
        assert_eq!(shown(&tree.unwrap()), ["d/", "d/a/", "d/a/b=2"]);
        let problem = stacked([vec![file("d/a", 1), file_below()]]).unwrap_err();
        assert!(problem.to_string().contains('a'), "{problem}");
    }

    #[test]
    fn a_whiteout_leaves_what_its_own_layer_has_in_either_order() {
        for layer in [
            vec![file(".wh.d", 0), directory("d"), file("d/new", 2)],
            vec![directory("d"), file("d/new", 2), file(".wh.d", 0)],
            vec![file("d/new", 2), file(".wh.d", 0)],
        ] {
            let tree = stacked([vec![directory("d"), file("d/old", 1)], layer]);
            assert_eq!(shown(&tree.unwrap()), ["d/", "d/new=2"]);
        }
    }

    #[test]
    fn an_opaque_directory_hides_lower_children_only() {
        let lower = vec![directory("d"), file("d/old", 1), directory("d/sub"), file("d/sub/old", 1)];
        for layer in [
            vec![file("d/.wh..wh..opq", 0), file("d/new", 2), file("d/sub/new", 3)],
            vec![file("d/new", 2), file("d/sub/new", 3), file("d/.wh..wh..opq", 0)],
        ] {
            let tree = stacked([lower.clone(), layer]);
            assert_eq!(shown(&tree.unwrap()), ["d/", "d/new=2", "d/sub/", "d/sub/new=3"]);
        }
    }

    #[test]
    fn many_opaque_markers_cost_no_more_than_one() {
        let mut layer: Vec<Entry> = (0..20_000).map(|number| file(&format!("d/{number}"), 1)).collect();
        layer.extend((0..20_000).map(|_| file("d/.wh..wh..opq", 0)));
        let tree = stacked([layer]).unwrap();
        assert_eq!(tree.entries(tree.lookup(ROOT, b"d").unwrap().node).unwrap().len(), 20_000);
    }

    #[test]
    fn bookkeeping_of_old_union_file_systems_is_dropped() {
        let tree = stacked([vec![directory(".wh..wh.plnk"), file(".wh..wh.aufs", 1), file("a", 1)]]);
        assert_eq!(shown(&tree.unwrap()), ["a=1"]);
    }

    #[test]
    fn a_directory_over_a_directory_keeps_children_and_takes_attributes() {
        let mut newer = directory("d");
        newer.attributes.mode = 0o700;
        newer.attributes.uid = 7;
        let tree = stacked([vec![directory("d"), file("d/a", 1)], vec![newer]]).unwrap();
        assert_eq!(shown(&tree), ["d/", "d/a=1"]);
        let attributes = &tree.nodes[tree.lookup(ROOT, b"d").unwrap().node].attributes;
        assert_eq!((attributes.mode, attributes.uid), (0o700, 7));
    }

    #[test]
    fn another_type_replaces_the_whole_subtree() {
        let lower = vec![directory("d"), file("d/a", 1), file("f", 1), symlink("s", "d")];
        let upper = vec![file("d", 5), directory("f"), directory("s")];
        assert_eq!(shown(&stacked([lower, upper]).unwrap()), ["d=5", "f/", "s/"]);
    }

    #[test]
    fn a_hard_link_reaches_into_lower_layers_and_outlives_its_target() {
        let tree =
            stacked([vec![file("a", 9)], vec![link("sub/b", "a")], vec![file("a", 1), file(".wh.x", 0)]]);
        assert_eq!(shown(&tree.unwrap()), ["a=1", "sub/", "sub/b=9"]);
    }

    #[test]
    fn a_hard_links_attributes_are_those_of_all_names() {
        let mut named = file("a", 1);
        named.attributes.xattrs = BTreeMap::from([(b"user.a".to_vec(), b"1".to_vec())]);
        let mut second = link("b", "a");
        second.attributes = Attributes { mode: 0o4755, uid: 7, ..Attributes::default() };
        let tree = stacked([vec![named, second, symlink("s", "a"), link("t", "s")]]).unwrap();
        let of = |name: &[u8]| &tree.nodes[tree.lookup(ROOT, name).unwrap().node].attributes;
        assert_eq!((of(b"a").mode, of(b"a").uid), (0o4755, 7));
        assert_eq!(of(b"b").xattrs.len(), 1);
        assert_eq!(of(b"s").mode, 0o777);
    }

    #[test]
    fn a_hard_link_to_nothing_or_to_a_directory_is_refused() {
        assert_eq!(problem([vec![link("b", "a")]]), Problem::LinkTargetMissing("a".into()));
        assert_eq!(problem([vec![directory("a"), link("b", "a")]]), Problem::LinkTargetDirectory("a".into()));
        assert_eq!(problem([vec![link("b", "..")]]), Problem::LinkTargetDirectory("..".into()));
    }

    #[test]
    fn paths_and_targets_of_hard_links_are_cleaned() {
        let tree = stacked([
            vec![file("/etc//a", 1), file("./b/../c", 2), file("../../etc/d", 3)],
            vec![link("x", "/etc/./a"), link("y", "../z/../etc//d"), file("etc//.wh.a", 0)],
        ]);
        assert_eq!(shown(&tree.unwrap()), ["c=2", "etc/", "etc/d=3", "x=1", "y=3"]);
    }

    #[test]
    fn a_symbolic_link_has_the_mode_that_all_have() {
        let mut odd = symlink("s", "a");
        odd.attributes.mode = 0o640;
        let tree = stacked([vec![odd]]).unwrap();
        assert_eq!(tree.nodes[tree.lookup(ROOT, b"s").unwrap().node].attributes.mode, 0o777);
    }

    #[test]
    fn parents_that_are_symbolic_links_stay_inside_the_image() {
        let tree = stacked([
            vec![
                directory("etc"),
                symlink("abs", "/etc"),
                symlink("up", "../../../etc"),
                symlink("far", "x/y"),
            ],
            vec![file("abs/passwd", 1), file("up/group", 2), file("far/made", 3)],
        ]);
        assert_eq!(
            shown(&tree.unwrap()),
            ["abs@", "etc/", "etc/group=2", "etc/passwd=1", "far@", "up@", "x/", "x/y/", "x/y/made=3"]
        );
    }

    #[test]
    fn symbolic_links_that_lead_round_in_circles_are_refused() {
        assert_eq!(
            problem([vec![symlink("a", "b"), symlink("b", "a"), file("a/x", 1)]]),
            Problem::TooManyLinks
        );
        let wide = "./".repeat(2040);
        let chain = (0..39).map(|n| symlink(&format!("l{n}"), &format!("{wide}l{}", n + 1)));
        let layer = chain.chain([directory("l39"), file("l0/x", 1)]).collect();
        assert_eq!(problem([layer]), Problem::TooManyLinks);
    }

    #[test]
    fn a_file_as_a_parent_is_refused() {
        let error = stacked([vec![file("a", 1), file("a/b", 1)]]).unwrap_err();
        assert_eq!(error.to_string(), "entry \"a/b\": the parent \"a\" is not a directory");
    }

    #[test]
    fn the_root_stays_the_runtimes_own_directory() {
        let mut root = directory("./");
        root.attributes.mode = 0o700;
        root.attributes.uid = 7;
        let tree = stacked([vec![root]]).unwrap();
        assert_eq!(tree.nodes[ROOT].attributes, Attributes::default());
        assert_eq!(problem([vec![file(".", 1)]]), Problem::RootNotDirectory);
    }

    #[test]
    fn directories_nested_too_deep_are_refused() {
        let step = "d/".repeat(500);
        let layer = vec![
            directory(&step),
            symlink("one", step.trim_end_matches('/')),
            directory(&format!("one/{step}")),
            symlink("two", &format!("one/{}", step.trim_end_matches('/'))),
            directory(&format!("two/{step}")),
        ];
        assert_eq!(problem([layer]), Problem::TooDeep);
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        let device = |major, minor| entry("dev", EntryKind::CharDevice(Device { major, minor }));
        assert_eq!(problem([vec![device(4096, 0)]]), Problem::DeviceNumber(4096, 0));
        assert_eq!(problem([vec![device(0, 1 << 20)]]), Problem::DeviceNumber(0, 1 << 20));
        assert_eq!(problem([vec![symlink("s", "")]]), Problem::SymlinkTarget(0));
        assert_eq!(problem([vec![symlink("s", "a\0b")]]), Problem::SymlinkTarget(3));
        assert_eq!(problem([vec![file(".wh.", 0)]]), Problem::Whiteout);
        assert_eq!(problem([vec![file(".wh...", 0)]]), Problem::Whiteout);
        let mut odd = file("x", 1);
        odd.attributes.xattrs.insert(b"nonsense".to_vec(), Vec::new());
        assert_eq!(problem([vec![odd]]), Problem::XattrName("nonsense".into()));
    }
}
