//! The proof that who sends a token is who it was given to (DPoP, RFC 9449): a key of one login, and a signature
//! for each request alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

use super::SignInError;

/// The algorithm, which every server of the extension knows.
pub(crate) const DPOP_ALGORITHM: &str = "ES256";
/// Longest nonce of a server that is sent back, in bytes; a longer one is none.
pub const NONCE_MAX: usize = 1 << 10;

/// The key of one login. It is kept with the tokens that are bound to it, and with nothing else.
pub struct DpopKey {
    pair: EcdsaKeyPair,
    encoded: String,
}

/// What one proof says.
#[derive(Clone, Copy, Debug)]
pub struct DpopClaims<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// Its address; query and fragment are left out.
    pub url: &'a str,
    /// The token that goes with it; none when one is asked for.
    pub token: Option<&'a str>,
    /// The server's nonce, where it gave one.
    pub nonce: Option<&'a str>,
    /// What tells this proof from every other one.
    pub id: &'a str,
    /// The time, in seconds since 1970.
    pub now: u64,
}

impl DpopKey {
    /// A new key.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`]: the system has no chance.
    pub fn new(chance: &SystemRandom) -> Result<Self, SignInError> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, chance);
        let made = made.map_err(|_| SignInError::UnusableKey("it could not be made"))?;
        Self::decode(&URL_SAFE_NO_PAD.encode(made), chance)
    }

    /// The key as it was kept.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`].
    pub fn decode(kept: &str, chance: &SystemRandom) -> Result<Self, SignInError> {
        let bad = SignInError::UnusableKey("what is kept of it is none");
        let der = URL_SAFE_NO_PAD.decode(kept).map_err(|_| bad.clone())?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, chance);
        Ok(Self {
            pair: pair.map_err(|_| bad)?,
            encoded: kept.to_owned(),
        })
    }

    /// The key, to be kept like a token.
    #[must_use]
    pub fn encoded(&self) -> &str {
        &self.encoded
    }

    /// The proof of one request.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`]: it does not sign.
    pub fn sign_proof(
        &self,
        says: DpopClaims<'_>,
        chance: &SystemRandom,
    ) -> Result<String, SignInError> {
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let jwk = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y});
        let head = json!({"typ": "dpop+jwt", "alg": DPOP_ALGORITHM, "jwk": jwk});
        let end = says.url.find(['?', '#']).unwrap_or(says.url.len());
        let mut claims = json!({
            "jti": says.id,
            "htm": says.method,
            "htu": says.url[..end],
            "iat": says.now,
        });
        if let Some(token) = says.token {
            let hash = digest(&SHA256, token.as_bytes());
            claims["ath"] = URL_SAFE_NO_PAD.encode(hash).into();
        }
        if let Some(nonce) = says.nonce {
            claims["nonce"] = nonce.into();
        }
        let signed = format!("{}.{}", part(head), part(claims));
        let made = self.pair.sign(chance, signed.as_bytes());
        let made = made.map_err(|_| SignInError::UnusableKey("it does not sign"))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(made)))
    }
}

/// Shows nothing of it.
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
    fn a_proof_is_for_one_request_and_signed_by_the_key_it_shows() {
        let chance = SystemRandom::new();
        let key = DpopKey::new(&chance).unwrap();
        let again = DpopKey::decode(key.encoded(), &chance).unwrap();
        let says = DpopClaims {
            method: "POST",
            url: "https://h/mcp?secret=1#x",
            token: Some("t"),
            nonce: Some("n"),
            id: "1",
            now: 7,
        };
        let proof = again.sign_proof(says, &chance).unwrap();
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
    fn no_proof_is_like_another_and_none_shows_the_key() {
        let chance = SystemRandom::new();
        let key = DpopKey::new(&chance).unwrap();
        let says = |id| DpopClaims {
            method: "GET",
            url: "https://h/mcp",
            token: None,
            nonce: None,
            id,
            now: 7,
        };
        let [one, other] = ["1", "2"].map(|id| key.sign_proof(says(id), &chance).unwrap());
        assert_ne!(one, other);
        assert!(read(one.split('.').nth(1).unwrap()).get("ath").is_none());
        assert_eq!(format!("{key:?}"), "ProofKey(…)");
        assert!(DpopKey::decode("s3cret", &chance).is_err());
    }
}
