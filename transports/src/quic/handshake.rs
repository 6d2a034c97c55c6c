//! Verifies the certificates of both sides of a handshake.

pub(super) mod identity;

use std::fmt;
use std::sync::{Arc, OnceLock};

use mgp_protocol::ids::NodeId;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ring::signature::{ED25519, UnparsedPublicKey};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use self::identity::{IdentityResolver, NodeIdentity};
use super::pairing::PairingGate;
use super::pinned::PinnedNodes;

/// The ALPN id of links between nodes of a cluster.
const LINK_ALPN: &[u8] = b"mgp/1";

/// The ALPN id of pairing links.
const PAIRING_ALPN: &[u8] = b"mgp-pair/1";

/// Longest certificate that is read; ours have 250 bytes.
const CERTIFICATE_BYTES_MAX: usize = 1024;

/// The object identifier of Ed25519, 1.3.101.112.
const ED25519_OID: &[u8] = &[0x2b, 0x65, 0x70];

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkPurpose {
    Link,
    Pair,
}

/// Why a peer is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Its key is not pinned.
    #[error("the node {} is not known here", .0.short_id())]
    NotPinned(NodeId),
    /// Another node answered than was dialed.
    #[error("the node {} is there, not {}", .found.short_id(), .dialed.short_id())]
    OtherNode {
        /// The dialed node.
        dialed: NodeId,
        /// The node that answered.
        found: NodeId,
    },
    /// It requests pairing, and no ticket is open.
    #[error("a node asks to be paired, and no invitation is open")]
    NoTicket,
    /// Its certificate is no node certificate.
    #[error("its certificate is none of a node: {0}")]
    Certificate(#[from] NodeCertificateError),
}

/// The defect of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeCertificateError {
    /// Not exactly one well-formed certificate of bounded length.
    #[error("it cannot be read")]
    Unreadable,
    /// Another key type than Ed25519.
    #[error("its key is not of the kind Ed25519")]
    Algorithm,
    /// Its own key did not sign it.
    #[error("its key did not sign it")]
    Signature,
}

impl PeerError {
    /// A short name of the error kind, for logging.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::NotPinned(_) => "not pinned",
            Self::OtherNode { .. } => "other node",
            Self::NoTicket => "no ticket",
            Self::Certificate(_) => "certificate",
        }
    }
}

/// The key of a self-signed certificate.
pub(super) fn verify_key(
    certificate: &CertificateDer<'_>,
) -> Result<[u8; 32], NodeCertificateError> {
    if certificate.len() > CERTIFICATE_BYTES_MAX {
        return Err(NodeCertificateError::Unreadable);
    }
    let Ok((rest, read)) = X509Certificate::from_der(certificate) else {
        return Err(NodeCertificateError::Unreadable);
    };
    if !rest.is_empty() {
        return Err(NodeCertificateError::Unreadable);
    }
    let spki = &read.tbs_certificate.subject_pki;
    let kinds = [
        &spki.algorithm,
        &read.signature_algorithm,
        &read.tbs_certificate.signature,
    ];
    if kinds
        .iter()
        .any(|kind| kind.algorithm.as_bytes() != ED25519_OID || kind.parameters.is_some())
    {
        return Err(NodeCertificateError::Algorithm);
    }
    let key = spki.subject_public_key.data.as_ref();
    let key = <[u8; 32]>::try_from(key).map_err(|_| NodeCertificateError::Algorithm)?;
    let signed = UnparsedPublicKey::new(&ED25519, &key)
        .verify(read.tbs_certificate.as_ref(), &read.signature_value.data);
    signed.map_err(|_| NodeCertificateError::Signature)?;
    Ok(key)
}

/// The results of one handshake.
#[derive(Debug, Default)]
pub(super) struct PeerFindings {
    purpose: OnceLock<LinkPurpose>,
    key: OnceLock<[u8; 32]>,
    error: OnceLock<PeerError>,
}

impl PeerFindings {
    /// Why the peer was rejected, if it was.
    pub(super) fn error(&self) -> Option<PeerError> {
        self.error.get().copied()
    }

    /// The purpose and the proven key. `None` until the handshake is complete.
    pub(super) fn peer(&self) -> Option<(LinkPurpose, [u8; 32])> {
        Some((*self.purpose.get()?, *self.key.get()?))
    }

    fn reject(&self, fault: PeerError) -> rustls::Error {
        let _first = self.error.set(fault);
        let kind = match fault {
            PeerError::Certificate(_) => rustls::CertificateError::BadEncoding,
            PeerError::NotPinned(_) | PeerError::OtherNode { .. } | PeerError::NoTicket => {
                rustls::CertificateError::ApplicationVerificationFailure
            }
        };
        rustls::Error::InvalidCertificate(kind)
    }
}

/// Which peers one handshake accepts.
enum PeerPolicy {
    /// As client: this node, and for a link only while it is pinned.
    Outgoing(NodeId, LinkPurpose),
    /// As server: pinned nodes, and any node for pairing while a ticket is open.
    Incoming(Arc<PairingGate>),
}

/// Verifies one peer.
struct PeerVerifier {
    pinned: Arc<PinnedNodes>,
    policy: PeerPolicy,
    findings: Arc<PeerFindings>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for PeerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerVerifier").finish_non_exhaustive()
    }
}

impl PeerVerifier {
    fn verify(&self, certificate: &CertificateDer<'_>, chain: usize) -> Result<(), PeerError> {
        if chain > 0 {
            return Err(NodeCertificateError::Unreadable.into());
        }
        let key = verify_key(certificate)?;
        let found = NodeId::from_key(&key);
        let purpose = match &self.policy {
            PeerPolicy::Outgoing(dialed, _) if *dialed != found => {
                let dialed = *dialed;
                return Err(PeerError::OtherNode { dialed, found });
            }
            PeerPolicy::Outgoing(_, purpose) => *purpose,
            // Without a purpose a peer requests a link.
            PeerPolicy::Incoming(_) => *self.findings.purpose.get_or_init(|| LinkPurpose::Link),
        };
        match (purpose, &self.policy) {
            (LinkPurpose::Link, _) if !self.pinned.contains(&found) => {
                Err(PeerError::NotPinned(found))
            }
            (LinkPurpose::Pair, PeerPolicy::Incoming(door)) if !door.is_open() => {
                Err(PeerError::NoTicket)
            }
            (LinkPurpose::Link | LinkPurpose::Pair, _) => {
                let _first = self.findings.purpose.set(purpose);
                let _first = self.findings.key.set(key);
                Ok(())
            }
        }
    }

    /// Verifies the peer with the library's error type, and records the defect.
    fn verify_and_record(
        &self,
        certificate: &CertificateDer<'_>,
        chain: usize,
    ) -> Result<(), rustls::Error> {
        let verified = self.verify(certificate, chain);
        verified.map_err(|fault| self.findings.reject(fault))
    }

    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if signed.scheme != SignatureScheme::ED25519 {
            return Err(self.findings.reject(NodeCertificateError::Algorithm.into()));
        }
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }
}

const NO_TLS12: rustls::Error =
    rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered);

/// Signature verification of both sides: TLS 1.3 and Ed25519, nothing else.
macro_rules! one_signature {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(NO_TLS12)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.verify_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify_and_record(certificate, chain.len())?;
        Ok(ServerCertVerified::assertion())
    }

    one_signature!();
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify_and_record(certificate, chain.len())?;
        Ok(ClientCertVerified::assertion())
    }

    one_signature!();
}

/// Presents the certificate to a dialing peer, and records the purpose, which is sent before the peer's certificate is
/// verified.
#[derive(Debug)]
struct PurposeRecorder {
    certified: Arc<CertifiedKey>,
    findings: Arc<PeerFindings>,
}

impl ResolvesServerCert for PurposeRecorder {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A peer that names both requests a link, and is verified for one.
        let mut named = hello.alpn().into_iter().flatten();
        let purpose = match (named.next(), named.next()) {
            (Some(PAIRING_ALPN), None) => LinkPurpose::Pair,
            (Some(_) | None, _) => LinkPurpose::Link,
        };
        let _first = self.findings.purpose.set(purpose);
        Some(Arc::clone(&self.certified))
    }
}

/// The settings of handshakes.
#[derive(Clone, Debug)]
pub(super) struct HandshakeConfig {
    pub(super) identity: NodeIdentity,
    pub(super) pinned: Arc<PinnedNodes>,
    pub(super) pairing_gate: Arc<PairingGate>,
    provider: Arc<CryptoProvider>,
}

impl HandshakeConfig {
    pub(super) fn new(
        identity: NodeIdentity,
        pinned: Arc<PinnedNodes>,
        pairing_gate: Arc<PairingGate>,
    ) -> Self {
        Self {
            identity,
            pinned,
            pairing_gate,
            provider: Arc::new(provider::default_provider()),
        }
    }

    /// For one incoming connection.
    pub(super) fn server_config(&self) -> (QuicServerConfig, Arc<PeerFindings>) {
        let findings = Arc::new(PeerFindings::default());
        let verifier = self.verifier(
            PeerPolicy::Incoming(Arc::clone(&self.pairing_gate)),
            &findings,
        );
        let resolver = PurposeRecorder {
            certified: self.identity.certified_key(),
            findings: Arc::clone(&findings),
        };
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring knows TLS 1.3");
        let mut config = builder
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![LINK_ALPN.to_vec(), PAIRING_ALPN.to_vec()];
        // A resumed session would skip the verification of the key, and early data could be replayed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        let config =
            QuicServerConfig::try_from(config).expect("ring knows the first cipher of QUIC");
        (config, findings)
    }

    /// For one outgoing connection.
    pub(super) fn client_config(
        &self,
        node: NodeId,
        purpose: LinkPurpose,
    ) -> (QuicClientConfig, Arc<PeerFindings>) {
        let findings = Arc::new(PeerFindings::default());
        let verifier = self.verifier(PeerPolicy::Outgoing(node, purpose), &findings);
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring knows TLS 1.3");
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(IdentityResolver(self.identity.clone())));
        let name = match purpose {
            LinkPurpose::Link => LINK_ALPN,
            LinkPurpose::Pair => PAIRING_ALPN,
        };
        config.alpn_protocols = vec![name.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        // SNI would reveal the dialed node to eavesdroppers.
        config.enable_sni = false;
        let config =
            QuicClientConfig::try_from(config).expect("ring knows the first cipher of QUIC");
        (config, findings)
    }

    fn verifier(&self, policy: PeerPolicy, findings: &Arc<PeerFindings>) -> PeerVerifier {
        PeerVerifier {
            pinned: Arc::clone(&self.pinned),
            policy,
            findings: Arc::clone(findings),
            provider: Arc::clone(&self.provider),
        }
    }
}
