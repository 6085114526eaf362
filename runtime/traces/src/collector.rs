//! The collector, as it is called: OTLP over gRPC. Each call has a deadline, and each answer is checked.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::endpoint::Endpoint;

/// How long a call may take: OTLP's default (OTEL_EXPORTER_OTLP_TIMEOUT).
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How long connecting may take.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// Longest answer, in bytes: an answer is a number and a sentence.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A receiver of spans.
pub(crate) trait Collector: Send + 'static {
    /// Sends spans. Returns the number of rejected ones, and the reason.
    ///
    /// # Errors
    /// The fate of the spans is unknown.
    fn send(&mut self, spans: Vec<SpanData>) -> impl Future<Output = Result<Rejected, Status>> + Send;
}

/// The rejected part of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) spans: u64,
    pub(crate) why: String,
}

/// A collector on the network.
pub(crate) struct OverGrpc {
    client: TraceServiceClient<Channel>,
    resource: ResourceAttributesWithSchema,
}

impl OverGrpc {
    /// Dials nothing yet. Must be called within a Tokio runtime.
    pub(crate) fn new(endpoint: &Endpoint, resource: &Resource) -> OverGrpc {
        let channel = tonic::transport::Endpoint::from(endpoint.uri())
            .connect_timeout(CONNECTS_WITHIN)
            .timeout(ANSWERS_WITHIN)
            .connect_lazy();
        let client = TraceServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        OverGrpc { client, resource: resource.into() }
    }
}

impl Collector for OverGrpc {
    async fn send(&mut self, spans: Vec<SpanData>) -> Result<Rejected, Status> {
        let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
        let call = self.client.export(ExportTraceServiceRequest { resource_spans });
        // The channel's own limit excludes the time before a connection.
        let answer = tokio::time::timeout(ANSWERS_WITHIN, call).await;
        let late = |_| Status::deadline_exceeded(format!("no answer within {} s", ANSWERS_WITHIN.as_secs()));
        let answer = answer.map_err(late)??.into_inner().partial_success.unwrap_or_default();
        let spans = u64::try_from(answer.rejected_spans).unwrap_or_default();
        Ok(Rejected { spans, why: answer.error_message })
    }
}

/// Whether the same spans may be sent once more (OTLP 1.x, "Failures" of OTLP/gRPC).
pub(crate) fn may_be_repeated(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}
