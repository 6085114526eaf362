//! Waits and bounds of the plugin's tasks. Tests have shorter ones.

use std::time::Duration;

/// How long things may take, and how often they are tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Between two looks at KVM and memory. A scheduler acts on a node's status that the kubelet sends every 10 s at most.
    pub(crate) look_every: Duration,
    /// For one look, and for the kubelet's list of holders: both are read from memory.
    pub(crate) look_deadline: Duration,
    /// Between two looks at the directory where no change is notified: a kubelet that starts is seen this late at worst.
    pub(crate) poll_every: Duration,
    /// Whether changes of the directory are notified.
    pub(crate) notify: bool,
    /// Pause after a change of the directory. A kubelet that starts removes sockets and makes its own in one go.
    pub(crate) settle: Duration,
    /// For a registration. The kubelet itself waits 10 s for its connection to the plugin, within the call.
    pub(crate) register_deadline: Duration,
    /// Before the next attempt at a kubelet that does not answer; doubled each time.
    pub(crate) retry_first: Duration,
    /// The longest pause before an attempt at a kubelet that does not answer.
    pub(crate) retry_max: Duration,
    /// Before the next attempt at a kubelet that refused: its reason (a name, a version) seldom goes away by itself.
    pub(crate) refused_retry: Duration,
    /// How long a registered plugin may go without a watching kubelet, before it registers again.
    pub(crate) unwatched: Duration,
    /// How long the server may take to end its calls.
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
