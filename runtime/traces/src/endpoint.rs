//! The address of a collector, as the configuration names it. Pure.

use std::str::FromStr;

use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::Scheme;

/// The address of a collector with OTLP over gRPC in plaintext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

/// Why a text is no address of a collector.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EndpointError {
    /// Not in the required form.
    #[error("{text:?} is not of the form http://host:port")]
    Form {
        /// The text.
        text: String,
    },
    /// TLS, not supported.
    #[error("{text:?} asks for TLS, not supported here: use a collector on the node over http://")]
    Tls {
        /// The text.
        text: String,
    },
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let form = || EndpointError::Form { text: text.to_owned() };
        let uri: Uri = text.parse().map_err(|_| form())?;
        if uri.scheme() == Some(&Scheme::HTTPS) {
            return Err(EndpointError::Tls { text: text.to_owned() });
        }
        let bare = uri.path() == "/" && uri.query().is_none();
        let has_port = uri.port_u16().is_some_and(|port| port > 0);
        let is_named = uri.host().is_some_and(|host| !host.is_empty());
        let is_anonymous = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if uri.scheme() == Some(&Scheme::HTTP) && bare && has_port && is_named && is_anonymous {
            Ok(Endpoint(uri))
        } else {
            Err(form())
        }
    }
}

impl Endpoint {
    pub(crate) fn uri(&self) -> Uri {
        self.0.clone()
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_named_by_host_and_port() {
        for text in ["http://127.0.0.1:4317", "http://[::1]:4317", "http://collector.node:4317/"] {
            assert!(text.parse::<Endpoint>().is_ok(), "{text}");
        }
        for text in [
            "",
            "127.0.0.1:4317",
            "localhost:4317",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://127.0.0.1:99999",
            "http://:4317",
            "http://host:4317/v1/traces",
            "http://user:secret@host:4317",
            "grpc://host:4317",
            "unix:/run/collector.sock",
        ] {
            assert!(matches!(text.parse::<Endpoint>(), Err(EndpointError::Form { .. })), "{text}");
        }
        let error = "https://host:4317".parse::<Endpoint>().unwrap_err();
        assert!(error.to_string().contains("TLS"), "{error}");
    }
}
