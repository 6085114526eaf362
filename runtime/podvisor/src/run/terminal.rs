//! The terminal of a run. Its session may break while the container goes on: the daemon restarts, or this
//! side reads too slowly. Such an end is not the container's. The session is made again, or the pod is left
//! as it is.
//!
//! ```text
//!   attach ──► session ──► the container has ended ──► its code
//!     ▲           │ broken
//!     │           ▼
//!     └────── it still runs ──► the daemon stays away ──► the pod goes on without this command
//! ```

use std::cell::Cell;
use std::error::Error as _;
use std::rc::Rc;

use anyhow::{Context, anyhow};
use proto_cri::v1;
use tonic::Code;

use super::container::{AWAY_INTERVAL, Run, container_status, patiently};
use crate::attach;
use crate::client::refused;
use crate::session::{self, Ended, Noted, Wanted};
use crate::show::{escape, out};

/// Broken sessions in a row without any output before the pod is left. A daemon that serves no session to its
/// end will not serve the next one.
const BROKEN_MAX: u32 = 5;

impl Run<'_> {
    /// Connects the terminal until the container ends. The session begins after the container: the output of
    /// a short command may be over by then, or the whole command. The log has it.
    pub(super) async fn connect_terminal(
        &mut self,
        wanted: Wanted,
        container_id: String,
    ) -> anyhow::Result<Ended> {
        let mut ends = session::Ends::own().context("standard input")?;
        let has_output = Rc::new(Cell::new(false));
        ends.stdout = Box::new(Noted { output: ends.stdout, has_output: Rc::clone(&has_output) });
        let (mut has_printed, mut broken) = (false, 0);
        loop {
            let url = match self.session_url(&container_id, wanted).await {
                Ok(Some(url)) => url,
                // The container has ended already, and all its output is in the log.
                Ok(None) => return self.follow(container_id, !has_printed).await,
                // A refusal by the daemon: nobody has seen anything of this container.
                Err(status) if broken == 0 && status.source().is_none() => return Err(refused(status)),
                Err(status) => return Err(self.leave(&refused(status))),
            };
            has_output.set(false);
            let outcome = session::carry_between(&url, wanted, &self.args.trust, &mut ends).await;
            has_printed |= has_output.get();
            let error = match outcome {
                Ok(Ended::Exited(_)) => return self.follow(container_id, !has_printed).await,
                Ok(Ended::Signalled(signal)) => {
                    self.stop(&container_id).await?;
                    return Ok(Ended::Signalled(signal));
                }
                Ok(Ended::Detached) => return Ok(Ended::Detached),
                Err(error) if session::is_of_own_streams(&error) => return Err(error),
                Err(error) => error,
            };
            broken = if has_output.get() { 1 } else { broken + 1 };
            if !self.still_runs(&container_id).await? {
                if has_printed {
                    out::complain(escape::line(&format!("{error:#}; the end of the output may be missing")));
                }
                return self.follow(container_id, !has_printed).await;
            }
            if broken > BROKEN_MAX {
                return Err(self.leave(&error));
            }
            let again = format!("{error:#}; attaching again, and some output may be missing here");
            out::complain(escape::line(&again));
            if let Some(signal) = self.pause().await {
                self.stop(&container_id).await.map_err(|error| self.leave(&error))?;
                return Ok(Ended::Signalled(signal));
            }
        }
    }

    /// Returns the URL of a session. `None` if the container has ended. Waits for a restarting daemon.
    async fn session_url(
        &mut self,
        container_id: &str,
        wanted: Wanted,
    ) -> Result<Option<String>, tonic::Status> {
        let client = &self.client;
        let asking = async || attach::url(&mut client.clone(), container_id, wanted).await;
        match patiently(self.private, Some(&mut self.signals), asking).await {
            Ok(url) => Ok(Some(url)),
            Err(status) if status.code() == Code::FailedPrecondition => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Whether the container has not ended. Leaves the pod if the daemon does not say so.
    async fn still_runs(&mut self, container_id: &str) -> anyhow::Result<bool> {
        let client = &self.client;
        let asking = async || container_status(client, container_id).await;
        match patiently(self.private, Some(&mut self.signals), asking).await {
            Ok(status) => Ok(status.unwrap_or_default().state() != v1::ContainerState::ContainerExited),
            // Somebody has removed it.
            Err(status) if status.code() == Code::NotFound => Err(refused(status)),
            Err(status) => Err(self.leave(&refused(status))),
        }
    }

    /// Waits a moment before the next session. Returns a signal that came meanwhile.
    async fn pause(&mut self) -> Option<u8> {
        tokio::select! {
            biased;
            () = self.signals.next() => self.signals.latest(),
            () = tokio::time::sleep(AWAY_INTERVAL) => None,
        }
    }

    /// Leaves the pod as it is, and returns the error for that. A private daemon ends with this command, and
    /// its pod with it.
    fn leave(&mut self, why: &anyhow::Error) -> anyhow::Error {
        if self.private {
            return anyhow!("{why:#}");
        }
        self.goes_on = true;
        let (flags, pod) = (if self.args.interactive { "-it" } else { "-t" }, &self.pod);
        anyhow!("{why:#}; pod {pod} goes on, and `podvisor attach {flags} {pod}` connects to it again")
    }
}
