//! DPoP (RFC 9449): proves that the sender of a token owns the key it is bound to, with one signature per request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

use super::SignInError;

/// The algorithm that every DPoP server supports.
pub(crate) const DPOP_ALGORITHM: &str = "ES256";
/// Longest accepted nonce of a server, in bytes; longer ones are ignored.
pub const NONCE_MAX: usize = 1 << 10;

/// The key of one login, stored only with the tokens bound to it.
pub struct DpopKey {
    pair: EcdsaKeyPair,
    encoded: String,
}

/// The claims of one proof.
#[derive(Clone, Copy, Debug)]
pub struct DpopClaims<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// Its URL; query and fragment are dropped.
    pub url: &'a str,
    /// The token it is sent with; `None` for a token request.
    pub token: Option<&'a str>,
    /// The server's nonce, if any.
    pub nonce: Option<&'a str>,
    /// The unique id of the proof.
    pub id: &'a str,
    /// The time, in seconds since 1970.
    pub now: u64,
}

impl DpopKey {
    /// Generates a key.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`] if the system's random source fails.
    pub fn new(rng: &SystemRandom) -> Result<Self, SignInError> {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, rng);
        let pkcs8 = pkcs8.map_err(|_| SignInError::UnusableKey("it could not be generated"))?;
        Self::decode(&URL_SAFE_NO_PAD.encode(pkcs8), rng)
    }

    /// Decodes a stored key.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`].
    pub fn decode(encoded: &str, rng: &SystemRandom) -> Result<Self, SignInError> {
        let bad = SignInError::UnusableKey("the stored key is invalid");
        let der = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| bad.clone())?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, rng);
        Ok(Self {
            pair: pair.map_err(|_| bad)?,
            encoded: encoded.to_owned(),
        })
    }

    /// The encoded key, a secret like a token.
    #[must_use]
    pub fn encoded(&self) -> &str {
        &self.encoded
    }

    /// Signs the proof of one request.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`] if signing fails.
    pub fn sign_proof(
        &self,
        request: DpopClaims<'_>,
        rng: &SystemRandom,
    ) -> Result<String, SignInError> {
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let jwk = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y});
        let header = json!({"typ": "dpop+jwt", "alg": DPOP_ALGORITHM, "jwk": jwk});
        let end = request.url.find(['?', '#']).unwrap_or(request.url.len());
        let mut claims = json!({
            "jti": request.id,
            "htm": request.method,
            "htu": request.url[..end],
            "iat": request.now,
        });
        if let Some(token) = request.token {
            let hash = digest(&SHA256, token.as_bytes());
            claims["ath"] = URL_SAFE_NO_PAD.encode(hash).into();
        }
        if let Some(nonce) = request.nonce {
            claims["nonce"] = nonce.into();
        }
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(rng, signed.as_bytes());
        let signature = signature.map_err(|_| SignInError::UnusableKey("it does not sign"))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Hides the key.
impl std::fmt::Debug for DpopKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProofKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    fn read(part: &str) -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn a_proof_covers_one_request_and_is_signed_by_its_public_key() {
        let rng = SystemRandom::new();
        let key = DpopKey::new(&rng).unwrap();
        let again = DpopKey::decode(key.encoded(), &rng).unwrap();
        let says = DpopClaims {
            method: "POST",
            url: "https://h/mcp?secret=1#x",
            token: Some("t"),
            nonce: Some("n"),
            id: "1",
            now: 7,
        };
        let proof = again.sign_proof(says, &rng).unwrap();
        let parts: Vec<&str> = proof.split('.').collect();
        let (head, claims) = (read(parts[0]), read(parts[1]));
        assert_eq!(
            (&head["typ"], &head["alg"]),
            (&json!("dpop+jwt"), &json!("ES256"))
        );
        assert!(head["jwk"].get("d").is_none());
        assert_eq!(claims["htm"], "POST");
        assert_eq!(claims["htu"], "https://h/mcp");
        assert_eq!(
            (&claims["iat"], &claims["jti"], &claims["nonce"]),
            (&json!(7), &json!("1"), &json!("n"))
        );
        // BASE64URL(SHA-256("t")).
        assert_eq!(claims["ath"], "47mKTaMaEn1L3m5DAz9muidMqw636xxw7EFAK_YnPdg");
        let decode = |name: &str| {
            URL_SAFE_NO_PAD
                .decode(head["jwk"][name].as_str().unwrap())
                .unwrap()
        };
        let public = [vec![4], decode("x"), decode("y")].concat();
        let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
        let signed = format!("{}.{}", parts[0], parts[1]);
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &public)
            .verify(signed.as_bytes(), &signature)
            .unwrap();
    }

    #[test]
    fn proofs_are_unique_and_the_key_stays_secret() {
        let rng = SystemRandom::new();
        let key = DpopKey::new(&rng).unwrap();
        let says = |id| DpopClaims {
            method: "GET",
            url: "https://h/mcp",
            token: None,
            nonce: None,
            id,
            now: 7,
        };
        let [one, other] = ["1", "2"].map(|id| key.sign_proof(says(id), &rng).unwrap());
        assert_ne!(one, other);
        assert!(read(one.split('.').nth(1).unwrap()).get("ath").is_none());
        assert_eq!(format!("{key:?}"), "ProofKey(…)");
        assert!(DpopKey::decode("s3cret", &rng).is_err());
    }
}
