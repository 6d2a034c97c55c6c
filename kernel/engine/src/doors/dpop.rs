//! DPoP at the door (RFC 9449): whether a request was sent by who owns the key of its token, and was not sent before.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mgp_protocol::ids::AgentId;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use super::bearer::{self, Algorithm, BadBearerToken, ProofKey};

/// Longest proof that is parsed, in bytes; one with a large RSA key has two thousand.
const PROOF_LEN_MAX: usize = 8 << 10;
/// Longest `jti`, in bytes.
const ID_LEN_MAX: usize = 256;
/// How old a proof may be, and how far ahead the clock of its sender.
const WINDOW_MS: u64 = 60_000;
/// Most remembered proofs: 500 calls a second for the two minutes in which one could be replayed. At the bound a proof is
/// rejected, and accepted when it is sent again later.
const PROOFS_MAX: usize = 65_536;
/// The same for one agent, so that no agent fills the table for others.
const AGENT_PROOFS_MAX: usize = PROOFS_MAX / 4;

/// The request that a proof is sent with.
#[derive(Clone, Copy, Debug)]
pub struct ProvenRequest<'a> {
    /// Its method.
    pub method: &'a str,
    /// The URLs that the client may have used for it.
    pub urls: &'a [String],
    /// The access token beside it; `None` at the token endpoint.
    pub token: Option<&'a str>,
}

/// A valid proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedProof {
    /// The thumbprint of its key.
    pub key: String,
    /// Identifies the proof among those of all keys.
    id: [u8; 16],
}

/// Why a proof is rejected. The messages repeat nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProof {
    /// There is none, or more than one.
    #[error("a bound token wants one proof, in the header `DPoP`")]
    Missing,
    /// It is no proof.
    #[error("the proof is no signed JSON Web Token of the type dpop+jwt")]
    Malformed,
    /// It is signed with an algorithm that is not accepted.
    #[error("the proof is signed with an algorithm that is not accepted")]
    Algorithm,
    /// Its header has no usable public key.
    #[error("the proof has no public key that can be used")]
    Key,
    /// The signature is wrong.
    #[error("the signature of the proof is not valid")]
    Signature,
    /// It was made for another method, URL or token.
    #[error("the proof was made for another request")]
    Request,
    /// It is too old, or from the future.
    #[error("the proof was not made within the last minute")]
    Stale,
    /// It was sent before.
    #[error("the proof was used already")]
    Replayed,
    /// Too many proofs are remembered.
    #[error("too many proofs came within two minutes")]
    TooMany,
    /// The token is bound to another key.
    #[error("the token is bound to another key than that of the proof")]
    OtherKey,
    /// The token is not bound to a key, or was sent without its proof.
    #[error(
        "a token that is bound to a key is sent as `Authorization: DPoP`, any other as `Bearer`"
    )]
    Scheme,
}

#[derive(Deserialize)]
struct Header {
    typ: String,
    alg: String,
    jwk: Value,
    #[serde(default)]
    crit: Option<Value>,
}

/// Checks a proof for a request at `now_ms`. Replays are [`ProofReplays`]'s.
///
/// # Errors
/// [`BadProof`].
pub fn verify_proof(
    proof: &str,
    request: ProvenRequest<'_>,
    now_ms: u64,
) -> Result<VerifiedProof, BadProof> {
    let malformed = |_: BadBearerToken| BadProof::Malformed;
    let (signed, signature) = proof.rsplit_once('.').ok_or(BadProof::Malformed)?;
    let (head, body) = signed.split_once('.').ok_or(BadProof::Malformed)?;
    if proof.len() > PROOF_LEN_MAX || body.contains('.') {
        return Err(BadProof::Malformed);
    }
    let header: Header = bearer::decode_part(head).map_err(malformed)?;
    if header.typ != "dpop+jwt" || header.crit.is_some() {
        return Err(BadProof::Malformed);
    }
    let algorithm = Algorithm::parse(&header.alg).ok_or(BadProof::Algorithm)?;
    let key = ProofKey::from_jwk(&header.jwk).ok_or(BadProof::Key)?;
    let signature = bearer::decode_base64(signature).map_err(malformed)?;
    if !key.verify(algorithm, signed.as_bytes(), &signature) {
        return Err(BadProof::Signature);
    }
    let claims = bearer::decode_claims(body).map_err(malformed)?;
    check_claims(&claims, request, now_ms)?;
    let id = text(&claims, "jti").filter(|id| (1..=ID_LEN_MAX).contains(&id.len()));
    let id = id.ok_or(BadProof::Malformed)?;
    let hash = blake3::hash(format!("{}\0{id}", key.thumbprint).as_bytes());
    let (id, _) = hash
        .as_bytes()
        .split_first_chunk()
        .expect("a hash is longer");
    Ok(VerifiedProof {
        id: *id,
        key: key.thumbprint,
    })
}

fn text<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c str> {
    claims.get(name).and_then(Value::as_str)
}

fn check_claims(
    claims: &Map<String, Value>,
    request: ProvenRequest<'_>,
    now_ms: u64,
) -> Result<(), BadProof> {
    let url = text(claims, "htu").and_then(normalize_url);
    let url = url.ok_or(BadProof::Request)?;
    let urls = request.urls.iter().filter_map(|url| normalize_url(url));
    let hash = |token: &str| URL_SAFE_NO_PAD.encode(digest(&SHA256, token.as_bytes()));
    let is_request = text(claims, "htm") == Some(request.method)
        && urls.into_iter().any(|own| own == url)
        && text(claims, "ath") == request.token.map(hash).as_deref();
    if !is_request {
        return Err(BadProof::Request);
    }
    let made = claims.get("iat").and_then(Value::as_f64);
    let made = made.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let made_ms = (made.ok_or(BadProof::Malformed)? * 1000.0) as u64;
    if made_ms.abs_diff(now_ms) > WINDOW_MS {
        return Err(BadProof::Stale);
    }
    Ok(())
}

/// Without query and fragment (RFC 9449, section 4.3), and as RFC 3986 normalizes it.
fn normalize_url(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    Some(url.into())
}

/// The proofs of the last minutes. Two sets take turns: a proof is remembered for at least as long as it is accepted.
#[derive(Debug, Default)]
pub struct ProofReplays {
    current: ProofSet,
    previous: ProofSet,
    begun_ms: u64,
}

#[derive(Debug, Default)]
struct ProofSet {
    ids: HashSet<[u8; 16]>,
    counts: HashMap<AgentId, usize>,
}

impl ProofReplays {
    /// Remembers the proof of an agent whose token is valid.
    ///
    /// # Errors
    /// [`BadProof::Replayed`], [`BadProof::TooMany`].
    pub fn remember(
        &mut self,
        proof: &VerifiedProof,
        agent: &AgentId,
        now_ms: u64,
    ) -> Result<(), BadProof> {
        // A proof may be made a minute ahead, and is accepted until a minute after that.
        if now_ms.saturating_sub(self.begun_ms) > 2 * WINDOW_MS {
            self.previous = std::mem::take(&mut self.current);
            if now_ms.saturating_sub(self.begun_ms) > 4 * WINDOW_MS {
                self.previous = ProofSet::default();
            }
            self.begun_ms = now_ms;
        }
        if self.current.ids.contains(&proof.id) || self.previous.ids.contains(&proof.id) {
            return Err(BadProof::Replayed);
        }
        let own = self.current.counts.get(agent).copied().unwrap_or(0);
        if self.current.ids.len() >= PROOFS_MAX || own >= AGENT_PROOFS_MAX {
            return Err(BadProof::TooMany);
        }
        self.current.ids.insert(proof.id);
        self.current.counts.insert(agent.clone(), own + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use super::*;
    use crate::servers::login::dpop::{DpopClaims, DpopKey};

    const NOW: u64 = 1_800_000_000_000;

    fn claims<'a>() -> DpopClaims<'a> {
        DpopClaims {
            method: "POST",
            url: "https://h/mcp?x=1",
            token: Some("t"),
            nonce: None,
            id: "1",
            now: NOW / 1000,
        }
    }

    fn verify(proof: &str) -> Result<VerifiedProof, BadProof> {
        let request = ProvenRequest {
            method: "POST",
            urls: &["https://other/mcp".into(), "https://h:443/mcp".into()],
            token: Some("t"),
        };
        verify_proof(proof, request, NOW)
    }

    /// EXT-232: a proof holds for its method, URL, token and minute, and for nothing else.
    #[test]
    fn proof_is_valid_for_one_request() {
        let rng = SystemRandom::new();
        let key = DpopKey::new(&rng).unwrap();
        let sign = |claims: DpopClaims<'_>| key.sign_proof(claims, &rng).unwrap();
        let good = sign(claims());
        assert!(verify(&good).is_ok());
        let others = [
            DpopClaims {
                method: "GET",
                ..claims()
            },
            DpopClaims {
                url: "https://h/mcp/files",
                ..claims()
            },
            DpopClaims {
                url: "http://h/mcp",
                ..claims()
            },
            DpopClaims {
                token: Some("u"),
                ..claims()
            },
            DpopClaims {
                token: None,
                ..claims()
            },
        ];
        for other in others {
            assert_eq!(verify(&sign(other)), Err(BadProof::Request), "{other:?}");
        }
        for now in [NOW / 1000 - 61, NOW / 1000 + 61] {
            let stale = sign(DpopClaims { now, ..claims() });
            assert_eq!(verify(&stale), Err(BadProof::Stale), "{now}");
        }
        let no_id = sign(DpopClaims { id: "", ..claims() });
        assert_eq!(verify(&no_id), Err(BadProof::Malformed));
        let (signed, _) = good.rsplit_once('.').unwrap();
        let other = DpopKey::new(&rng)
            .unwrap()
            .sign_proof(claims(), &rng)
            .unwrap();
        let (_, signature) = other.rsplit_once('.').unwrap();
        let forged = format!("{signed}.{signature}");
        assert_eq!(verify(&forged), Err(BadProof::Signature));
    }

    fn with_header(header: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.AAAA", part(header), part(&serde_json::json!({})))
    }

    #[test]
    fn proof_needs_a_public_key_and_an_asymmetric_signature() {
        let jwk = serde_json::json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
        let header =
            |alg: &str, jwk: &Value| serde_json::json!({"typ": "dpop+jwt", "alg": alg, "jwk": jwk});
        for alg in ["none", "HS256"] {
            let proof = with_header(&header(alg, &jwk));
            assert_eq!(verify(&proof), Err(BadProof::Algorithm), "{alg}");
        }
        let secret = serde_json::json!({"kty": "oct", "k": "AAAA"});
        let mut private = serde_json::json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"});
        private["d"] = "AA".into();
        for jwk in [&secret, &private, &jwk] {
            let proof = with_header(&header("ES256", jwk));
            assert_eq!(verify(&proof), Err(BadProof::Key), "{jwk}");
        }
        let mut typ = header("ES256", &jwk);
        typ["typ"] = "JWT".into();
        assert_eq!(verify(&with_header(&typ)), Err(BadProof::Malformed));
    }

    /// RFC 7638, section 3.1.
    #[test]
    fn thumbprint_matches_the_rfc_example() {
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let jwk = serde_json::json!({"kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256"});
        let key = ProofKey::from_jwk(&jwk).unwrap();
        assert_eq!(
            key.thumbprint,
            "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
        );
    }

    /// EXT-232: a proof opens once, for as long as its time is accepted; one agent leaves room for others.
    #[test]
    fn proof_is_remembered_for_as_long_as_it_is_accepted() {
        let agent = |name: &str| AgentId::new(format!("agent.{name}"));
        let proof = |n: u64| VerifiedProof {
            key: String::new(),
            id: u128::from(n).to_le_bytes(),
        };
        let mut replays = ProofReplays::default();
        let at = |n: u64| NOW + n * 1000;
        assert_eq!(replays.remember(&proof(0), &agent("a"), at(0)), Ok(()));
        for later in [0, 60, 119, 121, 130] {
            let again = replays.remember(&proof(0), &agent("a"), at(later));
            assert_eq!(again, Err(BadProof::Replayed), "{later}");
        }
        assert_eq!(replays.remember(&proof(0), &agent("a"), at(700)), Ok(()));
        let mut replays = ProofReplays::default();
        let full = AGENT_PROOFS_MAX as u64;
        for n in 0..full {
            replays.remember(&proof(n), &agent("a"), at(0)).unwrap();
        }
        let further = replays.remember(&proof(full), &agent("a"), at(0));
        assert_eq!(further, Err(BadProof::TooMany));
        assert_eq!(replays.remember(&proof(full), &agent("b"), at(0)), Ok(()));
    }
}
