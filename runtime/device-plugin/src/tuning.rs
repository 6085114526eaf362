//! Delays and bounds of the plugin's tasks. Tests use shorter ones.

use std::time::Duration;

/// Time limits and intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Interval between two probes of KVM and memory. A scheduler acts on a node's status, sent by the
    /// kubelet every 10 s at most.
    pub(crate) look_every: Duration,
    /// Time limit for one probe, and for the kubelet's list of holders. Both are read from memory.
    pub(crate) look_deadline: Duration,
    /// Interval between two checks of the directory without notification. It is the longest delay in noticing
    /// a kubelet's start.
    pub(crate) poll_every: Duration,
    /// True if changes of the directory are notified.
    pub(crate) notify: bool,
    /// Pause after a change of the directory. A starting kubelet removes sockets and creates its own in one
    /// go.
    pub(crate) settle: Duration,
    /// Time limit for a registration. The kubelet itself waits 10 s for its connection to the plugin, within
    /// the call.
    pub(crate) register_deadline: Duration,
    /// Pause before the next attempt at an unresponsive kubelet, doubled each time.
    pub(crate) retry_first: Duration,
    /// Longest pause before an attempt at an unresponsive kubelet.
    pub(crate) retry_max: Duration,
    /// Pause before the next attempt after a refusal. Its reason (a name, a version) seldom goes away by
    /// itself.
    pub(crate) refused_retry: Duration,
    /// How long a registered plugin may be without a watching kubelet before it registers again.
    pub(crate) unwatched: Duration,
    /// Time limit for the server to end its calls.
    pub(crate) drain: Duration,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            look_every: Duration::from_secs(10),
            look_deadline: Duration::from_secs(5),
            poll_every: Duration::from_secs(10),
            notify: true,
            settle: Duration::from_millis(200),
            register_deadline: Duration::from_secs(20),
            retry_first: Duration::from_secs(1),
            retry_max: Duration::from_secs(30),
            refused_retry: Duration::from_secs(60),
            unwatched: Duration::from_secs(15),
            drain: Duration::from_secs(2),
        }
    }
}
