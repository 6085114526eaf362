//! Traces of this process: made once at the start, if a collector is configured.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanLimits};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::collector::OverGrpc;
use crate::counters;
use crate::endpoint::Endpoint;
use crate::export::Exporting;
use crate::queue;
use crate::sampler;

/// Attributes of one span: a call's are some twenty.
const ATTRIBUTES_MAX: u32 = 32;

/// The configuration of traces.
#[derive(Clone, Debug)]
pub struct TracesConfig {
    /// The collector.
    pub endpoint: Endpoint,
    /// The share of traced calls among those without a parent, 0 to 1.
    pub sample: f64,
    /// The version of this program, for collectors.
    pub version: &'static str,
}

/// The source of spans. They gather in a queue until [`Traces::export`].
#[derive(Clone, Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    resource: Resource,
    endpoint: Endpoint,
    /// Receiver of the queue, until it is taken.
    spans: Arc<Mutex<Option<mpsc::Receiver<SpanData>>>>,
}

impl Traces {
    /// Makes the source. Nothing is dialled, and no thread begun.
    #[must_use]
    pub fn new(config: TracesConfig) -> Traces {
        counters::register();
        let (queue, spans) = queue::queue();
        // Nothing of the environment: the configuration file says everything.
        let resource = Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.name", "podvisor"),
                KeyValue::new("service.version", config.version),
                KeyValue::new("host.name", host_name()),
            ])
            .build();
        // Spans have no events and no links.
        let limits = SpanLimits {
            max_attributes_per_span: ATTRIBUTES_MAX,
            max_events_per_span: 0,
            max_links_per_span: 0,
            ..SpanLimits::default()
        };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_sampler(sampler::of_calls(config.sample))
            .with_span_limits(limits)
            .with_resource(resource.clone())
            .build();
        Traces { provider, resource, endpoint: config.endpoint, spans: Arc::new(Mutex::new(Some(spans))) }
    }

    /// The layer for spans of calls. It takes nothing of the log.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        layer(&self.provider)
    }

    /// Sends spans from now on, on threads of this runtime. A second call sends nothing.
    pub fn export(&self, runtime: &Handle) -> Option<Exporting> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let _guard = runtime.enter();
        let collector = OverGrpc::new(&self.endpoint, &self.resource);
        Some(Exporting::begin(spans, self.endpoint.to_string(), collector))
    }
}

/// A layer over any provider.
pub(crate) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("podvisor"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false)
        .with_filter(filter_fn(runtime_spans::is_of_calls).with_max_level_hint(LevelFilter::INFO))
}

/// The host's name; empty if it is not available.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

#[cfg(test)]
mod tests;
