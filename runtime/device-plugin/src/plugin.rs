//! The plugin's life cycle: it claims the kubelet's directory, serves there and registers. If a step is
//! undone, it repeats the step.
//!
//! ```text
//!            directory there,           socket made            kubelet.sock there,
//!            not yet claimed                                   Register answered
//!  waiting ──────────────────► claimed ─────────────► serving ────────────────────► registered
//!     ▲                         │    ▲                 │    ▲                            │
//!     │                         │    └─────────────────┘    └────────────────────────────┤
//!     │                         │     socket removed         kubelet.sock gone or new,   │
//!     └─────────────────────────┘                            no watcher of the list      │
//!          directory gone or new   ◄─────────────────────────────────────────────────────┘
//! ```
//!
//! A starting kubelet removes the sockets of all plugins and creates its own again. Each step is checked
//! again after each change of the directory and from time to time. Each reason for waiting is logged once.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::claim::{Claim, ClaimError};
use crate::config::Config;
use crate::count::VMS_MAX;
use crate::devices::Usable;
use crate::health::Health;
use crate::identity::Identity;
use crate::notify::Notify;
use crate::probe::{NodeProbe, Probe};
use crate::register::{RegisterError, register};
use crate::socket::{NAME, Socket};
use crate::tuning::Tuning;

/// Name of the kubelet's socket in its directory.
const KUBELET: &str = "kubelet.sock";

/// Reason to register again at a kubelet after a successful registration.
const UNWATCHED: &str = "the kubelet does not watch the devices, and is asked again";

/// Longest path of a unix socket, in bytes (unix(7)).
const SOCKET_BYTES_MAX: usize = 107;

/// A fatal failure of the plugin.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The number of VMs is out of its bounds.
    #[error("a node lists 1 to {VMS_MAX} VMs, and not {0}")]
    Count(u16),
    /// The socket's path would be too long.
    #[error("{} with a socket's name is longer than a socket's path may be ({SOCKET_BYTES_MAX} bytes)", .0.display())]
    TooLong(PathBuf),
    /// Another plugin holds the directory, or it cannot be locked.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// Serves as the node's plugin until `stop` resolves. Then it removes the socket and ends the kubelet's
/// lists.
///
/// # Errors
/// The configuration is unusable, another plugin serves in the directory, or the directory cannot be locked.
/// All other failures are retried.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), PluginError> {
    run_with(config, Tuning::default(), NodeProbe, stop).await
}

pub(crate) async fn run_with(
    config: Config,
    tuning: Tuning,
    probe: impl Probe,
    stop: impl Future<Output = ()>,
) -> Result<(), PluginError> {
    if !(1..=VMS_MAX).contains(&config.vms) {
        return Err(PluginError::Count(config.vms));
    }
    if config.directory.join(NAME).as_os_str().as_bytes().len() > SOCKET_BYTES_MAX {
        return Err(PluginError::TooLong(config.directory));
    }
    let config = Arc::new(config);
    let mut health = Health::new(config.clone(), tuning, probe);
    let mut plugin = Plugin::new(config, tuning, health.published());
    let work = async {
        // The claim comes first, so a second plugin is refused at once. The probe comes before the first
        // list, so that list is right.
        plugin.is_claimed().await?;
        health.look().await;
        tokio::select! {
            error = plugin.keep_registered() => Err(error),
            () = health.keep_looking() => Ok(()),
        }
    };
    let outcome = tokio::select! {
        biased;
        () = stop => Ok(()),
        ended = work => ended,
    };
    plugin.close().await;
    outcome
}

struct Plugin {
    config: Arc<Config>,
    tuning: Tuning,
    usable: watch::Receiver<Usable>,
    watchers: watch::Sender<usize>,
    backoff: Backoff,
    claim: Option<Claim>,
    notify: Option<Notify>,
    socket: Option<Socket>,
    registration: Option<Registration>,
    refusal: Option<Refusal>,
    logged: String,
}

/// A successful registration.
struct Registration {
    /// The kubelet's socket at that time.
    kubelet: Identity,
    /// Start of the time without a watcher of the list.
    unwatched: Option<Instant>,
}

/// A registration that failed.
struct Refusal {
    /// The kubelet's socket at that time.
    kubelet: Identity,
    /// Time of the next attempt.
    again: Instant,
}

impl Plugin {
    fn new(config: Arc<Config>, tuning: Tuning, usable: watch::Receiver<Usable>) -> Plugin {
        Plugin {
            config,
            usable,
            watchers: watch::Sender::new(0),
            backoff: Backoff::new(tuning.retry_first, tuning.retry_max),
            tuning,
            claim: None,
            notify: None,
            socket: None,
            registration: None,
            refusal: None,
            logged: String::new(),
        }
    }

    /// Returns only on a fatal error.
    async fn keep_registered(&mut self) -> PluginError {
        let mut watchers = self.watchers.subscribe();
        loop {
            let rest = match self.advance().await {
                Ok(rest) => rest,
                Err(error) => return error,
            };
            let changed = async {
                match &self.notify {
                    Some(notify) => notify.changed().await,
                    None => std::future::pending().await,
                }
                tokio::time::sleep(self.tuning.settle).await;
            };
            tokio::select! {
                () = changed => {}
                _ = watchers.changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// Takes all steps possible now. Returns the time until the next check, if nothing changes before.
    async fn advance(&mut self) -> Result<Duration, PluginError> {
        if !self.is_claimed().await? || !self.is_serving().await {
            return Ok(self.tuning.poll_every);
        }
        let kubelet = match Identity::at(&self.config.directory.join(KUBELET)) {
            Ok(Some(kubelet)) => kubelet,
            missing => {
                self.registration = None;
                let path = self.config.directory.join(KUBELET);
                match missing {
                    Err(error) => self.warn(format!("{}: {error}", path.display())),
                    Ok(_) => self.wait(format!("waiting for a kubelet: there is no {}", path.display())),
                }
                return Ok(self.tuning.poll_every);
            }
        };
        if let Some(rest) = self.rest_of_registration(kubelet) {
            return Ok(rest);
        }
        Ok(self.register(kubelet).await)
    }

    /// Returns true if the directory exists and is claimed by this plugin.
    async fn is_claimed(&mut self) -> Result<bool, PluginError> {
        let directory = self.config.directory.clone();
        if self.claim.as_ref().is_some_and(|claim| claim.is_on(&directory)) {
            return Ok(true);
        }
        self.close().await;
        match Claim::take(&directory, &directory.join(NAME)).await {
            Ok(claim) => self.claim = Some(claim),
            Err(ClaimError::Disk { source, .. }) if source.kind() == ErrorKind::NotFound => {
                self.wait(format!("waiting for a kubelet: there is no {}", directory.display()));
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if self.tuning.notify {
            match Notify::on(&directory) {
                Ok(notify) => self.notify = Some(notify),
                Err(error) => warn!(
                    directory = %directory.display(), %error, every = ?self.tuning.poll_every,
                    "changes are not notified; a starting kubelet is seen later"
                ),
            }
        }
        Ok(true)
    }

    /// Returns true if the plugin's socket exists and is served.
    async fn is_serving(&mut self) -> bool {
        if self.socket.as_ref().is_some_and(Socket::is_there) {
            return true;
        }
        self.registration = None;
        self.refusal = None;
        if let Some(socket) = self.socket.take() {
            let watched = *self.watchers.borrow() > 0;
            socket.stop(self.tuning.drain).await;
            if watched {
                // If a kubelet sees the old list's end after the new registration, it takes it for the new
                // list's end.
                tokio::time::sleep(self.tuning.settle).await;
            }
        }
        let path = self.config.directory.join(NAME);
        match Socket::serve(&path, self.config.clone(), self.usable.clone(), self.watchers.clone()) {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => self.warn(format!("cannot serve on {}: {error}", path.display())),
        }
        self.socket.is_some()
    }

    /// Returns the time until a registration at this kubelet needs a check. `None` if a registration is
    /// needed now.
    fn rest_of_registration(&mut self, kubelet: Identity) -> Option<Duration> {
        let now = Instant::now();
        if let Some(refusal) = self.refusal.as_ref().filter(|refusal| refusal.kubelet == kubelet) {
            let rest = refusal.again.saturating_duration_since(now);
            return (!rest.is_zero()).then_some(rest);
        }
        let registration =
            self.registration.as_mut().filter(|registration| registration.kubelet == kubelet)?;
        if *self.watchers.borrow() > 0 {
            registration.unwatched = None;
            self.backoff.reset();
            if self.logged == UNWATCHED {
                info!("the kubelet watches the devices");
                self.logged.clear();
            }
            return Some(self.tuning.poll_every);
        }
        let since = *registration.unwatched.get_or_insert(now);
        let rest = (since + self.tuning.unwatched).saturating_duration_since(now);
        if rest.is_zero() {
            self.registration = None;
            self.warn(UNWATCHED.into());
            return None;
        }
        Some(rest.min(self.tuning.poll_every))
    }

    /// Registers. Returns the time until the next check.
    async fn register(&mut self, kubelet: Identity) -> Duration {
        let socket = self.config.directory.join(KUBELET);
        let deadline = self.tuning.register_deadline;
        match register(&socket, NAME, &self.config.resource, deadline).await {
            Ok(version) => {
                // A kubelet that repeatedly accepts the plugin without watching is logged only once.
                if self.logged != UNWATCHED {
                    let (resource, vms) = (&self.config.resource, self.config.vms);
                    info!(%resource, vms, version, "registered with the kubelet");
                    self.logged.clear();
                }
                self.refusal = None;
                self.registration = Some(Registration { kubelet, unwatched: Some(Instant::now()) });
                self.tuning.unwatched
            }
            Err(error) => {
                let pause = match &error {
                    RegisterError::Refused(_) => self.tuning.refused_retry,
                    RegisterError::Unreachable(_) | RegisterError::Hung(_) => self.backoff.pause(),
                };
                self.warn(error.to_string());
                self.refusal = Some(Refusal { kubelet, again: Instant::now() + pause });
                pause
            }
        }
    }

    /// Releases all resources.
    async fn close(&mut self) {
        self.registration = None;
        self.notify = None;
        if let Some(socket) = self.socket.take() {
            socket.stop(self.tuning.drain).await;
        }
        self.claim = None;
    }

    fn wait(&mut self, text: String) {
        if self.logged != text {
            info!("{text}");
            self.logged = text;
        }
    }

    fn warn(&mut self, text: String) {
        if self.logged != text {
            warn!("{text}");
            self.logged = text;
        }
    }
}
