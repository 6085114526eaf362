//! Spans from the macro to a collector on a socket, and the caller's context on its way through.

use std::net::SocketAddr;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::http::{HeaderMap, HeaderValue};
use tonic::{Request, Response, Status};
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::recorder::{Recorder, keep_another};
use crate::{adopt, inject};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn call() -> tracing::Span {
    runtime_spans::span!("call", otel.kind = "server")
}

#[test]
fn a_call_is_below_its_caller_and_its_steps_are_below_it() {
    let (recorder, _guard) = Recorder::begin();
    let call = call();
    adopt(&call, &headers(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]));
    call.in_scope(|| {
        // A span of the log between them is no part of the tree.
        tracing::info_span!("cri").in_scope(|| drop(runtime_spans::span!("step").entered()));
    });
    let mut onward = headers(&[("traceparent", "of somebody else"), ("x", "y")]);
    inject(&call, &mut onward);
    drop(call);
    let (call, step) = (recorder.span("call"), recorder.span("step"));
    assert_eq!(format!("00-{}-{}-01", call.trace, call.parent), PARENT);
    assert_eq!((&step.trace, &step.parent), (&call.trace, &call.id));
    assert_eq!(recorder.spans().len(), 2);
    assert_eq!(onward["traceparent"], format!("00-{}-{}-01", call.trace, call.id).as_str());
    assert_eq!(onward["tracestate"], "a=1,b=2");
    assert_eq!(onward["x"], "y");
}

#[test]
fn a_caller_that_is_not_traced_makes_no_trace_and_is_passed_on_as_such() {
    let (recorder, _guard) = Recorder::begin();
    let call = call();
    adopt(&call, &headers(&[("traceparent", &PARENT.replace("-01", "-00"))]));
    let mut onward = HeaderMap::new();
    inject(&call, &mut onward);
    call.in_scope(|| drop(runtime_spans::span!("step")));
    drop(call);
    assert!(recorder.spans().is_empty());
    let onward = onward["traceparent"].to_str().unwrap();
    assert!(onward.starts_with(&PARENT[..36]) && onward.ends_with("-00"), "{onward}");
}

#[test]
fn a_parent_that_is_malformed_or_there_twice_is_ignored() {
    let (recorder, _guard) = Recorder::begin();
    for wrong in [
        headers(&[("traceparent", "00-x-y-z")]),
        headers(&[("traceparent", PARENT), ("traceparent", PARENT)]),
    ] {
        let call = call();
        adopt(&call, &wrong);
        drop(call);
    }
    let spans = recorder.spans();
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|span| span.parent == "0000000000000000" && span.trace != PARENT[3..35]));
}

#[test]
fn without_a_layer_no_span_is_made_and_headers_pass_unchanged() {
    keep_another();
    // The layer of the log, by itself.
    let log = filter_fn(|metadata| !runtime_spans::is_of_calls(metadata));
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::sink).with_filter(log);
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log));
    let call = call();
    assert!(call.is_disabled());
    let before = headers(&[("traceparent", PARENT), ("tracestate", "a=1")]);
    let mut after = before.clone();
    adopt(&call, &before);
    inject(&call, &mut after);
    assert_eq!(after, before);
}

#[test]
fn work_that_no_call_asked_for_is_not_traced() {
    let (recorder, _guard) = Recorder::begin();
    drop(runtime_spans::span!("recovery").entered());
    assert!(recorder.spans().is_empty());
}

/// A collector that forwards everything it receives.
struct Receiving(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Receiving {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let _ = self.0.send(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector() -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = mpsc::unbounded_channel();
    let service = TraceServiceServer::new(Receiving(sender));
    let serving = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serving);
    (address, received)
}

#[tokio::test]
async fn spans_reach_a_collector_with_the_name_of_this_program() {
    let (address, mut received) = collector().await;
    let endpoint = format!("http://{address}").parse().unwrap();
    keep_another();
    let traces = Traces::new(TracesConfig { endpoint, sample: 1.0, version: "9.9" });
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(traces.layer()));
    call().in_scope(|| drop(runtime_spans::span!("step", count = 7)));
    drop(guard);
    let exporting = traces.export(&Handle::current()).unwrap();
    assert!(traces.export(&Handle::current()).is_none());
    exporting.finish().await;
    let request = received.recv().await.unwrap();
    let of_resource = &request.resource_spans[0];
    let attributes = format!("{:?}", of_resource.resource.as_ref().unwrap().attributes);
    assert!(attributes.contains("\"podvisor\"") && attributes.contains("\"9.9\""), "{attributes}");
    let names: Vec<_> = of_resource.scope_spans[0].spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["step", "call"]);
}

#[tokio::test]
async fn an_answer_that_is_no_grpc_loses_the_spans_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &[0xff; 4096]).await;
        }
    });
    keep_another();
    let traces = Traces::new(TracesConfig { endpoint, sample: 1.0, version: "9.9" });
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(traces.layer()));
    drop(call());
    drop(guard);
    traces.export(&Handle::current()).unwrap().finish().await;
}
