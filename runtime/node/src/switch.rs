//! The switch of the kubelet to Podvisor: a file, a restart, and a check whether the kubelet keeps running.
//! If it does not, the switch is undone. The complete way back, with the end of VMs, is in `leave.rs`.

use std::path::Path;
use std::time::Duration;

use crate::host::{CallError, Host};
use crate::kubelet::{Kubelet, KubeletError};
use crate::record::{InstallRecord, SwitchRecord};
use crate::root::HostRoot;

/// Checks of a kubelet after its restart. Without a runtime it ends within seconds, and systemd restarts it
/// after ten.
const LOOKS: u32 = 15;

/// Switches the kubelet to the daemon at `socket`. `between` is the pause between two checks. Returns a
/// description of the change.
pub(crate) fn switch(
    root: &HostRoot,
    host: &dyn Host,
    record: &mut InstallRecord,
    socket: &Path,
    between: Duration,
) -> Result<String, KubeletError> {
    let kubelet = Kubelet::find(host)?;
    let (unit, drop_in) = (kubelet.unit(), kubelet.drop_in());
    let before = root.read(&drop_in, 1 << 20)?;
    let is_switched =
        record.kubelet.as_ref().is_some_and(|switch| switch.unit == unit && !switch.restart_due);
    let text = match kubelet.text(root, host, socket) {
        // Pods of k3s's containerd are in no one's way once another runtime is used.
        Err(KubeletError::K3sPods) if is_switched && before.is_some() => {
            return Ok(format!("{unit} uses Podvisor"));
        }
        text => text?,
    };
    if is_switched && before.as_ref() == Some(&text) {
        return Ok(format!("{unit} uses Podvisor"));
    }
    record.kubelet = Some(SwitchRecord { unit: unit.into(), drop_in: drop_in.clone(), restart_due: true });
    record.save(root)?;
    root.write(&drop_in, &text)?;
    host.run("systemctl", &["daemon-reload"])?;
    if let Some(file) = kubelet.overridden_by(host)? {
        // The kubelet runs on as it was started.
        root.remove(&drop_in)?;
        host.run("systemctl", &["daemon-reload"])?;
        record.kubelet = None;
        record.save(root)?;
        return Err(KubeletError::Overridden { file });
    }
    restart(host, unit)?;
    if let Some(said) = fell(host, unit, between)? {
        root.remove(&drop_in)?;
        restart(host, unit)?;
        record.kubelet = None;
        record.save(root)?;
        return Err(KubeletError::Fell { unit: unit.into(), said });
    }
    if let Some(switch) = &mut record.kubelet {
        switch.restart_due = false;
    }
    record.save(root)?;
    Ok(format!("{unit} was switched to Podvisor and keeps running"))
}

fn restart(host: &dyn Host, unit: &str) -> Result<(), CallError> {
    host.run("systemctl", &["daemon-reload"])?;
    // A failed start is seen by a later check.
    match host.run("systemctl", &["restart", unit]) {
        Err(CallError::Failed { .. }) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Checks a unit for a while; returns systemd's report if it does not keep running.
fn fell(host: &dyn Host, unit: &str, between: Duration) -> Result<Option<String>, CallError> {
    let mut first = None;
    for _ in 0..LOOKS {
        std::thread::sleep(between);
        let said = host.run("systemctl", &["show", "--property=ActiveState,NRestarts", unit])?;
        let is_active = said.lines().any(|line| line == "ActiveState=active");
        if !is_active || *first.get_or_insert_with(|| said.clone()) != said {
            return Ok(Some(said.split_whitespace().collect::<Vec<_>>().join(", ")));
        }
    }
    Ok(None)
}
