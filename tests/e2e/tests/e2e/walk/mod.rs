//! Random work of several clients on the real daemon, while the daemon and VMMs are killed, VMMs and CNI
//! plugins hang, and the disk of the state is full or frozen. Each client predicts every answer for its own
//! pods.
//!
//! ```text
//!  client ──► action ──► call ──► answered ──► as the model says
//!                          └────► failed ──► beside a disturbance? ──► what is there is what such a failure may leave
//! ```
//!
//! A violation is: a call failing without a disturbance, a hanging call, an unexplained state, and a lost,
//! doubled or torn line of a container's output. At the end all pods are removed, and nothing is left on the
//! node.
//!
//! `PODVISOR_WALK_SEED` repeats the choices of a walk, but not their timing.

mod client;
mod disturbance;
mod model;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tests_e2e::Host;
use tests_e2e::traces::Traces;

use self::client::Client;
use self::disturbance::Disturber;
use self::model::Ledger;
use crate::load;

/// Clients at once, each with its own pod.
const CLIENTS: u64 = 3;
/// Seconds of a walk: in `make test`, `make load` and `make soak`.
const SECONDS: [usize; 3] = [60, 600, 1800];
/// MiB of the disk of the state.
const DISK_MIB: u64 = 512;

#[tokio::test]
async fn random_work_beside_kills_and_bad_disks_loses_nothing() {
    let Some(mut host) = Host::start_on_disk(DISK_MIB).await else { return };
    let seed = std::env::var("PODVISOR_WALK_SEED")
        .map_or_else(|_| rand::rng().random(), |seed| seed.parse().unwrap());
    println!("walk: seed {seed}");
    disturbance::put_gate_before_plugins(&mut host).await;
    let before = Traces::take(host.dir()).unwrap();
    let image = host.client().pull(&host.busybox()).await.unwrap();
    let ledger = Arc::new(Ledger::default());
    let until = Instant::now() + Duration::from_secs(load::size(SECONDS) as u64);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = Client::new(number, seed, &host, &image, &ledger);
            tokio::spawn(client.walk(until))
        })
        .collect();
    let random = StdRng::seed_from_u64(seed);
    let kinds = Disturber::new(&mut host, random, &ledger)
        .disturb(until, || clients.iter().any(tokio::task::JoinHandle::is_finished))
        .await;
    let mut counts = model::Counts::default();
    // The first failure ends the walk.
    let walked = futures::future::try_join_all(clients).await;
    for client in walked.unwrap_or_else(|failed| panic!("seed {seed}: {failed}")) {
        counts += client;
    }
    println!("walk: {counts:?}; disturbances: {kinds:?}");
    assert!(host.client().pods().await.unwrap().is_empty());
    assert_eq!(host.left_since(&before).await, Vec::<String>::new(), "seed {seed}");
    host.stop().await.unwrap();
}
