//! The table `traces`: the collector of spans, and the share of traced calls.

use std::fmt;

use runtime_traces::TracesConfig;
use serde::{Deserialize, Serialize};

/// The collector of traces.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Traces {
    pub(crate) endpoint: Option<String>,
    pub(crate) sample: f64,
}

/// A key with an invalid value.
#[derive(Debug)]
pub(crate) struct WrongTraces {
    pub(super) key: &'static str,
    /// The reason, for people.
    pub(super) message: String,
}

impl fmt::Display for WrongTraces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl Default for Traces {
    fn default() -> Self {
        Self { endpoint: None, sample: 1.0 }
    }
}

impl Traces {
    /// The checked configuration; `None` if tracing is off.
    ///
    /// # Errors
    /// The collector's address or the share is invalid.
    pub(crate) fn resolved(&self) -> Result<Option<TracesConfig>, WrongTraces> {
        let Traces { endpoint, sample } = self;
        if !(0.0..=1.0).contains(sample) {
            let message = format!("{sample} is no share from 0 to 1");
            return Err(WrongTraces { key: "traces.sample", message });
        }
        let Some(endpoint) = endpoint else { return Ok(None) };
        let endpoint = endpoint.parse();
        let endpoint = endpoint.map_err(|error: runtime_traces::EndpointError| WrongTraces {
            key: "traces.endpoint",
            message: error.to_string(),
        })?;
        Ok(Some(TracesConfig { endpoint, sample: *sample, version: env!("CARGO_PKG_VERSION") }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::parse;
    use super::super::{Config, ConfigError};

    fn config(text: &str) -> Result<Config, ConfigError> {
        parse(Path::new("x"), &format!("[traces]\n{text}\n")).map(|loaded| loaded.config)
    }

    #[test]
    fn nothing_is_traced_without_a_collector() {
        assert!(Config::default().traces.resolved().unwrap().is_none());
        assert!(config("sample = 0.5").unwrap().traces.resolved().unwrap().is_none());
    }

    #[test]
    fn a_collector_is_an_address_and_a_share_is_from_0_to_1() {
        let traces =
            config("endpoint = \"http://127.0.0.1:4317\"").unwrap().traces.resolved().unwrap().unwrap();
        assert_eq!((traces.endpoint.to_string().as_str(), traces.sample), ("http://127.0.0.1:4317/", 1.0));
        for (text, why) in [
            ("endpoint = \"127.0.0.1:4317\"", "traces.endpoint: \"127.0.0.1:4317\" is not of the form"),
            ("endpoint = \"https://host:4317\"", "TLS, not supported"),
            ("sample = 1.5", "traces.sample: 1.5 is no share"),
            ("sample = -1.0", "traces.sample: -1 is no share"),
            ("sample = nan", "traces.sample: NaN is no share"),
        ] {
            let message = config(text).unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }
}
