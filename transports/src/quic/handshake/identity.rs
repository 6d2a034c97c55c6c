//! The identity of this node on a link: a certificate of its key, made at each start.

use std::fmt;
use std::sync::Arc;

use mgp_protocol::ids::NodeId;
use rcgen::{CertificateParams, PKCS_ED25519, PublicKeyData};
use rustls::SignatureAlgorithm;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::{CertifiedKey, Signer, SigningKey};

/// Signs with the key of this node, without exposing it.
pub trait NodeSigner: fmt::Debug + Send + Sync {
    /// The public half, Ed25519.
    fn public_key(&self) -> [u8; 32];

    /// Signs the bytes.
    fn sign(&self, bytes: &[u8]) -> [u8; 64];
}

/// The certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[error("no certificate can be made of the node's key: {0}")]
pub struct IdentityError(#[from] rcgen::Error);

/// The key of this node and its certificate.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    id: NodeId,
    certified: Arc<CertifiedKey>,
}

impl NodeIdentity {
    /// Makes the certificate. It contains the key, its own signature, and no name, since none is read.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn new(signer: Arc<dyn NodeSigner>) -> Result<Self, IdentityError> {
        let public = signer.public_key();
        let key = NodeSigningKey { signer, public };
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let certificate = params.self_signed(&key)?.der().clone();
        let id = NodeId::from_key(&public);
        let certified = Arc::new(CertifiedKey::new(vec![certificate], Arc::new(key)));
        Ok(Self { id, certified })
    }

    /// The node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.id
    }

    pub(super) fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }
}

#[derive(Clone, Debug)]
struct NodeSigningKey {
    signer: Arc<dyn NodeSigner>,
    public: [u8; 32],
}

impl PublicKeyData for NodeSigningKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl rcgen::SigningKey for NodeSigningKey {
    fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.signer.sign(bytes).to_vec())
    }
}

impl SigningKey for NodeSigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let known = offered.contains(&SignatureScheme::ED25519);
        known.then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for NodeSigningKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(self.signer.sign(message).to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Presents the certificate to dialed peers.
#[derive(Debug)]
pub(super) struct IdentityResolver(pub(super) NodeIdentity);

impl ResolvesClientCert for IdentityResolver {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let known = schemes.contains(&SignatureScheme::ED25519);
        known.then(|| self.0.certified_key())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
