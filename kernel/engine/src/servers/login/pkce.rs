//! Proof Key for Code Exchange (RFC 7636), with S256 only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

/// The secret of one login, sent only with its code.
#[derive(Clone)]
pub struct CodeVerifier(String);

impl CodeVerifier {
    /// From 32 bytes of a secure random source.
    #[must_use]
    pub fn from_random(random: [u8; 32]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(random))
    }

    /// The verifier for the token request.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Sent in the authorization request.
    #[must_use]
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, self.0.as_bytes()))
    }
}

impl std::fmt::Debug for CodeVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CodeVerifier(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7636, appendix B.
    #[test]
    fn the_challenge_matches_the_rfc_example() {
        let bytes = [
            116, 24, 223, 180, 151, 153, 224, 37, 79, 250, 96, 125, 216, 173, 187, 186, 22, 212,
            37, 77, 105, 214, 191, 240, 91, 88, 5, 88, 83, 132, 141, 121,
        ];
        let verifier = CodeVerifier::from_random(bytes);
        assert_eq!(
            verifier.as_str(),
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
        );
        assert_eq!(
            verifier.challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
        assert_eq!(format!("{verifier:?}"), "CodeVerifier(…)");
    }
}
