//! RuntimeConfig: both runtimes must use one cgroup driver. A kubelet asks once, at its start, and names the
//! cgroups of all pods by the answer. A runtime with the other driver would put its containers outside of
//! their pods' cgroups, without an error.
//!
//! Without a configured driver the kubelet gets the upstream's answer: the last one while the upstream is
//! down, as after a boot in which the kubelet is faster. A guess would be one that no kubelet corrects.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Code, Request, Status};

use super::known::Known;
use super::link::{Link, reason};
use super::route::{Listed, v1_path};
use crate::runtime::status::CgroupDriver;

/// The driver known to the kubelet.
#[derive(Debug)]
pub(super) struct NodesDriver {
    /// The configured one.
    set: Option<CgroupDriver>,
    /// The last answer to a kubelet.
    answered: Mutex<Option<CgroupDriver>>,
}

impl NodesDriver {
    pub(super) fn new(set: Option<CgroupDriver>) -> NodesDriver {
        NodesDriver { set, answered: Mutex::default() }
    }

    /// The upstream's answer for the kubelet. `None` if the operator has decided. An upstream that names no
    /// driver leaves the choice to the kubelet's own configuration, and so does this answer.
    ///
    /// # Errors
    /// The upstream is down and has never answered. A kubelet asks again.
    pub(super) async fn theirs(&self, link: &Link, known: &Known) -> Result<Option<Bytes>, Status> {
        if self.set.is_some() {
            return Ok(None);
        }
        match ask(link).await {
            Ok(answer) => Ok(Some(answer.unwrap_or_default())),
            Err(status) => {
                let last = known.list(Listed::RuntimeConfig);
                if driver(&last).is_none() {
                    let why = reason(&status);
                    let why = format!(
                        "the upstream runtime does not name its cgroup driver: {why}; set cgroup.driver"
                    );
                    return Err(Status::unavailable(why));
                }
                Ok(Some(last))
            }
        }
    }

    /// Notes the answer to a kubelet.
    pub(super) fn answered(&self, answer: &Bytes) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = driver(answer);
    }

    /// Compares the upstream's driver with that of the kubelet.
    ///
    /// # Errors
    /// The outer one: the upstream does not answer. The inner one: the drivers differ. The inner one is for
    /// people.
    pub(super) async fn compare(&self, link: &Link) -> Result<Result<(), String>, Status> {
        let theirs = ask(link).await?.and_then(|answer| driver(&answer));
        let answered = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match (theirs, self.set, answered) {
            (Some(theirs), Some(ours), _) if theirs != ours => {
                Err(format!("its cgroup driver is {theirs}, and cgroup.driver is {ours}: give both the same"))
            }
            (Some(theirs), None, Some(ours)) if theirs != ours => Err(format!(
                "its cgroup driver is {theirs}, and the kubelet uses {ours}: restart the kubelet"
            )),
            _ => Ok(()),
        })
    }
}

/// The upstream's answer to RuntimeConfig. `None` from an older one, which does not know the call.
async fn ask(link: &Link) -> Result<Option<Bytes>, Status> {
    let path = v1_path("RuntimeService", "RuntimeConfig");
    match link.fetch(&path, Request::new(Bytes::new())).await {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(status),
    }
}

/// The driver in an answer. One without the part for Linux names none.
fn driver(answer: &Bytes) -> Option<CgroupDriver> {
    let linux = v1::RuntimeConfigResponse::decode(answer.clone()).ok()?.linux?;
    match v1::CgroupDriver::try_from(linux.cgroup_driver).ok()? {
        v1::CgroupDriver::Systemd => Some(CgroupDriver::Systemd),
        v1::CgroupDriver::Cgroupfs => Some(CgroupDriver::Cgroupfs),
    }
}
