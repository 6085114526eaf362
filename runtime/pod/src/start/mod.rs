//! How a pod starts, as types: the next step is a function of the previous step's result.
//!
//! ```text
//!              ┌─ network.rs: CNI, taps ──────────────┐
//!  Reserved ──►│                                      ├──► Raised ── guest.rs: taps plugged, ──► Ready
//!  (on record) └─ machine.rs: disk, VMM, boot, hello ─┘              agent told
//!       │              │                                   │
//!       └──────────────┴──── a step fails: undo.rs ◄───────┘
//! ```
//!
//! Network and machine are raised side by side. If one fails, the other is called off at its next
//! step; nothing is dropped half way, so that everything made is known to the undo.

mod guest;
pub(crate) mod machine;
pub(crate) mod network;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use runtime_net::PodNetwork;
use tokio::sync::watch;

use crate::node::Node;
use crate::outside::{Agent, Machine};
use crate::record::{PodRecord, PodStatus};
use crate::roster::Live;
use crate::stopwatch::Stopwatch;
use crate::{PodError, PodErrorKind};

/// What every step stands on.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) node: Arc<Node>,
    pub(crate) record: Arc<PodRecord>,
    pub(crate) watch: Stopwatch,
}

/// The pod is on record and has its directories.
#[derive(Debug)]
pub(crate) struct Reserved {
    ground: Ground,
}

/// Network and guest are up, and do not know each other yet.
#[derive(Debug)]
pub(crate) struct Raised {
    ground: Ground,
    network: PodNetwork,
    live: Live,
}

/// Containers can come.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) live: Live,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) netns: PathBuf,
    pub(crate) phases: Vec<crate::Phase>,
}

/// A step failed. What was made up to there must be undone; `machine` is known if it was spawned.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: PodError,
    pub(crate) machine: Option<Arc<dyn Machine>>,
}

/// Starts the pod of this record, through all steps.
pub(crate) async fn start(node: Arc<Node>, record: Arc<PodRecord>) -> Result<Ready, Failed> {
    let ground = Ground { node, record, watch: Stopwatch::start() };
    Reserved::enter(ground).await?.raise().await?.configure().await
}

impl Reserved {
    /// Writes the pod down and makes its directories.
    async fn enter(ground: Ground) -> Result<Reserved, Failed> {
        let entering = async {
            ground.node.put_new_pod(&ground.record, &PodStatus::starting()).await?;
            let dirs =
                [ground.node.pod_state_dir(&ground.record.id), ground.node.pod_run_dir(&ground.record.id)];
            for dir in dirs {
                std::fs::create_dir_all(&dir).map_err(|error| {
                    PodError::internal(format!("making the directory {}", dir.display())).because(error)
                })?;
            }
            Ok(())
        };
        match ground.watch.time("record", entering).await {
            Ok(()) => Ok(Reserved { ground }),
            Err(error) => Err(Failed { error, machine: None }),
        }
    }

    /// Raises network and machine side by side.
    async fn raise(self) -> Result<Raised, Failed> {
        let ground = &self.ground;
        let (call_off, called_off) = watch::channel(false);
        let networking = async {
            let outcome = network::up(ground).await;
            if outcome.is_err() {
                call_off.send_replace(true);
            }
            outcome
        };
        let (network, booted) = tokio::join!(networking, machine::up(ground, called_off));
        match (network, booted) {
            (Ok(network), Ok(live)) => Ok(Raised { ground: self.ground, network, live }),
            // What failed first called the other off, so a network's error is the cause.
            (Err(error), Ok(live)) => Err(Failed { error, machine: Some(live.machine) }),
            (Err(error), Err(failed)) => Err(Failed { error, machine: failed.machine }),
            (Ok(_), Err(failed)) => Err(failed),
        }
    }
}

impl Raised {
    /// Plugs the taps and tells the agent who it is.
    async fn configure(self) -> Result<Ready, Failed> {
        let Raised { ground, network, live } = self;
        let (ips, netns) = (network.ips.clone(), network.netns.clone());
        match guest::configure(&ground, network, &live).await {
            Ok(()) => Ok(Ready { live, ips, netns, phases: ground.watch.phases() }),
            Err(error) => Err(Failed { error, machine: Some(live.machine) }),
        }
    }
}

impl Ground {
    pub(crate) fn id(&self) -> &str {
        &self.record.id
    }
}

impl Live {
    pub(crate) fn new(machine: Arc<dyn Machine>, agent: Arc<dyn Agent>) -> Self {
        Live { machine, agent, meter: Arc::default() }
    }

    /// Runs a call to the agent or the monitor; one that the machine's end leaves hanging ends with it.
    pub(crate) async fn call<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Result<T, crate::outside::Fault>>,
    ) -> Result<T, PodError> {
        tokio::select! {
            biased;
            outcome = call => match outcome {
                Ok(value) => Ok(value),
                Err(fault) => Err(self.blame(doing, fault).await),
            },
            report = self.machine.stopped() => {
                let text = format!("{doing}: {}", crate::ending::describe(&report));
                Err(PodError::new(PodErrorKind::Unavailable, text))
            }
        }
    }

    /// A call that failed because the machine ended says so: that is the cause a person looks for.
    async fn blame(&self, doing: &str, fault: crate::outside::Fault) -> PodError {
        const A_MOMENT: std::time::Duration = std::time::Duration::from_millis(200);
        if let Some(kind) = crate::outside::refusal(&fault) {
            return PodError::new(kind, doing).because(fault);
        }
        match tokio::time::timeout(A_MOMENT, self.machine.stopped()).await {
            Ok(report) => {
                let text = format!("{doing}: {}", crate::ending::describe(&report));
                PodError::new(PodErrorKind::Unavailable, text).because(fault)
            }
            Err(_) => PodError::new(PodErrorKind::Unavailable, doing).because(fault),
        }
    }
}
