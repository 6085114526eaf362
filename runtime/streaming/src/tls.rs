//! The server's side of TLS: which certificate and key it shows, read anew where they have changed, so that they can be
//! rotated under it. It decides nothing about clients: what lets one in is its URL's token.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{Acceptor, NoServerSessionStorage, ParsedCertificate};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// The only protocol below which an upgrade is known, for both sides to agree on.
pub(crate) const ALPN: &[u8] = b"http/1.1";

/// Longest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the server's certificate and key are.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate and those between it and its authority, in PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM.
    pub key: PathBuf,
}

/// Why a server cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that is not there, or not for us.
    #[error("reading {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file with something else in it.
    #[error("{} has no {what} in PEM", path.display())]
    Missing {
        /// Which.
        path: PathBuf,
        /// What should be in it.
        what: &'static str,
    },
    /// They do not belong together, or are of a kind that is not spoken.
    #[error("{} and {} cannot be used", files.certificate.display(), files.key.display())]
    Pair {
        /// Which.
        files: Tls,
        /// Why.
        source: rustls::Error,
    },
    /// Clients would refuse it.
    #[error("{} does not name {address}, which URLs do: it needs it as an IP address among its alternative names", path.display())]
    Name {
        /// The certificate.
        path: PathBuf,
        /// The server's address.
        address: IpAddr,
        /// What exactly does not fit.
        source: rustls::Error,
    },
}

impl Tls {
    /// Whether a server at this address could use them as they are now.
    ///
    /// # Errors
    /// Why not.
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
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A URL is good once: nobody comes back, and nothing outlives a certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// What is in the files. Compared whole: times of files are too coarse to tell two versions apart.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// What the server shows its clients.
pub(crate) struct Identity {
    files: Tls,
    address: IpAddr,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    /// As last seen, whether it could be used or not; none where it could not be read.
    seen: Option<Contents>,
}

impl Identity {
    pub(crate) fn open(files: Tls, address: IpAddr) -> Result<Identity, TlsError> {
        let seen = files.read()?;
        let config = files.configure(&seen, address)?;
        Ok(Identity { files, address, current: Mutex::new(Current { config, seen: Some(seen) }) })
    }

    /// The client's handshake. One that says nothing has no file read for it.
    pub(crate) async fn accept(&self, connection: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), connection).await?;
        hello.into_stream(self.config()).await
    }

    /// The newest that can be used. Two small files are read, of the host's own disk.
    fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.files.read();
        if seen.as_ref().ok() == current.seen.as_ref() {
            return Arc::clone(&current.config);
        }
        let outcome = seen.and_then(|seen| {
            // Said once, and looked at again when it has changed: the two files change one after the other.
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
