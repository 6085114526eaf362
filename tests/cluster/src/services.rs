//! The answers to the kubelet: the plugin's identity, and volumes' targets. Owns no state.

use std::path::Path;

use tonic::{Request, Response, Status};

use crate::volumes::Volumes;
use proto::identity_server::Identity;
use proto::node_server::Node;
use registration::registration_server::Registration;

pub(crate) mod proto {
    #![allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
    tonic::include_proto!("csi.v1");
}

pub(crate) mod registration {
    #![allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
    tonic::include_proto!("pluginregistration");
}

/// The plugin's name in volumes.
pub(crate) const DRIVER: &str = "csi.podvisor.test";

/// The plugin at its own socket.
#[derive(Debug, Clone)]
pub(crate) struct Plugin {
    /// The node's name.
    pub(crate) node: String,
    pub(crate) volumes: Volumes,
}

/// The plugin at its registration socket for a kubelet.
#[derive(Debug)]
pub(crate) struct Registrar {
    /// Path of the plugin's own socket.
    pub(crate) endpoint: String,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Identity for Plugin {
    async fn get_plugin_info(
        &self,
        _: Request<proto::GetPluginInfoRequest>,
    ) -> Answer<proto::GetPluginInfoResponse> {
        let answer = proto::GetPluginInfoResponse { name: DRIVER.into(), vendor_version: "1".into() };
        Ok(Response::new(answer))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Answer<proto::GetPluginCapabilitiesResponse> {
        Ok(Response::new(proto::GetPluginCapabilitiesResponse {}))
    }

    async fn probe(&self, _: Request<proto::ProbeRequest>) -> Answer<proto::ProbeResponse> {
        Ok(Response::new(proto::ProbeResponse {}))
    }
}

#[tonic::async_trait]
impl Node for Plugin {
    async fn node_publish_volume(
        &self,
        request: Request<proto::NodePublishVolumeRequest>,
    ) -> Answer<proto::NodePublishVolumeResponse> {
        let wanted = request.into_inner();
        println!("publishes {} at {}", wanted.volume_id, wanted.target_path);
        self.volumes.publish(&wanted.volume_id, Path::new(&wanted.target_path), wanted.readonly)?;
        Ok(Response::new(proto::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Answer<proto::NodeUnpublishVolumeResponse> {
        let wanted = request.into_inner();
        println!("unpublishes {} at {}", wanted.volume_id, wanted.target_path);
        self.volumes.unpublish(Path::new(&wanted.target_path))?;
        Ok(Response::new(proto::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Answer<proto::NodeGetCapabilitiesResponse> {
        Ok(Response::new(proto::NodeGetCapabilitiesResponse {}))
    }

    async fn node_get_info(
        &self,
        _: Request<proto::NodeGetInfoRequest>,
    ) -> Answer<proto::NodeGetInfoResponse> {
        Ok(Response::new(proto::NodeGetInfoResponse { node_id: self.node.clone() }))
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<registration::InfoRequest>) -> Answer<registration::PluginInfo> {
        Ok(Response::new(registration::PluginInfo {
            r#type: "CSIPlugin".into(),
            name: DRIVER.into(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Answer<registration::RegistrationStatusResponse> {
        let status = request.into_inner();
        println!("registered: {} {}", status.plugin_registered, status.error);
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}
