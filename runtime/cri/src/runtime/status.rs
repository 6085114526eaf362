//! Status: whether pods can run, and on which handlers. NetworkReady is read from the CNI directory
//! anew each time, so that a configuration dropped there counts at once.

use std::collections::HashMap;

use proto_cri::v1;
use runtime_pod::Pods;

use crate::error::chain;

pub(crate) fn status(pods: &Pods, request: v1::StatusRequest) -> v1::StatusResponse {
    let network = match pods.network_ready() {
        Ok(()) => condition("NetworkReady", None),
        Err(error) => condition("NetworkReady", Some(("NetworkPluginNotReady", chain(&error)))),
    };
    let info = if request.verbose {
        let handlers: Vec<_> = pods.handlers().iter().map(|handler| &handler.name).collect();
        HashMap::from([("config".to_owned(), serde_json::json!({ "handlers": handlers }).to_string())])
    } else {
        HashMap::new()
    };
    v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions: vec![condition("RuntimeReady", None), network] }),
        info,
        runtime_handlers: pods.handlers().iter().map(|handler| runtime_handler(&handler.name)).collect(),
        features: Some(v1::RuntimeFeatures::default()),
    }
}

fn condition(name: &str, problem: Option<(&str, String)>) -> v1::RuntimeCondition {
    let status = problem.is_none();
    let (reason, message) = problem.unwrap_or_default();
    v1::RuntimeCondition { r#type: name.into(), status, reason: reason.into(), message }
}

/// What this version cannot do yet is told as missing: the kubelet then refuses such pods itself.
fn runtime_handler(name: &str) -> v1::RuntimeHandler {
    v1::RuntimeHandler { name: name.to_owned(), features: Some(v1::RuntimeHandlerFeatures::default()) }
}
