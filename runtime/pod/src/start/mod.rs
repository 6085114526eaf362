//! How a pod starts, as types: the next step is a function of the previous step's result.
//!
//! ```text
//!              ┌─ network.rs: CNI, taps ──────────────┐
//!  Reserved ──►│                                      ├──► Raised ── guest.rs: taps plugged, ──► Ready
//!  (on record) └─ vm.rs: disk, VMM, boot, hello ──────┘              agent configured
//!       │              │                                   │
//!       └──────────────┴──── a step fails: undo.rs ◄───────┘
//! ```
//!
//! Network and VM are raised in parallel. If one fails, the other is cancelled at its next step. Nothing is
//! dropped half-way, so the undo knows everything that was made.

mod context;
mod guest;
mod guest_files;
mod network;
mod spare;
mod stopwatch;
mod template;
pub(crate) mod undo;
mod up;
mod vm;
mod vmm;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use runtime_fail_points::{Point, pass};
use runtime_net::PodNetwork;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use self::context::Failed;
use self::context::{MADE_WITHIN, StartContext};
use self::stopwatch::Stopwatch;
use self::up::{Keeps, Up};
use crate::blocking::blocking_within;
use crate::counters::{self, Origin};
use crate::live::Live;
use crate::node::Node;
use crate::record::{PodRecord, PodStatus};
use crate::spares::Spare;
use crate::templates::Template;
use crate::templates::pages::Until;
use crate::templates::show;
use crate::versions::VmVersions;
use crate::view::Phase;

/// The pod is on record and has its directories.
#[derive(Debug)]
pub(crate) struct Reserved {
    context: StartContext,
}

/// Network and guest are up, and do not know each other yet.
#[derive(Debug)]
pub(crate) struct Raised {
    context: StartContext,
    network: PodNetwork,
    live: Live,
    versions: VmVersions,
    keeps: Keeps,
    origin: Origin,
    template: Option<Arc<Template>>,
}

/// The pod is ready for containers.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) live: Live,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) netns: PathBuf,
    pub(crate) phases: Vec<Phase>,
    pub(crate) versions: VmVersions,
    pub(crate) keeps: Keeps,
    pub(crate) settings_passed_by: Vec<String>,
    /// The VM's template, if it was restored from one.
    pub(crate) template: Option<Arc<Template>>,
}

/// Starts the pod of this record, through all steps, in the spare if there is one.
pub(crate) async fn start(
    node: Arc<Node>,
    record: Arc<PodRecord>,
    spare: Option<Spare>,
) -> Result<Ready, Failed> {
    let vm = spare.as_ref().map(|spare| spare.vm.clone());
    let context = StartContext { node, record, watch: Stopwatch::start() };
    let reserved = Reserved::enter(context).await.map_err(|failed| Failed { vm, ..failed })?;
    reserved.raise(spare).await?.configure().await
}

impl Reserved {
    /// Writes the pod down and makes its directories.
    async fn enter(context: StartContext) -> Result<Reserved, Failed> {
        let entering = async {
            context.node.records.put_new_pod(&context.record, &PodStatus::starting()).await?;
            let places = &context.node.places;
            for dir in [places.pod_state_dir(context.id()), places.pod_run_dir(context.id())] {
                let doing = format!("making the directory {}", dir.display());
                let pool = &context.node.pools.state;
                let make = move || pass(Point::PodDirectoryMake).and_then(|()| std::fs::create_dir_all(&dir));
                blocking_within(MADE_WITHIN, pool, &doing, make).await?;
            }
            Ok(())
        };
        let entered = context.watch.time("record", entering).await;
        // On record, or given up: the id is a pod's.
        context.node.unclaimed.remove(context.id());
        match entered {
            Ok(()) => Ok(Reserved { context }),
            Err(error) => Err(Failed { error, vm: None }),
        }
    }

    /// Raises network and VM in parallel.
    async fn raise(self, spare: Option<Spare>) -> Result<Raised, Failed> {
        let context = &self.context;
        let (call_off, called_off) = watch::channel(false);
        let networking = async {
            let outcome = network::up(context).await;
            if outcome.is_err() {
                call_off.send_replace(true);
            }
            outcome
        };
        let (network, booted) = tokio::join!(networking, vm::up(context, called_off, spare));
        match (network, booted) {
            (Ok(network), Ok(Up { live, versions, keeps, origin, template })) => {
                Ok(Raised { context: self.context, network, live, versions, keeps, origin, template })
            }
            // The first failure cancelled the other side, so a network's error is the cause.
            (Err(error), Ok(up)) => Err(Failed { error, vm: Some(up.live.vm) }),
            (Err(error), Err(failed)) => Err(Failed { error, vm: failed.vm }),
            (Ok(_), Err(failed)) => Err(failed),
        }
    }
}

impl Raised {
    /// Plugs the taps and configures the agent.
    async fn configure(self) -> Result<Ready, Failed> {
        let Raised { context, network, live, versions, keeps, origin, template } = self;
        let (ips, netns) = (network.ips.clone(), network.netns.clone());
        let since = Instant::now();
        match guest::configure(&context, network, &live).await {
            Ok(settings_passed_by) => {
                counters::pod_started_from(origin);
                if template.is_some() {
                    template::note_success(&context);
                }
                if let (Origin::Template, Some(template)) = (origin, &template) {
                    show::pages(&context.node, template, Until::Ready, live.vm.pid()).await;
                }
                let phases = context.watch.phases();
                Ok(Ready { live, ips, netns, phases, versions, keeps, settings_passed_by, template })
            }
            Err(error) => {
                if let Some(template) = &template {
                    template::note_unusable(&context, template, since, &error);
                }
                Err(Failed { error, vm: Some(live.vm) })
            }
        }
    }
}
