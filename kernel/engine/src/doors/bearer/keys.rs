//! The keys an issuer signs with (JWKS, RFC 7517), and their algorithms.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use super::BadBearerToken;

/// Most keys stored of one issuer; an issuer has a handful, and further ones are skipped.
pub(crate) const MAX_KEYS: usize = 64;

/// A signature algorithm with asymmetric keys. Shared secrets are excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA, PKCS#1 v1.5, SHA-256.
    Rs256,
    /// RSA, PKCS#1 v1.5, SHA-384.
    Rs384,
    /// RSA, PKCS#1 v1.5, SHA-512.
    Rs512,
    /// RSA-PSS, SHA-256.
    Ps256,
    /// ECDSA on P-256, SHA-256.
    Es256,
    /// ECDSA on P-384, SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// All algorithms, with their names in a token.
    pub const ALL: [(&str, Self); 7] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// The algorithm with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| *algorithm)
    }
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyMaterial {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct IssuerKey {
    kid: Option<String>,
    /// The only algorithm it may be used with, if it names one.
    required_algorithm: Option<Algorithm>,
    public: KeyMaterial,
}

/// The keys of an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerKeys(Vec<IssuerKey>);

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

impl IssuerKeys {
    /// Parses a key set. Keys for other purposes, or of an unknown type, are skipped; secrets are never used as keys.
    ///
    /// # Errors
    /// Why it is no key set, as a sentence.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let set: KeySet = serde_json::from_slice(json).map_err(|e| format!("no key set: {e}"))?;
        let jwks = set.keys.into_iter();
        let keys = jwks.filter_map(|jwk| IssuerKey::from_jwk(serde_json::from_value(jwk).ok()?));
        Ok(Self(keys.take(MAX_KEYS).collect()))
    }

    /// The number of keys.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies a signature with the key that the token names, or with every suitable key if it names none.
    pub(super) fn verify(
        &self,
        algorithm: Algorithm,
        kid: Option<&str>,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<(), BadBearerToken> {
        let named = |key: &&IssuerKey| kid.is_none() || key.kid.as_deref() == kid;
        let mut keys = self.0.iter().filter(named).peekable();
        if keys.peek().is_none() {
            return Err(BadBearerToken::UnknownKey);
        }
        if keys.any(|key| key.is_valid_signature(algorithm, signed, signature)) {
            Ok(())
        } else {
            Err(BadBearerToken::Signature)
        }
    }
}

/// The public key in the header of a DPoP proof (RFC 9449, section 4.2).
pub(in crate::doors) struct ProofKey {
    key: IssuerKey,
    /// RFC 7638, with SHA-256.
    pub(in crate::doors) thumbprint: String,
}

/// Members of a JWK that only its owner may have (RFC 7518, section 6).
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

impl ProofKey {
    /// Parses a JWK; `None` for an unknown type, and for a key with private members.
    pub(in crate::doors) fn from_jwk(jwk: &serde_json::Value) -> Option<Self> {
        let members = jwk.as_object()?;
        if PRIVATE_MEMBERS.iter().any(|it| members.contains_key(*it)) {
            return None;
        }
        let key = IssuerKey::from_jwk(serde_json::from_value(jwk.clone()).ok()?)?;
        let thumbprint = key.thumbprint();
        Some(Self { key, thumbprint })
    }

    pub(in crate::doors) fn verify(
        &self,
        algorithm: Algorithm,
        signed: &[u8],
        signature: &[u8],
    ) -> bool {
        self.key.is_valid_signature(algorithm, signed, signature)
    }
}

impl IssuerKey {
    /// The hash of its required members in the order of their names, from the decoded values: other spellings of a key
    /// are the same key.
    fn thumbprint(&self) -> String {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let point = |curve: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at(point.len() / 2);
            let (x, y) = (text(x), text(y));
            format!(r#"{{"crv":"{curve}","kty":"EC","x":"{x}","y":"{y}"}}"#)
        };
        let members = match &self.public {
            KeyMaterial::Rsa { n, e } => {
                format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, text(e), text(n))
            }
            KeyMaterial::P256(key) => point("P-256", key),
            KeyMaterial::P384(key) => point("P-384", key),
            KeyMaterial::Ed25519(key) => {
                format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, text(key))
            }
        };
        text(digest(&SHA256, members.as_bytes()).as_ref())
    }

    fn from_jwk(jwk: Jwk) -> Option<Self> {
        if jwk
            .purpose
            .as_deref()
            .is_some_and(|purpose| purpose != "sig")
        {
            return None;
        }
        let only = match jwk.alg.as_deref() {
            Some(alg) => Some(Algorithm::parse(alg)?),
            None => None,
        };
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let point = |size: usize| {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            (x.len() == size && y.len() == size).then(|| [&[4], x.as_slice(), &y].concat())
        };
        let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => KeyMaterial::Rsa {
                n: bytes(&jwk.n)?,
                e: bytes(&jwk.e)?,
            },
            ("EC", Some("P-256")) => KeyMaterial::P256(point(32)?),
            ("EC", Some("P-384")) => KeyMaterial::P384(point(48)?),
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes(&jwk.x)?),
            _ => return None,
        };
        Some(Self {
            kid: jwk.kid,
            required_algorithm: only,
            public,
        })
    }

    fn is_valid_signature(&self, algorithm: Algorithm, signed: &[u8], sign: &[u8]) -> bool {
        if self
            .required_algorithm
            .is_some_and(|only| only != algorithm)
        {
            return false;
        }
        let rsa = |how: &'static RsaParameters, n: &[u8], e: &[u8]| {
            RsaPublicKeyComponents { n, e }
                .verify(how, signed, sign)
                .is_ok()
        };
        let other = |how: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(how, key)
                .verify(signed, sign)
                .is_ok()
        };
        match (algorithm, &self.public) {
            (Algorithm::Rs256, KeyMaterial::Rsa { n, e }) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA256, n, e)
            }
            (Algorithm::Rs384, KeyMaterial::Rsa { n, e }) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA384, n, e)
            }
            (Algorithm::Rs512, KeyMaterial::Rsa { n, e }) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA512, n, e)
            }
            (Algorithm::Ps256, KeyMaterial::Rsa { n, e }) => {
                rsa(&signature::RSA_PSS_2048_8192_SHA256, n, e)
            }
            (Algorithm::Es256, KeyMaterial::P256(key)) => other(&ECDSA_P256_SHA256_FIXED, key),
            (Algorithm::Es384, KeyMaterial::P384(key)) => other(&ECDSA_P384_SHA384_FIXED, key),
            (Algorithm::EdDsa, KeyMaterial::Ed25519(key)) => other(&ED25519, key),
            (
                Algorithm::Rs256
                | Algorithm::Rs384
                | Algorithm::Rs512
                | Algorithm::Ps256
                | Algorithm::Es256
                | Algorithm::Es384
                | Algorithm::EdDsa,
                KeyMaterial::Rsa { .. }
                | KeyMaterial::P256(_)
                | KeyMaterial::P384(_)
                | KeyMaterial::Ed25519(_),
            ) => false,
        }
    }
}
