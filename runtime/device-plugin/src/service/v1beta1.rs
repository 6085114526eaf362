//! The API v1beta1, for kubelets since 1.10.

use std::collections::BTreeMap;

use proto_device_plugin::v1beta1::device_plugin_server::DevicePlugin;
use proto_device_plugin::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, ContainerPreferredAllocationResponse, Device, DevicePluginOptions,
    Empty, ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse,
};
use tonic::{Request, Response, Status};

use super::{Answers, Lists};
use crate::devices::{Devices, Usable, name};
use crate::preferred::Choice;
use crate::register::OPTIONS;

#[tonic::async_trait]
impl DevicePlugin for Answers {
    type ListAndWatchStream = Lists<ListAndWatchResponse>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        Ok(Response::new(self.lists(list)?))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let preferred = |request: &ContainerPreferredAllocationRequest| {
            let device_ids = self.preferred(Choice {
                available: &request.available_device_ids,
                must: &request.must_include_device_ids,
                size: request.allocation_size,
            })?;
            Ok(ContainerPreferredAllocationResponse { device_ids })
        };
        let containers = request.get_ref().container_requests.iter();
        let container_responses = containers.map(preferred).collect::<Result<_, Status>>()?;
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    /// A container needs nothing to be in a VM. The annotation names its devices, for people.
    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let allocated = |request: &ContainerAllocateRequest| {
            let devices = self.allocated(&request.device_ids)?;
            let annotations = BTreeMap::from([(self.config.resource.to_string(), devices)]);
            Ok(ContainerAllocateResponse { annotations, ..ContainerAllocateResponse::default() })
        };
        let containers = request.get_ref().container_requests.iter();
        let container_responses = containers.map(allocated).collect::<Result<_, Status>>()?;
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        // Not requested in the options, so there is nothing to do.
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

fn list(devices: Devices, usable: &Usable) -> ListAndWatchResponse {
    let device = |number| Device {
        id: name(number),
        health: super::health(usable.has(number)).to_owned(),
        topology: None,
    };
    ListAndWatchResponse { devices: devices.numbers().map(device).collect() }
}
