//! The server's side of TLS: its certificate and key, read again after a change, so that an operator can
//! rotate them. Nothing here decides about clients: a client is admitted by its URL's token.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{Acceptor, NoServerSessionStorage, ParsedCertificate};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// The only protocol with upgrades, for both sides to agree on.
pub(crate) const ALPN: &[u8] = b"http/1.1";

/// Longest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Paths of the server's certificate and key.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate and the intermediate ones up to its authority, in PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM.
    pub key: PathBuf,
}

/// Reason why a server cannot use TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("reading {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A file has other content.
    #[error("{} has no {what} in PEM", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The missing content.
        what: &'static str,
    },
    /// The certificate and the key do not match, or are of an unsupported kind.
    #[error("{} and {} cannot be used", files.certificate.display(), files.key.display())]
    Pair {
        /// The two files.
        files: Tls,
        /// The TLS library's reason.
        source: rustls::Error,
    },
    /// The certificate does not name the server's address, so clients would refuse it.
    #[error("{} does not name {address}, but URLs do: it needs this IP address among its alternative names", path.display())]
    Name {
        /// The certificate.
        path: PathBuf,
        /// The server's address.
        address: IpAddr,
        /// The TLS library's reason.
        source: rustls::Error,
    },
}

impl Tls {
    /// Checks that a server at this address could use the files in their current form.
    ///
    /// # Errors
    /// A file is missing, or a server at the address could not use it.
    pub fn check(&self, address: IpAddr) -> Result<(), TlsError> {
        self.configure(&self.read()?, address).map(drop)
    }

    fn read(&self) -> Result<Contents, TlsError> {
        let read = |path: &Path| {
            let mut bytes = Vec::new();
            let outcome = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
            outcome.map(|_| bytes).map_err(|source| TlsError::Read { path: path.to_owned(), source })
        };
        Ok(Contents { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    fn configure(&self, contents: &Contents, address: IpAddr) -> Result<Arc<ServerConfig>, TlsError> {
        let missing = |path: &Path, what| TlsError::Missing { path: path.to_owned(), what };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&contents.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| missing(&self.certificate, "certificate"))?;
        let first = chain.first().ok_or_else(|| missing(&self.certificate, "certificate"))?;
        let key =
            PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_| missing(&self.key, "private key"))?;
        let unusable = |source| TlsError::Pair { files: self.clone(), source };
        let named = ParsedCertificate::try_from(first).map_err(unusable)?;
        let name = ServerName::from(address);
        verify_server_name(&named, &name).map_err(|source| TlsError::Name {
            path: self.certificate.clone(),
            address,
            source,
        })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A URL is valid once, so no client resumes a session, and no session outlives its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// The contents of both files, compared whole because two versions of a file may have the same time.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The server's identity towards its clients: the files, and their newest usable pair.
pub(crate) struct Identity {
    files: Tls,
    address: IpAddr,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    /// The contents last seen, usable or not. `None` if a file could not be read.
    seen: Option<Contents>,
}

impl Identity {
    pub(crate) fn open(files: Tls, address: IpAddr) -> Result<Identity, TlsError> {
        let seen = files.read()?;
        let config = files.configure(&seen, address)?;
        Ok(Identity { files, address, current: Mutex::new(Current { config, seen: Some(seen) }) })
    }

    /// Carries out the handshake. No file is read before the client has sent its hello.
    pub(crate) async fn accept(&self, connection: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), connection).await?;
        hello.into_stream(self.config()).await
    }

    /// Returns the newest usable configuration. This reads two small files from the host's own disk.
    fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.files.read();
        if seen.as_ref().ok() == current.seen.as_ref() {
            return Arc::clone(&current.config);
        }
        let outcome = seen.and_then(|seen| {
            // Stored before the check: a bad pair is logged once, and checked again after a change of a file.
            let seen = current.seen.insert(seen);
            self.files.configure(seen, self.address)
        });
        match outcome {
            Ok(config) => {
                tracing::info!(certificate = %self.files.certificate.display(), "a new streaming certificate");
                current.config = config;
            }
            Err(error) => {
                if let TlsError::Read { .. } = error {
                    current.seen = None;
                }
                let error = &error as &(dyn std::error::Error + 'static);
                tracing::warn!(error, "the new streaming certificate is not used, and the old one kept");
            }
        }
        Arc::clone(&current.config)
    }
}
