//! All backends of a node.

use std::sync::Arc;

use super::disks::Disks;
use super::images::{FoundImage, ImageSource};
use super::network::Network;
use super::shares::Shares;
use super::sockets::Sockets;
use super::vm::Vms;
use super::volumes::Volumes;
use crate::error::{PodError, PodErrorKind};

/// All interfaces of pods to the world outside this crate.
#[derive(Debug)]
pub(crate) struct Backends {
    pub(crate) network: Arc<dyn Network>,
    pub(crate) vms: Arc<dyn Vms>,
    pub(crate) images: Arc<dyn ImageSource>,
    pub(crate) shares: Arc<dyn Shares>,
    pub(crate) disks: Arc<dyn Disks>,
    pub(crate) volumes: Arc<dyn Volumes>,
    pub(crate) sockets: Arc<dyn Sockets>,
}

impl Backends {
    /// The image of this name.
    pub(crate) fn find_image(&self, name: &str) -> Result<FoundImage, PodError> {
        self.images.find(name).ok_or_else(|| {
            let text = format!("image {name:?} is not on this node");
            PodError::new(PodErrorKind::NotFound, text)
        })
    }
}
