//! The tree of an image in memory. Owns nodes, names and the resolution of paths; never knows the rules of
//! layers.
//!
//! Nodes live in an arena, and directories refer to them by index, so a hard link is simply a second name. A
//! removed subtree stays in the arena, unreachable, until the tree is dropped. It still counts against the
//! limits.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::attributes::{Attributes, Device};
use crate::data::Extent;
use crate::error::{Problem, TreeError};
use crate::limits::{MAX_DEPTH, MAX_LINK_HOPS, MAX_METADATA_BYTES, MAX_NODES, MAX_STEPS};

/// Index of a node in the arena.
pub(crate) type NodeId = usize;

/// The root's index.
pub(crate) const ROOT: NodeId = 0;

/// A directory's entry: a node, and the last layer to set this name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) node: NodeId,
    pub(crate) layer: u32,
}

/// Kinds of nodes.
#[derive(Debug)]
pub(crate) enum Content {
    Directory(BTreeMap<Vec<u8>, Link>),
    /// A regular file, and the number of the blob with its content.
    File {
        blob: usize,
        extent: Extent,
    },
    Symlink(Vec<u8>),
    CharDevice(Device),
    BlockDevice(Device),
    Fifo,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) attributes: Attributes,
    pub(crate) content: Content,
}

/// The files of an image: everything but their contents.
#[derive(Debug)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) layer: u32,
    /// The blob of the current layer.
    pub(crate) blob: usize,
    /// Directories without anything older than the current layer.
    pub(crate) cleared: HashSet<NodeId>,
    metadata_bytes: usize,
}

impl Default for Tree {
    fn default() -> Self {
        Tree::new()
    }
}

/// The result of resolving a path's parents.
pub(crate) enum Resolved {
    Directory(NodeId),
    /// A component is missing, and `create` was not set.
    Missing,
}

impl Tree {
    /// Creates a tree with an empty root, owned by root, `0755`.
    pub fn new() -> Self {
        let root = Node { attributes: Attributes::default(), content: Content::Directory(BTreeMap::new()) };
        Tree { nodes: vec![root], layer: 0, blob: 0, cleared: HashSet::new(), metadata_bytes: 0 }
    }

    /// Returns the entries of a directory. `None` for other nodes.
    pub(crate) fn entries(&self, node: NodeId) -> Option<&BTreeMap<Vec<u8>, Link>> {
        match &self.nodes[node].content {
            Content::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn entries_mut(&mut self, node: NodeId) -> Option<&mut BTreeMap<Vec<u8>, Link>> {
        match &mut self.nodes[node].content {
            Content::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn lookup(&self, directory: NodeId, name: &[u8]) -> Option<Link> {
        self.entries(directory)?.get(name).copied()
    }

    /// Adds a node without a name yet.
    pub(crate) fn add_node(&mut self, attributes: Attributes, content: Content) -> Result<NodeId, Problem> {
        if self.nodes.len() >= MAX_NODES {
            return Err(Problem::TooManyNodes);
        }
        let target = if let Content::Symlink(target) = &content { target.len() } else { 0 };
        self.charge(attributes.bytes() + target)?;
        self.nodes.push(Node { attributes, content });
        Ok(self.nodes.len() - 1)
    }

    /// Gives `node` a name. The previous node loses it.
    pub(crate) fn bind(&mut self, directory: NodeId, name: &[u8], node: NodeId) -> Result<(), Problem> {
        self.charge(name.len())?;
        let layer = self.layer;
        if let Some(entries) = self.entries_mut(directory) {
            entries.insert(name.to_vec(), Link { node, layer });
        }
        Ok(())
    }

    /// Counts `bytes` against the tree's limit.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Problem> {
        self.metadata_bytes += bytes;
        if self.metadata_bytes > MAX_METADATA_BYTES { Err(Problem::TooMuchMetadata) } else { Ok(()) }
    }

    /// Walks `components` from the root. Symbolic links are followed inside the tree, and `..` in their
    /// targets stops at the root. With `create`, missing directories are created, also in place of a lower
    /// layer's file. Any other file on the way is an error.
    pub(crate) fn resolve(&mut self, components: &[&[u8]], create: bool) -> Result<Resolved, Problem> {
        let mut todo: VecDeque<Vec<u8>> = components.iter().map(|part| part.to_vec()).collect();
        let mut stack = vec![ROOT];
        let (mut hops, mut steps) = (0, 0);
        while let Some(name) = todo.pop_front() {
            steps += 1;
            if steps > MAX_STEPS {
                return Err(Problem::TooManyLinks);
            }
            let here = stack.last().copied().unwrap_or(ROOT);
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    if stack.len() > 1 {
                        stack.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let found = self.lookup(here, &name).map(|link| (link.node, link.layer));
            let is_lower_file = |(node, layer): (NodeId, u32)| {
                let content = &self.nodes[node].content;
                layer != self.layer && !matches!(content, Content::Directory(_) | Content::Symlink(_))
            };
            let node = match found.filter(|found| !create || !is_lower_file(*found)) {
                Some((node, _)) => node,
                None if create => {
                    crate::path::check_name(&name)?;
                    let made = self.add_node(Attributes::default(), Content::Directory(BTreeMap::new()))?;
                    self.bind(here, &name, made)?;
                    made
                }
                None => return Ok(Resolved::Missing),
            };
            match &self.nodes[node].content {
                Content::Directory(_) => {
                    stack.push(node);
                    if stack.len() > MAX_DEPTH {
                        return Err(Problem::TooDeep);
                    }
                }
                Content::Symlink(target) => {
                    hops += 1;
                    if hops > MAX_LINK_HOPS {
                        return Err(Problem::TooManyLinks);
                    }
                    if target.starts_with(b"/") {
                        stack.truncate(1);
                    }
                    for part in target.split(|byte| *byte == b'/').rev() {
                        todo.push_front(part.to_vec());
                    }
                }
                _ => return Err(Problem::ParentNotDirectory(name.escape_ascii().to_string())),
            }
        }
        Ok(Resolved::Directory(stack.last().copied().unwrap_or(ROOT)))
    }
}

/// Adds the entry's path to a problem.
pub(crate) fn at(path: &[u8]) -> impl Fn(Problem) -> TreeError + '_ {
    move |problem| TreeError::new(path, problem)
}
