//! Detects a shutdown of the node, and the time left for ending its pods. A restart of the daemon sends the
//! same signal as the node's shutdown. Only systemd can distinguish them: in a shutdown it has begun to reach
//! its shutdown target.

use std::fs;
use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;
use tracing::{info, warn};

/// Timeout for systemd's answer. It is busy with the shutdown, and a restart of the daemon also waits for it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The stop timeout of a service without its own (`DefaultTimeoutStopSec=` of systemd-system.conf(5)), as for
/// containers elsewhere.
const USUAL: Duration = Duration::from_secs(90);

/// The longest time used: a unit may have no bound.
const LONGEST: Duration = Duration::from_secs(3600);

/// The stop timeout of this daemon's unit, if the node goes down; `None` if only the daemon stops.
pub(super) async fn time_left() -> Option<Duration> {
    let state = systemctl(&["is-system-running"]).await?;
    // The word for a system with an active or queued shutdown target (systemctl(1)).
    if state != "stopping" {
        return None;
    }
    let unit = fs::read_to_string("/proc/self/cgroup").ok().and_then(|cgroups| unit_of(&cgroups));
    let time = match &unit {
        Some(unit) => systemctl(&["show", "--property=TimeoutStopUSec", "--value", unit]).await,
        None => None,
    };
    let time = time.as_deref().and_then(time_span).unwrap_or(USUAL).min(LONGEST);
    info!(?unit, ?time, "the node goes down");
    Some(time)
}

/// The output of systemctl with these arguments.
async fn systemctl(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("systemctl");
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match timeout(ANSWERS_WITHIN, command.output()).await {
        // The exit status of is-system-running is non-zero for every state but a healthy one.
        Ok(Ok(output)) => Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        // A node without systemd. The answer is unknown there.
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => None,
        Ok(Err(error)) => {
            warn!(%error, "systemctl cannot be run: pods go on, though the node may go down");
            None
        }
        Err(_) => {
            warn!("systemctl does not answer: pods go on, though the node may go down");
            None
        }
    }
}

/// The unit of a process, by its `/proc/<pid>/cgroup` (cgroups(7)).
fn unit_of(cgroups: &str) -> Option<String> {
    let mut paths = cgroups.lines().filter_map(|line| line.rsplit(':').next());
    paths.find_map(|path| path.split('/').rfind(|part| part.ends_with(".service"))).map(str::to_owned)
}

/// The time span as printed by systemctl (systemd.time(7)). An infinite one becomes the longest; `None` for
/// other text.
fn time_span(text: &str) -> Option<Duration> {
    if text == "infinity" {
        return Some(LONGEST);
    }
    let mut sum = None;
    for part in text.split_whitespace() {
        let unit_at = part.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, unit) = part.split_at(unit_at);
        let seconds = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            "w" => 604_800.0,
            _ => LONGEST.as_secs_f64(),
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        sum = Some(sum.unwrap_or(Duration::ZERO).saturating_add(part));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_units_time_is_read_as_systemctl_prints_it() {
        let seconds = |text| time_span(text).map(|span| span.as_secs_f64());
        assert_eq!(seconds("2min"), Some(120.0));
        assert_eq!(seconds("1h 1min 30s"), Some(3690.0));
        assert_eq!(seconds("1min 500ms"), Some(60.5));
        assert_eq!(seconds("infinity"), Some(3600.0));
        for nothing in ["", "soon", "5", "s"] {
            assert_eq!(seconds(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn the_unit_is_the_innermost_service_of_the_cgroup() {
        assert_eq!(unit_of("0::/system.slice/podvisor.service\n").unwrap(), "podvisor.service");
        assert_eq!(unit_of("0::/system.slice/podvisor.service/daemon\n").unwrap(), "podvisor.service");
        let hybrid =
            "12:pids:/system.slice/podvisor.service\n1:name=systemd:/system.slice/podvisor.service\n0::/\n";
        assert_eq!(unit_of(hybrid).unwrap(), "podvisor.service");
        assert_eq!(unit_of("0::/user.slice/session-1.scope\n"), None);
    }
}
