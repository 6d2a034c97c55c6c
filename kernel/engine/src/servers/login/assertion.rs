//! The assertion by which a client with a key shows who it is (RFC 7523, `private_key_jwt`).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::json;

use super::SignInError;

/// How long an assertion is good, in seconds: for the request it is made for.
const LIFETIME_SECS: u64 = 120;

/// A key that signs, of the kinds that servers know.
pub enum ClientKey {
    /// `ES256` or `ES384`.
    Ecdsa(&'static str, EcdsaKeyPair),
    /// `EdDSA`.
    Ed25519(Ed25519KeyPair),
    /// `RS256`.
    Rsa(Box<RsaKeyPair>),
}

/// What one assertion says.
#[derive(Clone, Copy, Debug)]
pub struct ClientAssertion<'a> {
    /// The client's id.
    pub client: &'a str,
    /// The authorization server it is for, by its issuer.
    pub audience: &'a str,
    /// What tells it from every other one.
    pub id: &'a str,
    /// The time, in seconds since 1970.
    pub now: u64,
}

impl ClientKey {
    /// Reads PKCS#8 in PEM; what kind of key it is, it says itself. `chance` blinds signatures.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`], which repeats nothing of it.
    pub fn parse_pem(pem: &str, chance: &SystemRandom) -> Result<Self, SignInError> {
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
            if let Ok(key) = EcdsaKeyPair::from_pkcs8(curve, &der, chance) {
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

    /// A signed assertion.
    ///
    /// # Errors
    /// [`SignInError::UnusableKey`]: it does not sign.
    pub fn sign(
        &self,
        says: ClientAssertion<'_>,
        chance: &SystemRandom,
    ) -> Result<String, SignInError> {
        let algorithm = match self {
            Self::Ecdsa(name, _) => name,
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        };
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({
            "iss": says.client,
            "sub": says.client,
            "aud": says.audience,
            "jti": says.id,
            "iat": says.now,
            "exp": says.now + LIFETIME_SECS,
        });
        let signed = format!(
            "{}.{}",
            part(json!({"alg": algorithm, "typ": "JWT"})),
            part(claims)
        );
        let failed = |_| SignInError::UnusableKey("it does not sign");
        let signature = match self {
            Self::Ecdsa(_, key) => {
                let made = key.sign(chance, signed.as_bytes()).map_err(failed)?;
                made.as_ref().to_vec()
            }
            Self::Ed25519(key) => key.sign(signed.as_bytes()).as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut made = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, chance, signed.as_bytes(), &mut made)
                    .map_err(failed)?;
                made
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

    const SAYS: ClientAssertion<'_> = ClientAssertion {
        client: "me",
        audience: "https://as",
        id: "1",
        now: 1000,
    };

    fn halves(jwt: &str) -> (String, Vec<u8>) {
        let (signed, signature) = jwt.rsplit_once('.').unwrap();
        (
            signed.to_owned(),
            URL_SAFE_NO_PAD.decode(signature).unwrap(),
        )
    }

    #[test]
    fn each_kind_of_key_signs_what_its_other_half_knows() {
        let chance = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &chance).unwrap();
        let own = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &chance)
            .unwrap();
        let key = ClientKey::parse_pem(&pem(der.as_ref()), &chance).unwrap();
        let (signed, signature) = halves(&key.sign(SAYS, &chance).unwrap());
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, own.public_key().as_ref())
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

        let der = Ed25519KeyPair::generate_pkcs8(&chance).unwrap();
        let own = Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap();
        let key = ClientKey::parse_pem(&pem(der.as_ref()), &chance).unwrap();
        let (signed, signature) = halves(&key.sign(SAYS, &chance).unwrap());
        UnparsedPublicKey::new(&ED25519, own.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_repeated() {
        let chance = SystemRandom::new();
        for bad in [
            "",
            "s3cret",
            "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----",
            &pem(b"s3cret"),
        ] {
            let refused = ClientKey::parse_pem(bad, &chance).err().unwrap();
            assert!(!refused.to_string().contains("s3cret"), "{refused}");
        }
    }
}
