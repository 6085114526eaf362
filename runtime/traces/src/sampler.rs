//! The choice of traced calls. The caller's decision takes precedence. Of calls without a parent, a share is
//! traced. Work outside of a call is not traced: it would only produce many traces of one span.

use opentelemetry::trace::{Link, SpanKind, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{ParentBasedSampler, Sampler, SamplingDecision, SamplingResult, ShouldSample};

/// Samples calls without a parent by this share, 0 to 1.
pub(crate) fn of_calls(share: f64) -> ParentBasedSampler {
    Sampler::parent_based(Roots(Sampler::TraceIdRatioBased(share)))
}

/// Spans without a parent.
#[derive(Clone, Debug)]
struct Roots(Sampler);

impl ShouldSample for Roots {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let mut result = self.0.should_sample(parent, trace_id, name, kind, attributes, links);
        if *kind != SpanKind::Server {
            result.decision = SamplingDecision::Drop;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceState};

    use super::*;

    fn is_sampled(share: f64, parent: Option<TraceFlags>, kind: &SpanKind) -> bool {
        let trace_id = TraceId::from(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        let parent = parent.map(|flags| {
            let state = TraceState::default();
            let context = SpanContext::new(trace_id, SpanId::from(7), flags, true, state);
            Context::new().with_remote_span_context(context)
        });
        let result = of_calls(share).should_sample(parent.as_ref(), trace_id, "x", kind, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    #[test]
    fn the_callers_decision_holds_whatever_the_share() {
        for share in [0.0, 1.0] {
            assert!(is_sampled(share, Some(TraceFlags::SAMPLED), &SpanKind::Server));
            assert!(!is_sampled(share, Some(TraceFlags::NOT_SAMPLED), &SpanKind::Server));
        }
    }

    #[test]
    fn of_calls_without_a_parent_the_share_is_traced_and_of_other_work_nothing() {
        assert!(is_sampled(1.0, None, &SpanKind::Server));
        assert!(!is_sampled(0.0, None, &SpanKind::Server));
        for kind in [SpanKind::Internal, SpanKind::Client] {
            assert!(!is_sampled(1.0, None, &kind));
            assert!(is_sampled(0.0, Some(TraceFlags::SAMPLED), &kind));
        }
    }
}
