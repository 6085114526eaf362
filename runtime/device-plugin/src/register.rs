//! A registration at the kubelet's socket, in the newest version of the API spoken by the kubelet.
//!
//! ```text
//!  v1beta1.Registration ──unknown service──► deviceplugin.Registration, v1alpha2 ──refused──► the same, 0.1
//! ```
//!
//! Kubelets refuse without a specific error code, so the reason stays unknown. Version 0.1 is therefore tried
//! after any refusal of v1alpha2, and the first refusal is the one reported.

use std::path::Path;
use std::time::Duration;

use proto_device_plugin::v1alpha2::RegisterRequest as AlphaRequest;
use proto_device_plugin::v1alpha2::registration_client::RegistrationClient as AlphaClient;
use proto_device_plugin::v1beta1::registration_client::RegistrationClient as BetaClient;
use proto_device_plugin::v1beta1::{DevicePluginOptions, RegisterRequest as BetaRequest};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::ResourceName;
use crate::channel::{chain, connect};

/// The plugin's options, in its registration and when the kubelet asks for them.
pub(crate) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

/// The alpha versions, newest first.
const ALPHA: [&str; 2] = ["v1alpha2", "0.1"];

/// A failed registration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegisterError {
    /// Nothing answers on the kubelet's socket.
    #[error("the kubelet does not answer: {0}")]
    Unreachable(String),
    /// The kubelet accepted the call, but did not answer in time.
    #[error("the kubelet has not answered a registration within {0:?}")]
    Hung(Duration),
    /// The kubelet refused with this message.
    #[error("the kubelet refused the plugin: {0}")]
    Refused(String),
}

/// Registers the plugin serving on `endpoint`, the name of a file beside the kubelet's socket. Returns the
/// version.
///
/// # Errors
/// The kubelet cannot be reached, does not answer in time, or refuses.
pub(crate) async fn register(
    kubelet: &Path,
    endpoint: &str,
    resource: &ResourceName,
    deadline: Duration,
) -> Result<&'static str, RegisterError> {
    let asked = async {
        let channel = connect(kubelet).await.map_err(|error| RegisterError::Unreachable(chain(&error)))?;
        ask(channel, endpoint, resource).await
    };
    tokio::time::timeout(deadline, asked).await.unwrap_or(Err(RegisterError::Hung(deadline)))
}

async fn ask(
    channel: Channel,
    endpoint: &str,
    resource: &ResourceName,
) -> Result<&'static str, RegisterError> {
    let request = BetaRequest {
        version: "v1beta1".into(),
        endpoint: endpoint.into(),
        resource_name: resource.to_string(),
        options: Some(OPTIONS),
    };
    match BetaClient::new(channel.clone()).register(request).await {
        Ok(_) => return Ok("v1beta1"),
        Err(status) if status.code() != Code::Unimplemented => return Err(failed(&status)),
        Err(_) => {}
    }
    let mut first = None;
    for version in ALPHA {
        let request = AlphaRequest {
            version: version.into(),
            endpoint: endpoint.into(),
            resource_name: resource.to_string(),
        };
        match AlphaClient::new(channel.clone()).register(request).await {
            Ok(_) => return Ok(version),
            Err(status) => match failed(&status) {
                refused @ RegisterError::Refused(_) => first = first.or(Some(refused)),
                unreachable => return Err(unreachable),
            },
        }
    }
    Err(first.expect("there is an alpha version, and its refusal was kept"))
}

/// Distinguishes the kubelet's own answers from errors that the transport creates for a broken connection.
fn failed(status: &Status) -> RegisterError {
    let broken = std::error::Error::source(status).is_some()
        || matches!(status.code(), Code::Unavailable | Code::Cancelled);
    if broken {
        return RegisterError::Unreachable(chain(status));
    }
    RegisterError::Refused(format!("{} ({:?})", status.message(), status.code()))
}
