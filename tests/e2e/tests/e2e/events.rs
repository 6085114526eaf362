//! GetContainerEvents: a listener's events, and its end.

use proto_cri::v1;
use tests_e2e::{Host, spec};

use v1::ContainerEventType::{
    ContainerCreatedEvent as Created, ContainerDeletedEvent as Deleted, ContainerStartedEvent as Started,
    ContainerStoppedEvent as Stopped,
};

#[tokio::test]
async fn a_listener_hears_a_pods_whole_life_and_the_daemons_end() {
    let Some(mut host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let asked = client.runtime.get_container_events(v1::GetEventsRequest {}).await;
    let mut events = asked.unwrap().into_inner();

    let pod = client.run_pod(&spec::pod("heard", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::shell("main", &image, "exit 3")).await.unwrap();
    client.wait(&container).await.unwrap();
    client.remove(&container).await.unwrap();
    client.remove_pod(&pod).await.unwrap();

    let mut last = 0;
    for (id, kind) in [
        (&pod, Created),
        (&pod, Started),
        (&container, Created),
        (&container, Started),
        (&container, Stopped),
        (&container, Deleted),
        (&pod, Stopped),
        (&pod, Deleted),
    ] {
        let event = events.message().await.unwrap().unwrap();
        assert_eq!((&event.container_id, event.container_event_type()), (id, kind));
        assert!(event.created_at >= last, "{event:?}");
        last = event.created_at;
        let status = event.pod_sandbox_status.unwrap();
        assert_eq!((&status.id, status.metadata.unwrap().name.as_str()), (&pod, "heard"));
        if (id, kind) == (&container, Stopped) {
            assert_eq!(event.containers_statuses[0].exit_code, 3);
        }
        if kind == Deleted {
            assert!(event.containers_statuses.is_empty());
        }
    }

    host.daemon.stop().await.unwrap();
    assert!(events.message().await.unwrap().is_none(), "the stream ends, and in order");
    host.stop().await.unwrap();
}
