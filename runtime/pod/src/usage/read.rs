//! Reads the usage of one pod or of many, side by side.

use std::path::PathBuf;
use std::sync::Arc;

use super::{HostUsage, PodUsage, host};
use crate::node::{Node, blocking};
use crate::roster::{Live, PodEntry};
use crate::{PodError, cgroup};

impl PodUsage {
    /// A pod's figures now. A guest that does not answer in time is told with its last ones.
    pub(crate) async fn read(node: &Arc<Node>, entry: &PodEntry, live: &Live) -> Result<PodUsage, PodError> {
        let view = &entry.view;
        let containers = node.roster.containers();
        let known = containers.iter().filter(|one| one.pod_id == view.id).map(|one| one.id.clone()).collect();
        let paths = cgroup::paths(&node.places.cgroup_root, &view.spec.cgroup_parent, &view.id);
        let (host, guest) = tokio::join!(
            of_host(node.places.cgroup_root.clone(), paths, live),
            live.meter.guest(&live.agent, known)
        );
        Ok(PodUsage { pod_id: view.id.clone(), host: host?, guest })
    }
}

async fn of_host(root: PathBuf, cgroups: Vec<PathBuf>, live: &Live) -> Result<HostUsage, PodError> {
    let pid = live.machine.pid();
    let reading = move || Ok::<_, std::io::Error>(host::read(&root, &cgroups, pid));
    let mut usage = blocking("reading the VMM's usage", reading).await?;
    live.meter.rate_host(&mut usage);
    Ok(usage)
}
