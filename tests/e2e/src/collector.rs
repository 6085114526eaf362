//! A collector of OpenTelemetry's, as far as spans go: takes them by OTLP over gRPC, and keeps them for a
//! test to look at.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::wait::until_seen;

/// A span, with its ids in hexadecimal.
#[derive(Clone, Debug)]
pub struct Collected {
    /// Name.
    pub name: String,
    /// Id of the trace.
    pub trace: String,
    /// Id.
    pub id: String,
    /// Id of the parent; empty for a root.
    pub parent: String,
    /// Beginning and end, in nanoseconds since the epoch.
    pub time: (u64, u64),
    /// OTLP's number of its kind: 1 is internal, 2 a server's, 3 a client's.
    pub kind: i32,
    /// Attributes as texts.
    pub attributes: BTreeMap<String, String>,
    /// The error, if it failed.
    pub failure: Option<String>,
}

/// A running collector.
#[derive(Clone, Debug)]
pub struct Collector {
    /// Its address.
    pub address: SocketAddr,
    spans: Arc<Mutex<Vec<Collected>>>,
}

impl Collector {
    /// Starts a collector on any port.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start() -> std::io::Result<Collector> {
        Collector::start_at(([127, 0, 0, 1], 0).into()).await
    }

    /// Starts a collector at this address; it runs as long as the test.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start_at(address: SocketAddr) -> std::io::Result<Collector> {
        let listener = TcpListener::bind(address).await?;
        let collector = Collector { address: listener.local_addr()?, spans: Arc::default() };
        let service = TraceServiceServer::new(collector.clone());
        let serving = Server::builder().add_service(service);
        tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
        Ok(collector)
    }

    /// The received spans.
    #[must_use]
    pub fn spans(&self) -> Vec<Collected> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the server's span of this method in this trace, and returns it with all received spans of
    /// the trace. Steps end before their call does, so none comes later.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn call(&self, trace: &str, method: &str) -> (Collected, Vec<Collected>) {
        until_seen(format!("the span of {method} in the trace {trace}"), async || {
            let spans: Vec<_> = self.spans().into_iter().filter(|span| span.trace == trace).collect();
            let is_it = |span: &&Collected| span.kind == 2 && span.name.ends_with(&format!("/{method}"));
            match spans.iter().find(is_it).cloned() {
                Some(found) => Ok((found, spans)),
                None => Err(self.spans()),
            }
        })
        .await
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|of| of.scope_spans).flat_map(|of| of.spans).map(collected);
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn collected(span: Span) -> Collected {
    // OTLP's code 2 is an error.
    let failure = span.status.filter(|status| status.code == 2).map(|status| status.message);
    Collected {
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        time: (span.start_time_unix_nano, span.end_time_unix_nano),
        kind: span.kind,
        attributes: span.attributes.into_iter().map(attribute).collect(),
        failure,
    }
}

fn attribute(pair: KeyValue) -> (String, String) {
    let value = match pair.value.and_then(|AnyValue { value }| value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    (pair.key, value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
