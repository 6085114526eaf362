//! `podvisor node in-use`: whether the node's running kubelet uses the daemon. It is for the packages'
//! scripts, which warn of a removal under a kubelet.

use std::process::ExitCode;

use crate::config::Config;
use crate::kubelet;
use crate::show::out;

/// Ends with 0 if a kubelet uses the daemon, and with 1 if none does.
///
/// # Errors
/// That cannot be found out.
pub(crate) fn in_use(config: &Config) -> anyhow::Result<ExitCode> {
    let socket = config.socket();
    if !kubelet::uses(&socket)? {
        return Ok(ExitCode::FAILURE);
    }
    out::say(format_args!("the kubelet of this node uses {}", socket.display()));
    Ok(ExitCode::SUCCESS)
}
