//! Status: whether pods can run, and on which handlers. NetworkReady is read from the CNI directory
//! anew each time, so that a configuration dropped there counts at once.

use std::collections::HashMap;
use std::fmt;

use proto_cri::v1;

use super::features;

/// What Status tells of the node, beyond what pods and images know.
pub struct Node {
    /// Runtime handlers by name; the empty name is the default one's.
    pub handlers: Vec<String>,
    /// Whether a pod could get a network now, or why not. Called on each Status.
    pub network_ready: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}

pub(crate) fn status(node: &Node, request: v1::StatusRequest) -> v1::StatusResponse {
    let network = match (node.network_ready)() {
        Ok(()) => condition("NetworkReady", None),
        Err(why) => condition("NetworkReady", Some(("NetworkPluginNotReady", why))),
    };
    let info = if request.verbose {
        HashMap::from([("config".to_owned(), serde_json::json!({ "handlers": node.handlers }).to_string())])
    } else {
        HashMap::new()
    };
    v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions: vec![condition("RuntimeReady", None), network] }),
        info,
        runtime_handlers: node.handlers.iter().map(|name| runtime_handler(name)).collect(),
        features: Some(features::of_runtime()),
    }
}

fn condition(name: &str, problem: Option<(&str, String)>) -> v1::RuntimeCondition {
    let status = problem.is_none();
    let (reason, message) = problem.unwrap_or_default();
    v1::RuntimeCondition { r#type: name.into(), status, reason: reason.into(), message }
}

fn runtime_handler(name: &str) -> v1::RuntimeHandler {
    v1::RuntimeHandler { name: name.to_owned(), features: Some(features::of_handler()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_is_not_ready_is_told_with_its_reason() {
        let network_ready = Box::new(|| Err("no configuration in /etc/cni/net.d".to_owned()));
        let node = Node { handlers: vec![String::new(), "kvm".into()], network_ready };
        let answer = status(&node, v1::StatusRequest::default());
        let conditions = answer.status.unwrap().conditions;
        assert!(conditions[0].status && conditions[0].r#type == "RuntimeReady");
        assert!(!conditions[1].status && conditions[1].message.contains("/etc/cni/net.d"));
        assert_eq!(answer.runtime_handlers.len(), 2);
    }
}
