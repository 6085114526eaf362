//! The alpha versions of the API, for kubelets 1.8 (version 0.1) and 1.9 (v1alpha2). Both share one package
//! on the wire, and so one service here. Their answers to Allocate differ, but not empty ones.

use proto_device_plugin::v1alpha2::device_plugin_server::DevicePlugin;
use proto_device_plugin::v1alpha2::{AllocateRequest, AllocateResponse, Device, Empty, ListAndWatchResponse};
use tonic::{Request, Response, Status};

use super::{Answers, Lists};
use crate::devices::{Devices, Usable, name};

#[tonic::async_trait]
impl DevicePlugin for Answers {
    type ListAndWatchStream = Lists<ListAndWatchResponse>;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        Ok(Response::new(self.lists(list)?))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        self.allocated(&request.get_ref().device_ids)?;
        Ok(Response::new(AllocateResponse::default()))
    }
}

fn list(devices: Devices, usable: &Usable) -> ListAndWatchResponse {
    let device = |number| Device { id: name(number), health: super::health(usable.has(number)).to_owned() };
    ListAndWatchResponse { devices: devices.numbers().map(device).collect() }
}
