//! The assertion that authenticates a client with a key (RFC 7523, `private_key_jwt`).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::json;

use super::SignInError;

/// Lifetime of an assertion in seconds; it serves one request.
const LIFETIME_SECS: u64 = 120;

/// A signing key.
pub enum ClientKey {
    /// `ES256` or `ES384`.
    Ecdsa(&'static str, EcdsaKeyPair),
    /// `EdDSA`.
    Ed25519(Ed25519KeyPair),
    /// `RS256`.
    Rsa(Box<RsaKeyPair>),
}

/// The claims of one assertion.
#[derive(Clone, Copy, Debug)]
pub struct ClientAssertion<'a> {
    /// The client's id.
    pub client: &'a str,
    /// The issuer of the authorization server.
    pub audience: &'a str,
    /// Its unique id.
    pub id: &'a str,
    /// The time, in seconds since 1970.
    pub now: u64,
}

impl ClientKey {
    /// Parses PKCS#8 in PEM of any supported algorithm. `rng` blinds signatures.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`], which contains no part of the key.
    pub fn parse_pem(pem: &str, rng: &SystemRandom) -> Result<Self, SignInError> {
        let lines = pem.lines().map(str::trim);
        let mut body = lines
            .skip_while(|line| *line != "-----BEGIN PRIVATE KEY-----")
            .skip(1);
        let text: String = body
            .by_ref()
            .take_while(|line| !line.starts_with("-----END"))
            .collect();
        let der = STANDARD.decode(&text).ok().filter(|der| !der.is_empty());
        let der = der.ok_or(SignInError::UnusableKey(
            "it is no PKCS#8 key in PEM (BEGIN PRIVATE KEY)",
        ))?;
        let curves = [
            ("ES256", &ECDSA_P256_SHA256_FIXED_SIGNING),
            ("ES384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        ];
        for (name, curve) in curves {
            if let Ok(key) = EcdsaKeyPair::from_pkcs8(curve, &der, rng) {
                return Ok(Self::Ecdsa(name, key));
            }
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der) {
            return Ok(Self::Ed25519(key));
        }
        let unknown = SignInError::UnusableKey(
            "it is of no kind that signs here: P-256, P-384, Ed25519 or RSA",
        );
        RsaKeyPair::from_pkcs8(&der)
            .map(|key| Self::Rsa(Box::new(key)))
            .map_err(|_| unknown)
    }

    /// Signs an assertion.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`] if signing fails.
    pub fn sign(
        &self,
        assertion: ClientAssertion<'_>,
        rng: &SystemRandom,
    ) -> Result<String, SignInError> {
        let algorithm = match self {
            Self::Ecdsa(name, _) => name,
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        };
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({
            "iss": assertion.client,
            "sub": assertion.client,
            "aud": assertion.audience,
            "jti": assertion.id,
            "iat": assertion.now,
            "exp": assertion.now + LIFETIME_SECS,
        });
        let signed = format!(
            "{}.{}",
            part(json!({"alg": algorithm, "typ": "JWT"})),
            part(claims)
        );
        let failed = |_| SignInError::UnusableKey("it does not sign");
        let signature = match self {
            Self::Ecdsa(_, key) => {
                let signature = key.sign(rng, signed.as_bytes()).map_err(failed)?;
                signature.as_ref().to_vec()
            }
            Self::Ed25519(key) => key.sign(signed.as_bytes()).as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, rng, signed.as_bytes(), &mut signature)
                    .map_err(failed)?;
                signature
            }
        };
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, KeyPair, UnparsedPublicKey};

    use super::*;

    fn pem(der: &[u8]) -> String {
        let body = STANDARD.encode(der);
        let lines: Vec<&str> = body
            .as_bytes()
            .chunks(64)
            .filter_map(|c| std::str::from_utf8(c).ok())
            .collect();
        format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            lines.join("\n")
        )
    }

    const CLAIMS: ClientAssertion<'_> = ClientAssertion {
        client: "me",
        audience: "https://as",
        id: "1",
        now: 1000,
    };

    fn split_signature(jwt: &str) -> (String, Vec<u8>) {
        let (signed, signature) = jwt.rsplit_once('.').unwrap();
        (
            signed.to_owned(),
            URL_SAFE_NO_PAD.decode(signature).unwrap(),
        )
    }

    #[test]
    fn each_kind_of_key_signs_verifiably() {
        let rng = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &rng).unwrap();
        let key = ClientKey::parse_pem(&pem(der.as_ref()), &rng).unwrap();
        let (signed, signature) = split_signature(&key.sign(CLAIMS, &rng).unwrap());
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .unwrap();
        let (head, body) = signed.split_once('.').unwrap();
        let read = |part: &str| -> serde_json::Value {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(read(head)["alg"], "ES256");
        let claims = read(body);
        assert_eq!(
            (&claims["iss"], &claims["sub"]),
            (&json!("me"), &json!("me"))
        );
        assert_eq!(
            (&claims["aud"], &claims["exp"]),
            (&json!("https://as"), &json!(1120))
        );

        let der = Ed25519KeyPair::generate_pkcs8(&rng).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap();
        let key = ClientKey::parse_pem(&pem(der.as_ref()), &rng).unwrap();
        let (signed, signature) = split_signature(&key.sign(CLAIMS, &rng).unwrap());
        UnparsedPublicKey::new(&ED25519, pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .unwrap();
    }

    #[test]
    fn an_invalid_key_is_rejected_without_being_quoted() {
        let rng = SystemRandom::new();
        for bad in [
            "",
            "s3cret",
            "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----",
            &pem(b"s3cret"),
        ] {
            let refused = ClientKey::parse_pem(bad, &rng).err().unwrap();
            assert!(!refused.to_string().contains("s3cret"), "{refused}");
        }
    }
}
