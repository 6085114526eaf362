//! The guest's clock, steered after the host's. A guest only counts the ticks of its hardware. Without this
//! module its clock would drift away from the host's NTP-corrected clock, and stand still while the host is
//! suspended. No NTP daemon runs in the guest.
//!
//! | file | content |
//! |---|---|
//! | [`law`] | from an offset to a rate or a step: pure |
//! | [`offset`] | the clock's offset, by readings or by messages: pure |
//! | [`ptp`] | the host's clock, if KVM exposes it |
//!
//! If KVM does not expose the clock, the daemon's requests for usage and for statistics carry the host's time
//! instead. The daemon sends some every 32 s for that alone. They arrive some tens of milliseconds late, so
//! the clock is only corrected if its offset is larger than that.

mod law;
mod offset;
mod ptp;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_container::syscall;
use nix::time::ClockId;
use proto_agent::agent::{ClockReference, ClockStats};
use tokio::time::Instant;

use crate::clock::law::{Correction, Law};
use crate::clock::offset::{MESSAGE_ERROR_NS, Messages, Offset};
use crate::clock::ptp::{PtpClock, nanoseconds};

/// Time between two readings of the host's clock. A clock wrong by 50 millionths is then off by 1.6 ms, but
/// only at the first reading. Each reading wakes an idle guest.
const LOOK: Duration = Duration::from_secs(32);

/// The guest's clock and the state of its steering.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    host: Option<PtpClock>,
    messages: Messages,
    law: Law,
    /// The last measure, and the time of its correction.
    measured: Option<Offset>,
    corrected: Option<Instant>,
    rate: i64,
    steps: u64,
}

impl Clock {
    /// Sets the clock before any process could notice, and steers it from then on. `realtime_ns` is the
    /// host's time from its request, or 0 if the request has none.
    pub(crate) fn start(self: &Arc<Self>, realtime_ns: i64) -> io::Result<()> {
        let host = PtpClock::open();
        let offset = match &host {
            Some(host) => host.offset()?,
            None if realtime_ns <= 0 => return Ok(()),
            None => {
                let ns = realtime_ns.saturating_sub(nanoseconds(ClockId::CLOCK_REALTIME)?);
                Offset { ns, error_ns: MESSAGE_ERROR_NS }
            }
        };
        if offset.ns.saturating_abs() > offset.error_ns {
            syscall::step_clock(offset.ns)?;
        }
        let steered = host.is_some();
        {
            let mut state = self.state();
            state.host = host;
            state.corrected = Some(Instant::now());
        }
        if steered {
            tokio::spawn(Arc::clone(self).steer());
        }
        Ok(())
    }

    async fn steer(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut state = self.state();
            let Some(host) = &state.host else { return };
            match host.offset() {
                Ok(offset) => state.follow(offset),
                Err(error) => {
                    // The host's own clock has changed its source. Further readings would each add a line to
                    // the console.
                    tracing::warn!(%error, "the host's clock cannot be read any more; its messages are followed");
                    state.host = None;
                    return;
                }
            }
        }
    }

    /// Takes the host's time from a message, unless the host's clock is readable.
    pub(crate) fn heard(&self, realtime_ns: i64) {
        let mut state = self.state();
        if realtime_ns <= 0 || state.host.is_some() {
            return;
        }
        let Ok(now) = nanoseconds(ClockId::CLOCK_REALTIME) else { return };
        if let Some(offset) = state.messages.heard(realtime_ns, now) {
            state.follow(offset);
        }
    }

    /// The clock's offset from the host's, measured now or taken from the last measure.
    pub(crate) fn stats(&self) -> ClockStats {
        let state = self.state();
        let now = state.host.as_ref().and_then(|host| host.offset().ok());
        let measured = now.or(state.measured).unwrap_or_default();
        let reference = match (&state.host, state.measured) {
            (Some(_), _) => ClockReference::CLOCK_REFERENCE_PTP_KVM,
            (None, Some(_)) => ClockReference::CLOCK_REFERENCE_MESSAGES,
            (None, None) => ClockReference::CLOCK_REFERENCE_UNSPECIFIED,
        };
        ClockStats {
            reference: reference.into(),
            offset_ns: measured.ns,
            error_ns: u64::try_from(measured.error_ns).unwrap_or_default(),
            rate_ppb: state.rate,
            steps: state.steps,
            ..Default::default()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Corrects the clock after a measure.
    fn follow(&mut self, offset: Offset) {
        let now = Instant::now();
        let since = self.corrected.map_or(LOOK, |corrected| now - corrected);
        let correction = self.law.correct(offset.ns, offset.error_ns, since);
        self.measured = Some(offset);
        self.corrected = Some(now);
        if let Err(error) = self.apply(correction, offset) {
            tracing::warn!(%error, "the clock cannot be corrected");
        }
    }

    fn apply(&mut self, correction: Correction, offset: Offset) -> io::Result<()> {
        if correction.step_ns != 0 {
            syscall::step_clock(correction.step_ns)?;
            self.steps += 1;
            tracing::warn!(ns = correction.step_ns, "the clock was far off the host's and was stepped");
        }
        let left_ns =
            offset.error_ns.saturating_add(offset.ns.saturating_sub(correction.step_ns).saturating_abs());
        syscall::set_clock_rate(correction.rate, Duration::from_nanos(left_ns.unsigned_abs()))?;
        self.rate = correction.rate;
        Ok(())
    }
}
