//! The client's side of TLS with one host: whose certificates are trusted, and the certificate shown to the
//! host. Owns the check of a host's certificate; `hosts.rs` reads the operator's files.
//!
//! Trusted are the operator's roots for the host and the authorities of the node's system. As in containerd,
//! a host may also show one of these certificates itself. Many registries do: OpenSSL makes each self-signed
//! certificate an authority's, and webpki accepts no authority as a server.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::hosts::Host;

/// The protocol asked for in TLS.
const ALPN: &[u8] = b"http/1.1";

/// Returns the settings of TLS for a host. Reads the system's authorities from disk.
///
/// # Errors
/// The host's roots or its client certificate cannot be used.
pub(crate) fn tls(host: &Host) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(&host.roots, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &host.identity {
        Some(pem) => {
            let chain = certificates(pem)?;
            let key = PrivateKeyDer::pem_slice_iter(pem).last().unwrap_or(Err(pem::Error::NoItemsFound));
            builder.with_client_auth_cert(chain, usable(key)?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// The certificates of a file in PEM.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    usable(CertificateDer::pem_slice_iter(pem).collect())
}

fn usable<T>(parsed: Result<T, pem::Error>) -> Result<T, Error> {
    parsed.map_err(|error| Error::General(format!("a file in PEM cannot be used: {error}")))
}

/// Checks a host's certificate.
#[derive(Debug)]
struct Verifier {
    /// Checks a certificate issued by one of the roots. An error if there are none. It is of consequence only
    /// for a host with TLS: others are asked, too, on a system without authorities.
    issued: Result<Arc<WebPkiServerVerifier>, Error>,
    roots: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(own_roots: &[Vec<u8>], provider: &Arc<CryptoProvider>) -> Result<Verifier, Error> {
        let (mut roots, mut store) = (Vec::new(), RootCertStore::empty());
        for pem in own_roots {
            roots.extend(certificates(pem)?);
        }
        for root in &roots {
            store.add(root.clone())?;
        }
        let system = rustls_native_certs::load_native_certs();
        for error in &system.errors {
            tracing::debug!(%error, "an authority of the system cannot be read");
        }
        store.add_parsable_certificates(system.certs.iter().cloned());
        roots.extend(system.certs);
        let issued = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
        let issued = issued.build().map_err(|error| match error {
            VerifierBuilderError::NoRootAnchors => {
                Error::General("the system has no certificates of authorities".to_owned())
            }
            other => Error::General(other.to_string()),
        });
        Ok(Verifier { issued, roots, algorithms: provider.signature_verification_algorithms })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let issued = self.issued.as_ref().map_err(Clone::clone)?;
        match issued.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // webpki has checked the time before. Nobody need vouch for a certificate that is trusted itself.
            Err(error) if is_of_authority(&error) && self.roots.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns true if a certificate was refused because it is an authority's.
fn is_of_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error else { return false };
    matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate of an authority with a name, valid until the end of 2049.
    fn authority(name: &str) -> (CertificateParams, KeyPair) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2049, 12, 31);
        (params, KeyPair::generate().unwrap())
    }

    fn verifier(root: &rcgen::Certificate) -> Verifier {
        Verifier::new(&[root.pem().into_bytes()], &Arc::new(ring::default_provider())).unwrap()
    }

    /// Checks a certificate for a name in some year.
    fn check(verifier: &Verifier, shown: &CertificateDer<'_>, name: &str, year: u64) -> Result<(), Error> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600));
        verifier.verify_server_cert(shown, &[], &name, &[], now).map(drop)
    }

    #[test]
    fn a_root_is_accepted_as_the_host_itself_by_its_name_and_in_its_time() {
        let (params, key) = authority("registry.corp");
        let root = params.self_signed(&key).unwrap();
        let verifier = verifier(&root);
        check(&verifier, root.der(), "registry.corp", 2030).unwrap();
        for (name, year) in [("other.corp", 2030), ("registry.corp", 2010), ("registry.corp", 2060)] {
            assert!(check(&verifier, root.der(), name, year).is_err(), "{name} in {year}");
        }
    }

    #[test]
    fn another_authority_is_not_accepted_as_the_host() {
        let (params, key) = authority("registry.corp");
        let root = params.self_signed(&key).unwrap();
        let verifier = verifier(&root);
        // Of the same subject, with the same key, and issued by the root.
        let of_subject = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let mut later = params.clone();
        later.not_after = date_time_ymd(2048, 12, 31);
        let of_key = later.self_signed(&key).unwrap();
        let (below, below_key) = authority("registry.corp");
        let issued = below.signed_by(&below_key, &Issuer::new(params, key)).unwrap();
        for other in [of_subject, of_key, issued] {
            let refused = check(&verifier, other.der(), "registry.corp", 2030).unwrap_err();
            assert!(is_of_authority(&refused), "{refused}");
        }
    }
}
