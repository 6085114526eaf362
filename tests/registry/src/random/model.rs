//! The model of an image: every path, with its node.

use std::collections::BTreeMap;

/// Nanoseconds of a second.
pub(crate) const SECOND: u32 = 1_000_000_000;

/// The kind of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file with this content.
    File(Vec<u8>),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A character device of these numbers.
    Char(u32, u32),
    /// A block device of these numbers.
    Block(u32, u32),
    /// A named pipe.
    Fifo,
}

/// A node, possibly with several names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The kind.
    pub kind: Kind,
    /// Permissions, the special bits among them.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Node {
    /// A directory without an entry in the archive, but with entries below it.
    pub(crate) fn implied() -> Node {
        Node { kind: Kind::Directory, mode: 0o755, owner: (0, 0), mtime: (0, 0), xattrs: BTreeMap::new() }
    }

    /// Returns true for a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}

/// A path from the root, as its components.
pub type Path = Vec<Vec<u8>>;

/// Paths with the numbers of their nodes; the root is not among them.
#[derive(Debug, Clone)]
pub struct Model {
    /// The root.
    pub root: Node,
    /// The number of each path's node.
    pub names: BTreeMap<Path, usize>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

impl Model {
    pub(crate) fn new() -> Model {
        Model { root: Node::implied(), names: BTreeMap::new(), nodes: Vec::new() }
    }

    pub(crate) fn node(&self, path: &[Vec<u8>]) -> Option<&Node> {
        if path.is_empty() { Some(&self.root) } else { self.names.get(path).map(|at| &self.nodes[*at]) }
    }

    /// All paths of nodes satisfying `is`.
    pub(crate) fn paths(&self, is: impl Fn(&Node) -> bool) -> Vec<Path> {
        self.names.iter().filter(|(_, at)| is(&self.nodes[**at])).map(|(path, _)| path.clone()).collect()
    }

    /// Removes everything below a path.
    pub(crate) fn clear(&mut self, path: &[Vec<u8>]) {
        self.names.retain(|other, _| !(other.len() > path.len() && other.starts_with(path)));
    }

    pub(crate) fn remove(&mut self, path: &[Vec<u8>]) {
        self.clear(path);
        self.names.remove(path);
    }

    /// Puts a new node at a path. A directory over a directory keeps its content.
    pub(crate) fn put(&mut self, path: &[Vec<u8>], node: Node) {
        // The root is the runtime's own.
        if path.is_empty() {
            return;
        }
        self.imply_parents(path);
        let is_kept = node.is_directory() && self.node(path).is_some_and(Node::is_directory);
        if !is_kept {
            self.remove(path);
        }
        self.name(path, node);
    }

    fn imply_parents(&mut self, path: &[Vec<u8>]) {
        for length in 1..path.len() {
            if !self.names.contains_key(&path[..length]) {
                self.name(&path[..length], Node::implied());
            }
        }
    }

    fn name(&mut self, path: &[Vec<u8>], node: Node) {
        self.nodes.push(node);
        self.names.insert(path.to_vec(), self.nodes.len() - 1);
    }

    /// Adds a name to the node at `target`, and sets the mode, owner and time of the entry.
    pub(crate) fn link(
        &mut self,
        path: &[Vec<u8>],
        target: &[Vec<u8>],
        (mode, owner, mtime): (u32, (u32, u32), (i64, u32)),
    ) {
        self.imply_parents(path);
        let node = self.names[target];
        let named = &mut self.nodes[node];
        (named.owner, named.mtime) = (owner, mtime);
        if !matches!(named.kind, Kind::Symlink(_)) {
            named.mode = mode;
        }
        self.remove(path);
        self.names.insert(path.to_vec(), node);
    }
}
