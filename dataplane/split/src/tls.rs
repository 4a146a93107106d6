//! TLS of QUIC between the edges: fresh raw public keys (RFC 7250), trusted by either side, since
//! the tunnel authenticates (see `link.rs`).

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, ServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::aws_lc_rs::sign::any_ecdsa_type;
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::io;
use std::sync::Arc;

/// Protocol in the handshake.
const PROTOCOL: &[u8] = b"recoded-split/1";

/// How this edge serves the other one.
pub(crate) fn server() -> io::Result<ServerConfig> {
    let provider = Arc::new(default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key()?)));
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    Ok(ServerConfig::with_crypto(Arc::new(tls)))
}

/// How this edge calls the other one.
pub(crate) fn client() -> io::Result<ClientConfig> {
    let provider = Arc::new(default_provider());
    let verifier = Arc::new(ByTunnel(Arc::clone(&provider)));
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let tls = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
    Ok(ClientConfig::new(Arc::new(tls)))
}

fn key() -> io::Result<Arc<CertifiedKey>> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(io::Error::other)?;
    let document = pair.to_pkcs8v1().map_err(io::Error::other)?;
    let document = PrivatePkcs8KeyDer::from(document.as_ref().to_vec());
    let signing = any_ecdsa_type(&PrivateKeyDer::Pkcs8(document)).map_err(io::Error::other)?;
    let public = signing.public_key().ok_or_else(|| io::Error::other("no public key"))?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], signing)))
}

/// Accepts any key that signs.
#[derive(Debug)]
struct ByTunnel(Arc<CryptoProvider>);

impl ServerCertVerifier for ByTunnel {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not used".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
