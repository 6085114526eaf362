//! Output on its way to the log, over breaking connections.

use super::{World, container, life};

/// Lines, all different.
fn lines() -> Vec<u8> {
    (0..2000).flat_map(|number| format!("line {number}\n").into_bytes()).collect()
}

fn assert_whole(log: &str) {
    let expected = String::from_utf8(lines()).unwrap();
    let logged: Vec<&str> = log.lines().map(|line| line.split_once(" stdout F ").unwrap().1).collect();
    assert_eq!(logged, expected.lines().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_under_a_living_daemon_is_opened_again_and_nothing_is_lost_or_doubled() {
    let world = World::new().await;
    world.script.state().output = lines();
    world.script.state().breaks = 6;
    let pod_id = world.pods.run(world.logged_pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.pods.start_container(&id).await.unwrap();
    let all = lines().len() as u64;
    world.until(|world| world.script.state().acknowledged.get(&id) == Some(&all)).await;
    assert_eq!(world.script.state().breaks, 0);
    world.script.vm().agent.end(&id, 0, false);
    world.ended(&id).await;
    assert_whole(&world.log("app.log"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_opened_again_is_tried_until_it_can() {
    let world = World::new().await;
    world.script.state().output = lines();
    world.script.state().breaks = 2;
    let pod_id = world.pods.run(world.logged_pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.pods.start_container(&id).await.unwrap();
    world.script.fail("agent.output");
    world.until(|world| world.script.count("agent.output") > 5).await;
    world.script.repair();
    world.script.vm().agent.end(&id, 0, false);
    world.ended(&id).await;
    assert_whole(&world.log("app.log"));
}

#[test]
fn output_waits_while_its_place_in_the_log_cannot_be_read_and_goes_on_there() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        world.script.state().output = lines();
        let pod_id = world.pods.run(world.logged_pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        let all = lines().len() as u64;
        world.until(|world| world.script.state().acknowledged.get(&id) == Some(&all)).await;
        // A line torn by the daemon's end.
        let path = world.dir.path().join("logs/app.log");
        let torn = std::fs::read_to_string(&path).unwrap() + "2026-01-02T03:04:05.000000006Z stdout F li";
        std::fs::write(&path, torn).unwrap();
        let acks = world.node.places.acks_path(&pod_id, &id);
        std::fs::rename(&acks, acks.with_extension("away")).unwrap();
        std::fs::create_dir(&acks).unwrap();
        (pod_id, id)
    });
    life(Some(left), async |world: &World| {
        let acks = world.node.places.acks_path(&pod_id, &id);
        world.until(|world| world.script.count("agent.wait") > 1).await;
        assert_eq!(world.script.state().offsets, [0], "nobody asks for bytes from a place that nobody knows");
        std::fs::remove_dir(&acks).unwrap();
        std::fs::rename(acks.with_extension("away"), &acks).unwrap();
        world.script.vm().agent.end(&id, 0, false);
        world.ended(&id).await;
        assert_whole(&world.log("app.log"));
    });
}
