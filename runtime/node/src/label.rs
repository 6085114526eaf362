//! The node's label in the cluster. RuntimeClasses find nodes with Podvisor by it. The change needs only two
//! calls of the Kubernetes API, with the token and certificate authority available to every pod with a
//! service account.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Certificate, Client, Response};

/// The label of a node with Podvisor.
const LABEL: &str = "podvisor.io/runtime";

/// Directory of a pod's service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Bytes shown of a refusal.
const REFUSAL_BYTES_MAX: usize = 1024;

/// The API server of the cluster, and the right to ask it.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Address, as `https://10.96.0.1:443`.
    server: String,
    /// Directory of `token` and `ca.crt`.
    account: PathBuf,
}

/// A failure to change the node's label.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// A file of the service account is missing.
    #[error("cannot read {} of the pod's service account", path.display())]
    Account {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// The node's name is invalid.
    #[error("{0:?} is no name of a node")]
    Name(String),
    /// The server was not reached.
    #[error("cannot ask the API server at {server}")]
    Ask {
        /// The server's address.
        server: String,
        /// The client's reason.
        source: reqwest::Error,
    },
    /// The server refused.
    #[error("the API server refuses to label {node}: {status}: {said}")]
    Refused {
        /// The node.
        node: String,
        /// HTTP's status.
        status: reqwest::StatusCode,
        /// The server's words.
        said: String,
    },
}

impl Cluster {
    /// The cluster of this process's pod, from its environment; `None` outside of a cluster.
    #[must_use]
    pub fn of_this_pod(variable: impl Fn(&str) -> Option<String>) -> Option<Cluster> {
        let host = variable("KUBERNETES_SERVICE_HOST").filter(|host| !host.is_empty())?;
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".into());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Some(Cluster { server: format!("https://{host}:{port}"), account: ACCOUNT.into() })
    }

    /// Adds the label for Podvisor to the node, or removes it. A correct label stays as it is.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn label(&self, node: &str, has_podvisor: bool) -> Result<(), LabelError> {
        // RFC 1123 subdomains (apimachinery's validation of node names), so the name is one part of the
        // address.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if node.is_empty() || node.len() > 253 || node.starts_with('.') || !node.chars().all(plain) {
            return Err(LabelError::Name(node.to_owned()));
        }
        let token = String::from_utf8_lossy(&self.file("token")?).trim().to_owned();
        let value = if has_podvisor { serde_json::json!("true") } else { serde_json::Value::Null };
        let patch = serde_json::json!({ "metadata": { "labels": { LABEL: value } } });
        let ask = |source| LabelError::Ask { server: self.server.clone(), source };
        let response = self
            .client()?
            .patch(format!("{}/api/v1/nodes/{node}?fieldManager=podvisor", self.server))
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string())
            .send()
            .await
            .map_err(ask)?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        Err(LabelError::Refused { node: node.to_owned(), status, said: words(response).await })
    }

    fn client(&self) -> Result<Client, LabelError> {
        // A client needs a crypto provider of the process. If there is one already, this fails harmlessly.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ask = |source| LabelError::Ask { server: self.server.clone(), source };
        let mut client =
            Client::builder().timeout(LIMIT).no_proxy().redirect(reqwest::redirect::Policy::none());
        if self.server.starts_with("https:") {
            let authorities = Certificate::from_pem_bundle(&self.file("ca.crt")?).map_err(ask)?;
            client = client.tls_certs_only(authorities);
        }
        client.build().map_err(ask)
    }

    fn file(&self, name: &str) -> Result<Vec<u8>, LabelError> {
        let path = self.account.join(name);
        std::fs::read(&path).map_err(|source| LabelError::Account { path, source })
    }

    /// A server without TLS, for tests.
    #[cfg(test)]
    fn plain(server: String, account: &std::path::Path) -> Cluster {
        Cluster { server, account: account.to_owned() }
    }
}

/// The message of a refusal, as far as it is short.
async fn words(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(piece)) = response.chunk().await
    {
        bytes.extend_from_slice(&piece);
    }
    let status: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let message = status.and_then(|status| status.get("message")?.as_str().map(str::to_owned));
    bytes.truncate(REFUSAL_BYTES_MAX);
    message.unwrap_or_else(|| String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::Path;

    use super::*;

    /// Answers one request; returns the answer's outcome and the request.
    async fn asked(answer: &'static str, node: &str, has: bool) -> (Result<(), LabelError>, String) {
        let account = tempfile::tempdir().unwrap();
        std::fs::write(account.path().join("token"), "secret\n").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while !request.ends_with(b"}}}") {
                let count = stream.read(&mut piece).unwrap();
                request.extend_from_slice(&piece[..count]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        let outcome = Cluster::plain(server, account.path()).label(node, has).await;
        (outcome, serving.join().unwrap())
    }

    #[tokio::test]
    async fn a_node_gets_its_label_and_loses_it() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        let (outcome, request) = asked(ok, "node-1.example", true).await;
        outcome.unwrap();
        assert!(request.starts_with("PATCH /api/v1/nodes/node-1.example?"), "{request}");
        assert!(
            request.contains("Bearer secret\r\n") && request.contains("application/merge-patch+json"),
            "{request}"
        );
        assert!(request.ends_with(r#"{"metadata":{"labels":{"podvisor.io/runtime":"true"}}}"#), "{request}");
        let (outcome, request) = asked(ok, "node-1", false).await;
        outcome.unwrap();
        assert!(request.ends_with(r#"{"podvisor.io/runtime":null}}}"#), "{request}");
    }

    #[tokio::test]
    async fn a_refusal_is_reported_with_the_servers_words_and_no_more() {
        let denied =
            "HTTP/1.1 403 Forbidden\r\ncontent-length: 31\r\n\r\n{\"message\":\"nodes is forbidden\"}";
        let (outcome, _) = asked(denied, "n", true).await;
        let said = outcome.unwrap_err().to_string();
        assert!(said.contains("403") && said.contains("nodes is forbidden"), "{said}");
        let redirected = "HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        assert!(asked(redirected, "n", true).await.0.unwrap_err().to_string().contains("307"));
    }

    #[tokio::test]
    async fn a_name_that_would_change_the_address_is_refused() {
        let cluster = Cluster::plain("http://127.0.0.1:1".into(), Path::new("/none"));
        for name in ["", "..", "a/b", "a?b", "A", "a%2f"] {
            assert!(matches!(cluster.label(name, true).await, Err(LabelError::Name(_))), "{name:?}");
        }
        assert!(matches!(cluster.label("a", true).await, Err(LabelError::Account { .. })));
    }

    #[test]
    fn the_server_is_the_one_of_the_pods_environment() {
        let of = |host: &'static str| {
            Cluster::of_this_pod(move |name| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.into()),
                "KUBERNETES_SERVICE_PORT" => Some("6443".into()),
                _ => None,
            })
        };
        assert_eq!(of("10.96.0.1").unwrap().server, "https://10.96.0.1:6443");
        assert_eq!(of("fd00::1").unwrap().server, "https://[fd00::1]:6443");
        assert!(of("").is_none() && Cluster::of_this_pod(|_| None).is_none());
    }
}
