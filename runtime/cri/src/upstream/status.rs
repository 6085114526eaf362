//! Status, RuntimeConfig and UpdateRuntimeConfig: calls with one answer per node, although there are two
//! runtimes.

use std::sync::PoisonError;
use std::time::Instant;

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Request, Response, Status};

use super::link::{reason, unary};
use super::route::{Call, Listed, v1_path};
use super::sides::{Sides, copy};
use super::{UnnamedPods, Upstream};

/// The condition reporting the upstream's state. A kubelet does not act on it, but people and monitoring may.
const UPSTREAM_READY: &str = "UpstreamReady";

impl Sides {
    pub(super) async fn status(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let ours = unary(self.ours.clone(), &call.path, request).await?;
        let theirs = self.upstream.ask_status(&call.upstream_path).await;
        let mut answer = decode(ours.get_ref())?;
        let last = decode(&self.upstream.known.list(Listed::Features)).unwrap_or_default();
        merge(&mut answer, &self.upstream.names(), theirs, last);
        Ok(ours.map(|_| answer.encode_to_vec().into()))
    }

    pub(super) async fn runtime_config(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let Upstream { driver, link, known, .. } = &*self.upstream;
        let answer = match driver.theirs(link, known).await? {
            Some(theirs) => Response::new(theirs),
            None => unary(self.ours.clone(), &call.path, request).await?,
        };
        driver.answered(answer.get_ref());
        Ok(answer)
    }

    /// Configures both, whether the other one takes the configuration or not. Our error is the first. The
    /// upstream is configured again whenever it comes back.
    pub(super) async fn configure(
        &self,
        call: &Call,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        self.upstream.set_configuration(request.get_ref().clone());
        let answer = unary(self.ours.clone(), &call.path, copy(&request)).await;
        if self.upstream.link.is_up() {
            let theirs = self.upstream.link.call(&call.upstream_path, request).await;
            return answer.and_then(|answer| theirs.map(|_| answer));
        }
        answer
    }
}

impl Upstream {
    /// The handler names leading to the upstream. The empty one is included if all pods without a handler go
    /// there.
    fn names(&self) -> Vec<String> {
        let default = (self.unnamed_pods == UnnamedPods::All).then(String::new);
        default.into_iter().chain(self.handlers.iter().cloned()).collect()
    }

    async fn ask_status(&self, path: &str) -> Result<v1::StatusResponse, String> {
        if !self.link.is_up() {
            return Err(self.link.unavailable().message().to_owned());
        }
        let asked = Instant::now();
        let answer = self.link.fetch(path, Request::new(Bytes::new())).await;
        let status = answer.map_err(|status| reason(&status)).and_then(|answer| {
            v1::StatusResponse::decode(answer).map_err(|error| format!("its status is none: {error}"))
        })?;
        let v1::StatusResponse { runtime_handlers, features, .. } = status.clone();
        // With a status, to be another than none: an older upstream has neither.
        let status_of_last = Some(v1::RuntimeStatus::default());
        let lasting =
            v1::StatusResponse { status: status_of_last, runtime_handlers, features, ..Default::default() };
        self.known.remember(Listed::Features, &lasting.encode_to_vec().into(), asked);
        Ok(status)
    }

    fn set_configuration(&self, configuration: Bytes) {
        *self.configuration.lock().unwrap_or_else(PoisonError::into_inner) = Some(configuration);
    }

    /// Sends the kubelet's last configuration again. Only the log gets the upstream's refusal.
    pub(super) async fn configure_again(&self) {
        let configuration = self.configuration.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(configuration) = configuration {
            let path = v1_path("RuntimeService", "UpdateRuntimeConfig");
            if let Err(status) = self.link.fetch(&path, Request::new(configuration)).await {
                tracing::warn!(
                    why = reason(&status),
                    "the upstream runtime does not take the node's configuration"
                );
            }
        }
    }
}

fn decode(status: &Bytes) -> Result<v1::StatusResponse, Status> {
    v1::StatusResponse::decode(status.clone()).map_err(|error| Status::internal(error.to_string()))
}

/// Adds the upstream's handlers, and keeps the features common to both: CRI has those once per node. While
/// the upstream does not answer, its `last` ones count: a kubelet admits pods by them, and asks no second
/// time.
fn merge(
    answer: &mut v1::StatusResponse,
    names: &[String],
    theirs: Result<v1::StatusResponse, String>,
    last: v1::StatusResponse,
) {
    let (theirs, why) = match theirs {
        Ok(theirs) => (theirs, None),
        Err(why) => (last, Some(why)),
    };
    for name in names {
        // An older upstream does not describe its handlers. Then none of the features is reliable.
        let known = &theirs.runtime_handlers;
        let features = known.iter().find(|known| known.name == *name).and_then(|known| known.features);
        let features = Some(features.unwrap_or_default());
        answer.runtime_handlers.push(v1::RuntimeHandler { name: name.clone(), features });
    }
    // An upstream that has never answered may have all of them.
    let is_known = why.is_none() || theirs.status.is_some();
    if let Some(ours) = answer.features.as_mut().filter(|_| is_known) {
        let theirs = theirs.features.unwrap_or_default();
        ours.supplemental_groups_policy &= theirs.supplemental_groups_policy;
        ours.user_namespaces_host_network &= theirs.user_namespaces_host_network;
        ours.mount_options &= theirs.mount_options;
    }
    let (status, message) = (why.is_none(), why.unwrap_or_default());
    let reason = if status { "" } else { "UpstreamNotAnswering" };
    let condition =
        v1::RuntimeCondition { r#type: UPSTREAM_READY.into(), status, reason: reason.into(), message };
    answer.status.get_or_insert_default().conditions.push(condition);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> [String; 2] {
        ["", "crun"].map(str::to_owned)
    }

    fn features(user_namespaces: bool) -> Option<v1::RuntimeHandlerFeatures> {
        Some(v1::RuntimeHandlerFeatures { user_namespaces, recursive_read_only_mounts: false })
    }

    #[test]
    fn handlers_have_the_upstreams_features_and_the_node_those_of_both() {
        let of_node =
            |both| Some(v1::RuntimeFeatures { supplemental_groups_policy: both, ..Default::default() });
        let handler = |name: &str, has| v1::RuntimeHandler { name: name.into(), features: features(has) };
        let mut answer = v1::StatusResponse {
            runtime_handlers: vec![handler("vm", true)],
            features: of_node(true),
            ..Default::default()
        };
        let theirs = v1::StatusResponse {
            runtime_handlers: vec![handler("", true), handler("crun", false)],
            features: of_node(false),
            ..Default::default()
        };
        let (mut later, mut unknown) = (answer.clone(), answer.clone());
        merge(&mut answer, &names(), Ok(theirs.clone()), v1::StatusResponse::default());
        let expected = [handler("vm", true), handler("", true), handler("crun", false)];
        assert_eq!(answer.runtime_handlers, expected);
        assert_eq!(answer.features, of_node(false));
        assert!(answer.status.unwrap().conditions[0].status);
        // The same while it is down.
        let last = v1::StatusResponse { status: Some(v1::RuntimeStatus::default()), ..theirs };
        merge(&mut later, &names(), Err("connection refused".into()), last);
        assert_eq!((later.runtime_handlers, later.features), (expected.to_vec(), of_node(false)));
        merge(&mut unknown, &names(), Err("connection refused".into()), v1::StatusResponse::default());
        assert_eq!(unknown.features, of_node(true), "it may have all of them");
    }

    #[test]
    fn an_upstream_that_does_not_answer_is_reported_and_its_handlers_stay() {
        let mut answer = v1::StatusResponse::default();
        merge(&mut answer, &names(), Err("connection refused".into()), v1::StatusResponse::default());
        let listed: Vec<_> = answer.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
        assert_eq!(listed, ["", "crun"]);
        let conditions = answer.status.unwrap().conditions;
        assert!(!conditions[0].status && conditions[0].message == "connection refused");
    }
}
