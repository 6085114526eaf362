//! A registry on loopback with images made on the spot, for tests and the demo.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use tests_registry::{Layer, Registry};
//! let registry = Registry::start()?;
//! let layer = Layer::builder().dir("etc", 0o755).file("etc/motd", 0o644, b"hello").build();
//! let digest = registry.push_image("demo/hello", "1", vec![layer], serde_json::json!({ "Cmd": ["cat"] })).await?;
//! let reference = registry.reference("demo/hello", "1");
//! # Ok(()) }
//! ```
//! `registry.rs` runs Debian's `docker-registry`, `layer.rs` makes layers, `busybox.rs` makes a runnable
//! image, `installed.rs` layers of files installed here, `random` images in the whole grammar of archives.
//! Never released.
#![forbid(unsafe_code)]

mod busybox;
mod digest;
mod installed;
mod layer;
pub mod random;
mod registry;

pub use busybox::{busybox_image, busybox_image_of};
pub use digest::digest_of;
pub use installed::installed_layer;
pub use layer::{Compression, Layer, LayerBuilder};
pub use registry::{PASSWORD, Registry, USERNAME};
