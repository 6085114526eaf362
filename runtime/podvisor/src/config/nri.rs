//! Settings for plugins of the node (NRI).

use std::path::PathBuf;
use std::time::Duration;

use proto_nri::DEFAULT_SOCKET;
use runtime_cri::UnsupportedAdjustments;
use runtime_nri::NriConfig;
use serde::{Deserialize, Serialize};

/// Longest timeout, in seconds: a call of the kubelet ends after two minutes, and involves several plugins.
const TIMEOUT_SECONDS_MAX: u64 = 60;

/// Plugins of the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Nri {
    pub(crate) enabled: bool,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) connections: bool,
    pub(crate) plugin_dir: PathBuf,
    pub(crate) plugin_conf_dir: PathBuf,
    pub(crate) registration_timeout_seconds: u64,
    pub(crate) request_timeout_seconds: u64,
    pub(crate) unsupported: Unsupported,
}

/// How to treat adjustments by plugins that a VM does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unsupported {
    Refuse,
    Ignore,
}

impl Default for Nri {
    fn default() -> Self {
        Self {
            enabled: true,
            socket: None,
            connections: true,
            plugin_dir: "/opt/nri/plugins".into(),
            plugin_conf_dir: "/etc/nri/conf.d".into(),
            registration_timeout_seconds: 5,
            request_timeout_seconds: 2,
            unsupported: Unsupported::Refuse,
        }
    }
}

impl Nri {
    /// A key with an invalid value, and the reason.
    pub(super) fn wrong(&self) -> Option<(&'static str, String)> {
        let timeouts = [
            ("nri.registration_timeout_seconds", self.registration_timeout_seconds),
            ("nri.request_timeout_seconds", self.request_timeout_seconds),
        ];
        let wrong = timeouts.into_iter().find(|(_, seconds)| !(1..=TIMEOUT_SECONDS_MAX).contains(seconds));
        let (key, seconds) = wrong?;
        Some((key, format!("{seconds} seconds: must be from 1 to {TIMEOUT_SECONDS_MAX}")))
    }

    /// The configuration of plugins. `beside` is the default socket if another runtime may serve the usual
    /// one.
    pub(crate) fn config(&self, beside: Option<PathBuf>) -> NriConfig {
        let usual = || beside.unwrap_or_else(|| DEFAULT_SOCKET.into());
        NriConfig {
            runtime_name: "podvisor".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            socket: self.connections.then(|| self.socket.clone().unwrap_or_else(usual)),
            plugin_dir: self.plugin_dir.clone(),
            plugin_conf_dir: self.plugin_conf_dir.clone(),
            registration_timeout: Duration::from_secs(self.registration_timeout_seconds),
            request_timeout: Duration::from_secs(self.request_timeout_seconds),
        }
    }

    /// How to treat unsupported adjustments.
    pub(crate) fn unsupported(&self) -> UnsupportedAdjustments {
        match self.unsupported {
            Unsupported::Refuse => UnsupportedAdjustments::Refuse,
            Unsupported::Ignore => UnsupportedAdjustments::Ignore,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use crate::config::file::parse;

    fn config(text: &str) -> Config {
        parse(Path::new("x"), text).unwrap().config
    }

    #[test]
    fn the_usual_socket_is_left_to_another_runtime_of_the_node() {
        let socket = |text: &str| config(text).nri().socket;
        assert_eq!(socket(""), Some(DEFAULT_SOCKET.into()));
        assert_eq!(socket("[upstream]\nsocket = \"/c\"\n"), Some("/run/podvisor/nri.sock".into()));
        assert_eq!(socket("[upstream]\nsocket = \"/c\"\n[nri]\nsocket = \"/s\"\n"), Some("/s".into()));
        assert_eq!(socket("[nri]\nconnections = false\n"), None);
    }

    #[test]
    fn a_time_out_that_is_none_or_too_long_is_refused() {
        for (text, key) in [
            ("request_timeout_seconds = 0", "nri.request_timeout_seconds"),
            ("registration_timeout_seconds = 61", "nri.registration_timeout_seconds"),
        ] {
            let error = parse(Path::new("x"), &format!("[nri]\n{text}\n")).unwrap_err();
            let message = format!("{:#}", anyhow::Error::from(error));
            assert!(message.contains("must be from 1 to 60"), "{key}: {message}");
        }
        assert_eq!(config("").nri().request_timeout, Duration::from_secs(2));
    }
}
