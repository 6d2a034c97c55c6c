//! DPoP proofs for the requests of a login whose tokens are bound to a key.

use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use mgp_engine::servers::login::dpop::{DpopClaims, DpopKey, NONCE_MAX};
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use ring::rand::SystemRandom;

use super::LoginError;

/// The header of a proof.
pub(super) const PROOF_HEADER: HeaderName = HeaderName::from_static("dpop");
const NONCE_HEADER: HeaderName = HeaderName::from_static("dpop-nonce");
/// The error of a server that requires its nonce in the proof.
pub(super) const USE_NONCE_ERROR: &str = "use_dpop_nonce";

/// The key of one login, and the last nonce of its server.
pub(super) struct Prover {
    key: DpopKey,
    random: SystemRandom,
    nonce: Mutex<Option<String>>,
}

/// Prints no key.
impl std::fmt::Debug for Prover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prover(…)")
    }
}

impl Prover {
    /// Creates a prover with a new key.
    pub(super) fn new() -> Result<Arc<Self>, LoginError> {
        let chance = SystemRandom::new();
        let key = DpopKey::new(&chance)?;
        Ok(Self::with_key(key, chance))
    }

    /// Creates a prover with a stored key.
    pub(super) fn from_stored(stored: &str) -> Result<Arc<Self>, LoginError> {
        let chance = SystemRandom::new();
        let key = DpopKey::decode(stored, &chance)?;
        Ok(Self::with_key(key, chance))
    }

    fn with_key(key: DpopKey, chance: SystemRandom) -> Arc<Self> {
        Arc::new(Self {
            key,
            random: chance,
            nonce: Mutex::default(),
        })
    }

    /// The key, for storage with the tokens.
    pub(super) fn to_stored(&self) -> String {
        self.key.encoded().to_owned()
    }

    /// Signs the proof of one request, with the last nonce of its server.
    pub(super) fn prove(
        &self,
        method: &str,
        url: &str,
        token: Option<&str>,
        nonce: Option<&str>,
    ) -> Option<HeaderValue> {
        let id = randomness::random_bytes::<16>();
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let says = DpopClaims {
            method,
            url,
            token,
            nonce,
            id: &id,
            now: unix_ms() / 1000,
        };
        let proof = self.key.sign_proof(says, &self.random).ok()?;
        let mut value = HeaderValue::try_from(proof).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The last nonce of the server.
    pub(super) fn nonce(&self) -> Option<String> {
        self.nonce
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Stores the nonce of an answer.
    pub(super) fn record_nonce(&self, headers: &HeaderMap) {
        if let Some(nonce) = read_nonce(headers) {
            *self.nonce.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce);
        }
    }
}

/// The nonce of an answer.
pub(super) fn read_nonce(headers: &HeaderMap) -> Option<String> {
    let nonce = headers.get(NONCE_HEADER)?.to_str().ok()?;
    (!nonce.is_empty() && nonce.len() <= NONCE_MAX).then(|| nonce.to_owned())
}
