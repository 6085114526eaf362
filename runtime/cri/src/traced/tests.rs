//! The span of a call, as a collector would get it.

use std::convert::Infallible;

use runtime_traces::recorder::Recorder;
use tower::service_fn;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const RUN: &str = "/runtime.v1.RuntimeService/RunPodSandbox";

fn request(path: &str) -> Request<()> {
    Request::builder().uri(path).header("traceparent", PARENT).body(()).unwrap()
}

/// Makes a call to a service answering with this status.
async fn call(path: &str, answer: impl FnOnce() -> Result<(), Status> + Send + Clone + 'static) {
    let mut services = Traced(service_fn(move |_: Request<()>| {
        let answer = answer.clone();
        async move {
            let response = match answer() {
                Ok(()) => Response::new(Body::empty()),
                Err(status) => status.into_http(),
            };
            Ok::<_, Infallible>(response)
        }
    }));
    services.call(request(path)).await.unwrap();
}

#[tokio::test]
async fn a_calls_span_has_its_method_its_caller_and_its_code() {
    let (recorder, _guard) = Recorder::begin();
    call(RUN, || Ok(())).await;
    let span = recorder.span("runtime.v1.RuntimeService/RunPodSandbox");
    assert!(span.is_call);
    assert_eq!(format!("00-{}-{}-01", span.trace, span.parent), PARENT);
    let attribute = |name: &str| span.attributes.get(name).map(String::as_str);
    assert_eq!(attribute("rpc.system"), Some("grpc"));
    assert_eq!(attribute("rpc.service"), Some("runtime.v1.RuntimeService"));
    assert_eq!(attribute("rpc.method"), Some("RunPodSandbox"));
    assert_eq!(attribute("rpc.grpc.status_code"), Some("0"));
    assert_eq!(attribute("k8s.pod.name"), None);
    assert_eq!(span.failure, None);
}

#[tokio::test]
async fn a_fault_of_ours_is_a_failure_and_one_of_the_callers_is_a_code() {
    for (status, failure) in [
        (Status::internal("no disk"), Some("no disk")),
        (Status::unavailable("no agent"), Some("no agent")),
        (Status::not_found("no such pod"), None),
        (Status::invalid_argument("config is missing"), None),
    ] {
        let (recorder, _guard) = Recorder::begin();
        let code = status.code();
        call(RUN, move || Err(status)).await;
        let span = recorder.span("runtime.v1.RuntimeService/RunPodSandbox");
        assert_eq!(span.attributes["rpc.grpc.status_code"], (code as i64).to_string());
        assert_eq!(span.failure.as_deref(), failure);
    }
}

#[tokio::test]
async fn a_guests_text_is_in_the_answer_and_not_in_the_span() {
    let (recorder, _guard) = Recorder::begin();
    call(RUN, || {
        failed(Code::Internal, &crate::error::Failure::Node("starting".into()));
        Err(Status::internal("starting: no executable \"app --token=x\""))
    })
    .await;
    let span = recorder.span("runtime.v1.RuntimeService/RunPodSandbox");
    assert_eq!(span.failure.as_deref(), Some("starting"));
}

#[tokio::test]
async fn a_call_whose_caller_went_away_was_cancelled() {
    let (recorder, _guard) = Recorder::begin();
    let mut services =
        Traced(service_fn(|_: Request<()>| std::future::pending::<Result<Response<Body>, Infallible>>()));
    let mut calling = services.call(request(RUN));
    assert!(futures::poll!(&mut calling).is_pending());
    assert!(recorder.spans().is_empty());
    drop(calling);
    let span = recorder.span("runtime.v1.RuntimeService/RunPodSandbox");
    assert_eq!(span.attributes["rpc.grpc.status_code"], "1");
}

#[tokio::test]
async fn what_is_no_call_of_cri_makes_no_span() {
    let (recorder, _guard) = Recorder::begin();
    let long = format!("/runtime.v1.RuntimeService/{}", "x".repeat(METHOD_BYTES_MAX + 1));
    for path in [
        "/",
        "/x",
        "/grpc.health.v1.Health/Check",
        "/runtime.v1.Other/Do",
        "/runtime.v1.RuntimeService/a/b",
        &long,
    ] {
        call(path, || Ok(())).await;
    }
    assert!(recorder.spans().is_empty());
    call("/runtime.v1alpha2.ImageService/PullImage", || Ok(())).await;
    assert_eq!(recorder.spans().len(), 1);
}

#[tokio::test]
async fn a_call_that_goes_on_to_another_runtime_names_us_as_its_parent() {
    let (recorder, _guard) = Recorder::begin();
    let mut services = Traced(service_fn(|request: Request<()>| async move {
        let mut headers = request.headers().clone();
        let span = onward(RUN, &mut headers);
        async { tokio::task::yield_now().await }.instrument(span.clone()).await;
        onward_ended(&span, &Err::<(), _>(Status::not_found("no such pod")));
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert("seen", headers["traceparent"].clone());
        Ok::<_, Infallible>(response)
    }));
    let response = services.call(request(RUN)).await.unwrap();
    let spans = recorder.spans();
    let (client, server) = (&spans[0], &spans[1]);
    assert_eq!((client.is_call, server.is_call), (false, true));
    assert_eq!(client.parent, server.id);
    assert_eq!(client.failure.as_deref(), Some(UPSTREAM_SAID));
    assert_eq!(response.headers()["seen"], format!("00-{}-{}-01", client.trace, client.id).as_str());
}

#[tokio::test]
async fn without_traces_a_call_goes_on_as_it_came() {
    let mut headers = request(RUN).headers().clone();
    assert!(onward(RUN, &mut headers).is_disabled());
    assert_eq!(headers["traceparent"], PARENT);
}
