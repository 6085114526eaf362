//! The span of each call: named by the method, below the caller's span, with the final gRPC code. A call's
//! steps are below it, and `subject.rs` adds its subject. Log lines written during the call have their own
//! span. It has the method's name, the call's number, and the ids of the call's subject once they are known.
//!
//! Names and attributes are those of OpenTelemetry's conventions for RPC ("Semantic conventions for gRPC")
//! and for Kubernetes.

use std::cell::Cell;
use std::error::Error;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use runtime_spans::{logged, span};
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::{Code, Status};
use tower::Service;
use tracing::field::Empty;
use tracing::{Instrument, Span, error_span};

/// The packages of known calls.
const PACKAGES: [&str; 2] = ["runtime.v1.", "runtime.v1alpha2."];

/// Longest name of a method, in bytes. The longest of CRI's has 24; longer names are no methods.
const METHOD_BYTES_MAX: usize = 64;

/// Number of the next call. It identifies the log lines of one call.
static CALLS: AtomicU64 = AtomicU64::new(1);

/// What spans say in the place of the other runtime's texts: those quote commands.
const UPSTREAM_SAID: &str = "the upstream runtime refused it; its log has the reason";

tokio::task_local! {
    /// The call answered by this task.
    static CALL: Call;
}

struct Call {
    span: Span,
    /// The span says why the call failed.
    is_described: Cell<bool>,
    /// The upstream has refused a part of it, and the answer may quote this.
    is_refused_upstream: Cell<bool>,
}

/// The span of the call answered by this task, if spans are collected.
pub(crate) fn current() -> Option<Span> {
    CALL.try_with(|call| call.span.clone()).ok().filter(|span| !span.is_disabled())
}

/// Wraps the services. Each call is in its span.
#[derive(Clone, Debug)]
pub(crate) struct Traced<S>(pub(crate) S);

impl<S, B> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some((service, rpc)) = method(request.uri().path()) else {
            return Box::pin(self.0.call(request));
        };
        let span = of_call(service, rpc);
        runtime_traces::adopt(&span, request.headers());
        // The level is that of errors, so that a log line has its call at every log level.
        let number = CALLS.fetch_add(1, Ordering::Relaxed);
        let log = error_span!("cri", rpc, call = number, pod = Empty, container = Empty);
        let mut end = CallEnd { span: span.clone(), is_answered: false };
        let answering = self.0.call(request);
        let work = async move {
            let answer = answering.await;
            if let Ok(answer) = &answer {
                end.answered(answer.headers());
            }
            answer
        };
        let (is_described, is_refused_upstream) = Default::default();
        let call = Call { span: span.clone(), is_described, is_refused_upstream };
        Box::pin(logged(log, CALL.scope(call, work).instrument(span)))
    }
}

/// Records why the call answered by this task failed. The answer has the whole text, and the span must not
/// quote a guest.
pub(crate) fn failed(code: Code, failure: &(dyn Error + 'static)) {
    // Outside of calls there is nothing to record.
    let _ = CALL.try_with(|call| {
        if is_fault(code) {
            runtime_spans::failed(&call.span, failure);
            call.is_described.set(true);
        }
    });
}

/// Service and method of a CRI path. `None` for other paths.
fn method(path: &str) -> Option<(&str, &str)> {
    let (service, rpc) = path.strip_prefix('/')?.split_once('/')?;
    let service_name = PACKAGES.iter().find_map(|package| service.strip_prefix(package))?;
    let is_known = matches!(service_name, "RuntimeService" | "ImageService");
    let is_name = !rpc.is_empty() && rpc.len() <= METHOD_BYTES_MAX;
    let is_plain = rpc.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_known && is_name && is_plain).then_some((service, rpc))
}

fn of_call(service: &str, rpc: &str) -> Span {
    span!(
        "call",
        otel.kind = "server",
        otel.name = format_args!("{service}/{rpc}"),
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = rpc,
        rpc.grpc.status_code = Empty,
        k8s.namespace.name = Empty,
        k8s.pod.name = Empty,
        k8s.pod.uid = Empty,
        k8s.container.name = Empty,
        k8s.container.restart_count = Empty,
        container.id = Empty,
        container.image.name = Empty,
        podvisor.pod.id = Empty,
        podvisor.pod.attempt = Empty,
        podvisor.handler = Empty,
    )
}

/// Records how the call ended, even if its caller disconnected.
struct CallEnd {
    span: Span,
    is_answered: bool,
}

impl CallEnd {
    fn answered(&mut self, headers: &HeaderMap) {
        self.is_answered = true;
        if self.span.is_disabled() {
            return;
        }
        // An answer has its code after its message. Only errors have one before.
        let status = Status::from_header_map(headers);
        let (code, message) =
            status.as_ref().map_or((Code::Ok, ""), |status| (status.code(), status.message()));
        self.span.record("rpc.grpc.status_code", code as i64);
        let said = CALL.try_with(|call| (call.is_described.get(), call.is_refused_upstream.get()));
        let (is_described, is_refused_upstream) = said.unwrap_or_default();
        if is_fault(code) && !is_described {
            let text = if is_refused_upstream { UPSTREAM_SAID } else { message };
            self.span.record("otel.status_description", text);
        }
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        if !self.is_answered {
            self.span.record("rpc.grpc.status_code", Code::Cancelled as i64);
        }
    }
}

/// Returns true if a server's span with this code has failed (the conventions' table for gRPC). All other
/// codes mean a caller's error.
fn is_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// A call to the upstream, in its own span below the call's. The request then names this span as its parent.
/// Outside of calls, and if spans are not collected, the request stays unchanged.
pub(crate) fn onward(path: &str, headers: &mut HeaderMap) -> Span {
    let Some((service, rpc)) = current().and_then(|_| method(path)) else { return Span::none() };
    let span = span!(
        "upstream",
        otel.kind = "client",
        otel.name = format_args!("{service}/{rpc}"),
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = rpc,
        rpc.grpc.status_code = Empty,
    );
    runtime_traces::inject(&span, headers);
    span
}

/// Records how a call to the upstream ended. For the calling side, each error is a failure. The text of an
/// error that the upstream has sent is not recorded.
pub(crate) fn onward_ended<T>(span: &Span, answer: &Result<T, Status>) {
    match answer {
        Ok(_) => {
            span.record("rpc.grpc.status_code", Code::Ok as i64);
        }
        Err(status) => {
            span.record("rpc.grpc.status_code", status.code() as i64);
            // Only a broken connection has a source: the upstream did not say this.
            if status.source().is_some() {
                span.record("otel.status_description", status.message());
                return;
            }
            span.record("otel.status_description", UPSTREAM_SAID);
            // Outside of calls there is no answer.
            let _ = CALL.try_with(|call| call.is_refused_upstream.set(true));
        }
    }
}

#[cfg(test)]
mod tests;
