//! The switch of the kubelet to Podvisor: a file, a restart, and a check whether the kubelet keeps running.
//! If it does not, the switch is undone; a switch in force keeps its earlier file. A DaemonSet's pod does not
//! try the same switch again: each attempt restarts the kubelet twice. The complete way back, with the end of
//! VMs, is in `leave.rs`.

use std::path::Path;
use std::time::Duration;

use crate::host::{CallError, Host};
use crate::kubelet::{self, Kubelet, KubeletError};
use crate::record::{FallenSwitch, InstallRecord, SwitchRecord};
use crate::root::HostRoot;

/// Checks of a kubelet after its restart. Without a runtime it ends within seconds, and systemd restarts it
/// after ten.
const LOOKS: u32 = 15;

/// Checks until a distribution's kubelet has come up and kept running. It waits for its API server first.
const LOOKS_MAX: u32 = 150;

/// A requested switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchSpec {
    /// Whether to try a switch again with which the kubelet did not keep running before.
    pub(crate) again: bool,
    /// Pause between checks of the kubelet.
    pub(crate) between_looks: Duration,
}

/// Switches the kubelet to the daemon at `socket`. Returns a description of the change.
pub(crate) fn switch(
    root: &HostRoot,
    host: &dyn Host,
    record: &mut InstallRecord,
    socket: &Path,
    spec: SwitchSpec,
) -> Result<String, KubeletError> {
    let kubelet = Kubelet::find(host)?;
    let (unit, drop_in) = (kubelet.unit(), kubelet.drop_in());
    let before = root.read(&drop_in, 1 << 20)?;
    let of_unit = record.kubelet.clone().filter(|switch| switch.unit == unit);
    let is_switched = of_unit.as_ref().is_some_and(|switch| !switch.restart_due);
    let text = kubelet.text(root, host, socket)?;
    if is_switched && before.as_ref() == Some(&text) {
        return Ok(format!("{unit} uses Podvisor"));
    }
    let fallen = record.fallen.as_ref().filter(|fallen| fallen.unit == unit && fallen.text == text);
    if let Some(fallen) = fallen.filter(|_| !spec.again) {
        return Err(KubeletError::FellBefore { unit: unit.into(), said: fallen.said.clone() });
    }
    if !is_switched {
        insist_on_readiness(host, record)?;
    }
    // Pods may run in VMs, so a switch in force is never undone by a failure to renew it.
    let earlier = if is_switched { before } else { of_unit.and_then(|switch| switch.earlier) };
    let made = SwitchRecord { unit: unit.into(), drop_in, restart_due: true, earlier };
    record.kubelet = Some(made.clone());
    record.save(root)?;
    root.write(&made.drop_in, &text)?;
    host.run("systemctl", &["daemon-reload"])?;
    if let Err(without_effect) = kubelet.insist_on_effect(root, host, socket) {
        // The kubelet runs on as it was started.
        undo(root, host, record, made)?;
        return Err(without_effect);
    }
    restart(host, unit)?;
    let mut said = fell(host, unit, spec.between_looks)?;
    if said.is_none() && kubelet.is_supervised() {
        said = process_fell(root, socket, spec.between_looks)?;
    }
    if let Some(said) = said {
        let fallen = FallenSwitch { unit: unit.into(), text, said: said.clone() };
        let unit_name = unit.to_owned();
        let failure = match made.earlier {
            None => KubeletError::Fell { unit: unit_name, said },
            Some(_) => KubeletError::FellAgain { unit: unit_name, said },
        };
        undo(root, host, record, made)?;
        restart(host, unit)?;
        // Not earlier: the run after an interruption has to restart the kubelet.
        record.fallen = Some(fallen);
        record.save(root)?;
        return Err(failure);
    }
    record.fallen = None;
    if let Some(switch) = &mut record.kubelet {
        (switch.restart_due, switch.earlier) = (false, None);
    }
    record.save(root)?;
    Ok(format!("{unit} was switched to Podvisor and keeps running"))
}

/// Fails if the kubelet would set the node NotReady with the daemon as it is. It would keep running, but get
/// no more pods, and lose those that it has, the other runtime's too.
fn insist_on_readiness(host: &dyn Host, record: &InstallRecord) -> Result<(), KubeletError> {
    let program = record.prefix.join("bin/podvisor");
    match host.run(&program.to_string_lossy(), &["node", "ready"]) {
        Ok(_) => Ok(()),
        Err(CallError::Failed { said, .. }) => Err(KubeletError::NotReady { said }),
        Err(error) => Err(error.into()),
    }
}

/// Puts the earlier file of the switch back, or removes that of a first switch.
fn undo(
    root: &HostRoot,
    host: &dyn Host,
    record: &mut InstallRecord,
    made: SwitchRecord,
) -> Result<(), KubeletError> {
    let is_renewed = made.earlier.is_some();
    match &made.earlier {
        Some(text) => root.write(&made.drop_in, text)?,
        None => {
            root.remove(&made.drop_in)?;
        }
    }
    host.run("systemctl", &["daemon-reload"])?;
    let again = SwitchRecord { restart_due: false, earlier: None, ..made };
    record.kubelet = is_renewed.then_some(again);
    Ok(record.save(root)?)
}

fn restart(host: &dyn Host, unit: &str) -> Result<(), CallError> {
    host.run("systemctl", &["daemon-reload"])?;
    // A failed start is seen by a later check.
    match host.run("systemctl", &["restart", unit]) {
        Err(CallError::Failed { .. } | CallError::Hangs { .. }) | Ok(_) => Ok(()),
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

/// Checks the process of a kubelet whose unit starts it again; returns what is wrong if it does not keep
/// running with the daemon's socket.
fn process_fell(root: &HostRoot, socket: &Path, between: Duration) -> Result<Option<String>, KubeletError> {
    let (mut process, mut same) = (None, 0);
    for _ in 0..LOOKS_MAX {
        std::thread::sleep(between);
        let now = kubelet::process_with(root, socket)?;
        same = if now.is_some() && now == process { same + 1 } else { 0 };
        if same == LOOKS {
            return Ok(None);
        }
        process = now;
    }
    Ok(Some(match process {
        Some(_) => "its kubelet ends again and again".into(),
        None => "it has no kubelet with this runtime".into(),
    }))
}
