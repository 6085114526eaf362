//! Spans of calls, through the pod's driver: each step is below its own call, whether the caller waits or
//! not.

use runtime_spans::span;
use runtime_spec::StartFailure;
use runtime_traces::recorder::{RecordedSpan, Recorder};
use tracing::{Instrument, Span};

use super::{World, container, pod};

fn call() -> Span {
    span!("call", otel.kind = "server")
}

/// The phases of a start, and its enclosing steps.
const STEPS: [&str; 10] =
    ["boot", "commit", "configure", "guest", "network", "plug", "record", "reserve", "scratch", "spawn"];

fn children(recorder: &Recorder, of: &RecordedSpan) -> Vec<String> {
    let mut names = recorder.children(of);
    names.sort_unstable();
    names.dedup();
    names
}

#[tokio::test]
async fn a_start_has_its_steps_below_its_call_and_within_its_time() {
    let (recorder, _guard) = Recorder::begin();
    let world = World::new().await;
    let id = world.pods.run(pod("web")).instrument(call()).await.unwrap();
    world.until(|_| recorder.spans().iter().any(|span| span.is_call)).await;
    let call = recorder.span("call");
    assert_eq!(children(&recorder, &call), STEPS);
    for span in recorder.spans() {
        assert_eq!(span.trace, call.trace);
        assert!(call.start <= span.start && span.start <= span.end && span.end <= call.end, "{span:?}");
    }
    // Later work is no part of it.
    world.pods.remove(&id).await.unwrap();
    assert_eq!(children(&recorder, &call), STEPS);
}

/// A slow step is covered by an open span directly below its call, whichever step the start waits for.
#[tokio::test]
async fn whatever_a_start_waits_for_is_a_span_that_goes_on() {
    for (point, step) in [
        ("network.setup", "network"),
        ("vm.spawn", "spawn"),
        ("vm.boot", "boot"),
        ("vm.wait_ready", "guest"),
        ("vm.plug_net", "plug"),
        ("agent.configure", "configure"),
    ] {
        let (recorder, _guard) = Recorder::begin();
        let world = World::new().await;
        world.script.hang(point);
        let pods = world.pods.clone();
        let running = tokio::spawn(async move { pods.run(pod("web")).await }.instrument(call()));
        world.until(|world| world.script.count(point) == 1).await;
        assert!(recorder.open().iter().any(|name| name == step), "{point}: {:?}", recorder.open());
        world.script.repair();
        running.await.unwrap().unwrap();
        world.until(|_| recorder.open().is_empty()).await;
        assert!(recorder.children(&recorder.span("call")).iter().any(|name| name == step), "{point}");
    }
}

#[tokio::test]
async fn the_work_of_a_caller_that_went_away_belongs_to_its_call() {
    let (recorder, _guard) = Recorder::begin();
    let world = World::new().await;
    {
        let running = world.pods.run(pod("web")).instrument(call());
        tokio::pin!(running);
        assert!(futures::poll!(&mut running).is_pending());
    }
    world.until(|world| world.pods.pods().len() == 1 && recorder.open().is_empty()).await;
    assert_eq!(children(&recorder, &recorder.span("call")), STEPS);
}

#[tokio::test]
async fn the_drivers_work_for_a_container_is_below_the_call_that_asked_for_it() {
    let (recorder, _guard) = Recorder::begin();
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    assert!(recorder.spans().is_empty(), "no call asked for it");
    let creating = world.pods.create_container(&pod_id, container("app"));
    let id = creating.instrument(call()).await.unwrap();
    world.until(|_| recorder.open().is_empty()).await;
    let create = recorder.span("call");
    let steps = children(&recorder, &create);
    for step in ["wait for the pod's driver", "plug", "commit", "make the log", "create in the guest"] {
        assert!(steps.iter().any(|name| name == step), "{step} is not in {steps:?}");
    }

    world.pods.start_container(&id).instrument(call()).await.unwrap();
    // The container runs on, and its call does not.
    world.until(|_| recorder.open().is_empty()).await;
    let calls: Vec<_> = recorder.spans().into_iter().filter(|span| span.is_call).collect();
    assert_eq!(calls.len(), 2);
    assert!(children(&recorder, &calls[1]).contains(&"start in the guest".to_owned()));
}

#[tokio::test]
async fn a_step_that_failed_says_why_and_what_was_undone_is_below_the_call_too() {
    let (recorder, _guard) = Recorder::begin();
    let world = World::new().await;
    world.script.fail("agent.configure");
    world.pods.run(pod("web")).instrument(call()).await.unwrap_err();
    world.until(|_| recorder.open().is_empty()).await;
    let failure = recorder.span("configure").failure.unwrap();
    assert!(failure.contains("agent.configure was scripted to fail"), "{failure}");
    assert_eq!(recorder.span("network").failure, None);
    let undo = recorder.span("undo");
    assert_eq!(undo.parent, recorder.span("call").id);
    assert!(children(&recorder, &undo).contains(&"take the network down".to_owned()));
}

#[tokio::test]
async fn a_refusal_of_the_agent_is_not_quoted() {
    let (recorder, _guard) = Recorder::begin();
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.script.state().unrunnable = Some(StartFailure::ExecutableNotFound);
    let error = world.pods.start_container(&id).instrument(call()).await.unwrap_err();
    assert!(error.chain().contains("app --token=x"), "{}", error.chain());
    world.until(|_| recorder.open().is_empty()).await;
    let failure = recorder.span("start in the guest").failure.unwrap();
    assert!(failure.contains("the agent refused StartContainer"), "{failure}");
    for span in recorder.spans() {
        assert!(!span.failure.is_some_and(|failure| failure.contains("token")), "{}", span.name);
    }
}

#[tokio::test]
async fn a_call_that_joins_a_start_has_its_wait_in_a_trace_of_its_own() {
    let (recorder, _guard) = Recorder::begin();
    let world = World::new().await;
    let first = world.pods.run(pod("web")).instrument(call());
    let second = world.pods.run(pod("web")).instrument(call());
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap(), second.unwrap());
    world.until(|_| recorder.open().is_empty()).await;
    let calls: Vec<_> = recorder.spans().into_iter().filter(|span| span.is_call).collect();
    let steps: Vec<_> = calls.iter().map(|call| children(&recorder, call)).collect();
    assert!(
        steps.contains(&vec!["reserve".to_owned(), "wait for the same pod's start".to_owned()]),
        "{steps:?}"
    );
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].trace, calls[1].trace);
}
