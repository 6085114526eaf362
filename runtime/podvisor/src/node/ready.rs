//! `podvisor node ready`: whether a kubelet with the daemon would set the node Ready, now. It is for the
//! installation, which asks before it switches the kubelet.

use std::process::ExitCode;

use anyhow::bail;
use proto_cri::v1::RuntimeCondition;

use crate::config::Config;
use crate::daemon::Daemon;

/// The conditions on which a kubelet acts (Kubernetes, `updateRuntimeUp`).
const OF_KUBELET: [&str; 2] = ["RuntimeReady", "NetworkReady"];

/// Asks the daemon.
///
/// # Errors
/// The node would be NotReady, or the daemon does not answer.
pub(crate) async fn ready(config: &Config) -> anyhow::Result<ExitCode> {
    let status = Daemon::dial(config).await?.status().await?;
    match unmet(&status.wrong) {
        Some(why) => bail!(why),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The first of a kubelet's conditions among those that do not hold, with its reason.
fn unmet(wrong: &[RuntimeCondition]) -> Option<String> {
    let condition = wrong.iter().find(|condition| OF_KUBELET.contains(&condition.r#type.as_str()))?;
    Some(format!("{}: {}", condition.r#type, condition.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_condition_of_the_kubelet_keeps_a_node_from_being_ready() {
        let condition = |name: &str| RuntimeCondition {
            r#type: name.into(),
            message: "no network".into(),
            ..RuntimeCondition::default()
        };
        assert_eq!(unmet(&[]), None);
        assert_eq!(unmet(&[condition("UpstreamReady"), condition("KvmReady")]), None);
        let both = [condition("PodsClean"), condition("NetworkReady")];
        assert_eq!(unmet(&both).as_deref(), Some("NetworkReady: no network"));
    }
}
