//! The service called by plugins. It handles one request at a time, so that no plugin makes the daemon hold
//! many.

use std::sync::{Arc, Mutex, PoisonError};

use proto_nri::RUNTIME_SERVICE;
use proto_nri::nri::{
    ContainerUpdate, Empty, RegisterPluginRequest, UpdateContainersRequest, UpdateContainersResponse,
};
use protobuf::Message;
use tokio::io::DuplexStream;
use tokio::sync::oneshot;
use ttrpc::proto::{Code, Codec, GenMessage, GenMessageError, MESSAGE_TYPE_REQUEST, MessageHeader};
use ttrpc::{Request, Response, Status};

use crate::name::short;
use crate::runtime::Runtime;

/// Most updates in one request.
pub(crate) const UPDATES_MAX: usize = 1024;

/// The service for one plugin.
#[derive(Debug)]
pub(crate) struct Service {
    runtime: Arc<dyn Runtime>,
    /// Receiver of the plugin's registration. `None` after the first.
    registered: Mutex<Option<oneshot::Sender<RegisterPluginRequest>>>,
}

impl Service {
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        registered: oneshot::Sender<RegisterPluginRequest>,
    ) -> Service {
        Service { runtime, registered: Mutex::new(Some(registered)) }
    }

    /// Answers requests until the connection ends.
    pub(crate) async fn serve(self, mut connection: DuplexStream) {
        loop {
            let (header, response) = match GenMessage::read_from(&mut connection).await {
                Ok(message) if message.header.type_ == MESSAGE_TYPE_REQUEST => {
                    (message.header, self.answer(&message.payload).await)
                }
                Ok(_) => continue,
                Err(GenMessageError::ReturnError(header, _)) => {
                    (header, Err((Code::RESOURCE_EXHAUSTED, "the message is too long".to_owned())))
                }
                Err(GenMessageError::InternalError(_)) => return,
            };
            if respond(&mut connection, header.stream_id, response).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, payload: &[u8]) -> Result<Vec<u8>, (Code, String)> {
        let request = Request::decode(payload).map_err(not_valid)?;
        match (request.service.as_str(), request.method.as_str()) {
            (RUNTIME_SERVICE, "RegisterPlugin") => {
                let request = RegisterPluginRequest::parse_from_bytes(&request.payload).map_err(not_valid)?;
                self.register(request)?;
                encoded(&Empty::new())
            }
            (RUNTIME_SERVICE, "UpdateContainers") => {
                let request =
                    UpdateContainersRequest::parse_from_bytes(&request.payload).map_err(not_valid)?;
                let failed = self.update(request).await?;
                encoded(&UpdateContainersResponse { failed, ..Default::default() })
            }
            (service, method) => {
                let text = format!("no method {:?} of service {:?}", short(method), short(service));
                Err((Code::UNIMPLEMENTED, text))
            }
        }
    }

    fn register(&self, request: RegisterPluginRequest) -> Result<(), (Code, String)> {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner).take();
        match registered.map(|registered| registered.send(request)) {
            Some(Ok(())) => Ok(()),
            _ => Err((Code::FAILED_PRECONDITION, "the plugin has registered already".to_owned())),
        }
    }

    async fn update(&self, request: UpdateContainersRequest) -> Result<Vec<ContainerUpdate>, (Code, String)> {
        let UpdateContainersRequest { update, evict, .. } = request;
        if update.len() > UPDATES_MAX {
            let text = format!("{} updates are more than {UPDATES_MAX}", update.len());
            return Err((Code::INVALID_ARGUMENT, text));
        }
        if !evict.is_empty() {
            tracing::debug!(
                count = evict.len(),
                "a plugin's evictions are passed over, as by other runtimes"
            );
        }
        Ok(self.runtime.update(update).await)
    }
}

fn not_valid(error: impl std::fmt::Display) -> (Code, String) {
    (Code::INVALID_ARGUMENT, format!("the request is not valid: {error}"))
}

fn encoded(message: &impl Message) -> Result<Vec<u8>, (Code, String)> {
    message.write_to_bytes().map_err(|error| (Code::INTERNAL, error.to_string()))
}

async fn respond(
    connection: &mut DuplexStream,
    stream_id: u32,
    outcome: Result<Vec<u8>, (Code, String)>,
) -> ttrpc::Result<()> {
    let mut response = Response::new();
    match outcome {
        Ok(payload) => response.payload = payload,
        Err((code, message)) => {
            let status = Status { code: code.into(), message, ..Default::default() };
            response.status = Some(status).into();
        }
    }
    let payload = response.encode().map_err(|error| ttrpc::Error::Others(error.to_string()))?;
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let header = MessageHeader::new_response(stream_id, length);
    GenMessage { header, payload }.write_to(connection).await
}
