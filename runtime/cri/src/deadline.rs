//! Deadlines of calls. A call past its deadline is answered with `DeadlineExceeded`, as in gRPC. tonic's own
//! server answers `Cancelled`, and that may reach a client before its own timer fires.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower::Service;

/// Header with the caller's timeout ("Requests" in gRPC's PROTOCOL-HTTP2.md).
const HEADER: &str = "grpc-timeout";

/// Lead of our timer over tonic's. Both start with the call, and timers count milliseconds.
const AHEAD: Duration = Duration::from_millis(2);

/// Wraps the services. Each call takes no longer than its caller's timeout.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines<S>(pub(crate) S);

impl<S, B> Service<Request<B>> for Deadlines<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limit = limit(request.headers());
        let answering = self.0.call(request);
        let Some(limit) = limit else { return Box::pin(answering) };
        // The timer starts here, and not on the first poll.
        let answering = timeout(limit.saturating_sub(AHEAD), answering);
        Box::pin(async move {
            answering.await.unwrap_or_else(|_| {
                let late = format!("the call took longer than its caller waits, {limit:?}");
                Ok(Status::deadline_exceeded(late).into_http())
            })
        })
    }
}

/// The caller's timeout, if it has a readable one.
fn limit(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // At most eight digits: they overflow in no unit.
    let plain = !digits.is_empty() && digits.len() <= 8 && digits.bytes().all(|digit| digit.is_ascii_digit());
    let count: u64 = if plain { digits.parse().ok()? } else { return None };
    match unit {
        "H" => Some(Duration::from_secs(count * 60 * 60)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tonic::Code;
    use tower::service_fn;

    use super::*;

    /// Sends a request with this header to a service needing a second. Returns the answer's status if it
    /// comes at once.
    async fn call(header: Option<&str>) -> Option<Code> {
        let mut services = Deadlines(service_fn(|_: Request<()>| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }));
        let mut request = Request::new(());
        if let Some(header) = header {
            request.headers_mut().insert(HEADER, header.parse().unwrap());
        }
        let answer = services.call(request).await.unwrap();
        Status::from_header_map(answer.headers()).map(|status| status.code())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_longer_than_its_caller_waits_has_exceeded_its_deadline() {
        for header in ["0n", "10u", "999m", "1S"] {
            assert_eq!(call(Some(header)).await, Some(Code::DeadlineExceeded), "{header}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_in_time_or_without_a_limit_that_can_be_read_is_answered() {
        for header in [None, Some("1100m"), Some("2S"), Some("99999999H"), Some("M"), Some("1"), Some("+1m")]
        {
            assert_eq!(call(header).await, None, "{header:?}");
        }
        for header in ["", "123456789n", "1 m", "1s"] {
            assert_eq!(call(Some(header)).await, None, "{header:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn our_clock_is_ahead_of_one_that_starts_with_the_same_call() {
        let mut services = Deadlines(service_fn(|_: Request<()>| std::future::pending()));
        let request = Request::builder().header(HEADER, "50m").body(()).unwrap();
        let answering: Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>> =
            services.call(request);
        assert!(timeout(Duration::from_millis(50), answering).await.is_ok());
    }
}
