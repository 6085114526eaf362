//! Guests are sent the node's time, if they cannot read it.

use std::time::Duration;

use super::{World, pod};
use crate::guest_clocks::{LOOK_EVERY, begin};

/// A moment for the answers to what was sent at a look.
const MOMENT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_guest_without_the_nodes_clock_is_sent_the_time_though_nobody_asks_for_anything() {
    let world = World::new().await;
    begin(&world.node);
    world.pods.run(pod("web")).await.unwrap();
    let before = world.script.count("agent.stats");
    tokio::time::sleep(10 * LOOK_EVERY).await;
    let sent = world.script.count("agent.stats") - before;
    // Each measure takes the agent eight messages.
    assert!(sent >= 8 * 9, "{sent} messages");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_reads_the_nodes_clock_is_asked_once_an_hour_if_it_still_does() {
    let world = World::new().await;
    begin(&world.node);
    world.script.state().reads_clock = true;
    world.pods.run(pod("web")).await.unwrap();
    tokio::time::sleep(LOOK_EVERY + MOMENT).await;
    assert_eq!(world.script.count("agent.stats"), 1);
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert_eq!(world.script.count("agent.stats"), 1);
    world.script.state().reads_clock = false;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(world.script.count("agent.stats") > 8);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_hangs_is_given_up_for_this_time_and_keeps_no_other_without() {
    let world = World::new().await;
    begin(&world.node);
    world.pods.run(pod("web")).await.unwrap();
    world.script.hang("agent.stats");
    tokio::time::sleep(LOOK_EVERY + MOMENT).await;
    assert_eq!(world.script.count("agent.stats"), 1);
    world.script.repair();
    tokio::time::sleep(2 * LOOK_EVERY).await;
    assert!(world.script.count("agent.stats") > 8);
}
