//! Version: all four strings are needed, or clients refuse the answer (cri-client `validateVersion`).

use proto_cri::v1;

pub(crate) fn version() -> v1::VersionResponse {
    v1::VersionResponse {
        // The version of the message itself. It has never changed (api.proto, `VersionResponse`).
        version: "0.1.0".into(),
        runtime_name: "podvisor".into(),
        runtime_version: env!("CARGO_PKG_VERSION").into(),
        runtime_api_version: "v1".into(),
    }
}
