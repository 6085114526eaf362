//! Blocking disk work, off the async threads: a pool of threads for each kind of disk.

use std::sync::LazyLock;

use runtime_blocking::Pool;

/// Threads of one pool. Further work waits without a thread.
const THREADS: usize = 8;

/// The directory of images and scratch disks.
pub(crate) static STATE: LazyLock<Pool> =
    LazyLock::new(|| Pool::new("the disk of images and scratch disks", THREADS));

/// The size of the same disk, for Status. A separate pool of one thread: a hanging check holds up later ones,
/// and takes no thread from other work.
pub(crate) static STATE_LOOK: LazyLock<Pool> = LazyLock::new(|| Pool::new("the state's disk, for Status", 1));

/// Files of CDI devices.
pub(crate) static CDI: LazyLock<Pool> = LazyLock::new(|| Pool::new("the files of CDI devices", THREADS));

/// Configuration files of the node.
pub(crate) static NODE: LazyLock<Pool> = LazyLock::new(|| Pool::new("the network's files", THREADS));
