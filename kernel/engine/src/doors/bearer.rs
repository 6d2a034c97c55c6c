//! Access tokens signed by another authority (OAuth 2.1, RFC 9068): whether a token is valid here and now, and which
//! agent it names.
//!
//! The client cannot influence the algorithm: the configuration lists the accepted ones, and the key's type selects
//! among them. Unsigned tokens, and those signed with a shared secret, are never accepted.

mod keys;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mgp_json::{find_duplicate, members};
use mgp_protocol::ids::{AgentId, GroupName};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::policy::access::{ClaimedGroups, EntryEffect};

#[cfg(test)]
pub(crate) use self::keys::MAX_KEYS;
pub(super) use self::keys::ProofKey;
pub use self::keys::{Algorithm, IssuerKeys};

/// Longest token that is parsed, in bytes; real ones have one or two thousand.
pub(crate) const TOKEN_LEN_MAX: usize = 16 << 10;

/// How far the clocks of two machines may be apart.
const LEEWAY_MS: u64 = 30_000;

/// The requirements for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerPolicy {
    /// Its issuer.
    pub issuer: String,
    /// The accepted algorithms.
    pub algorithms: Vec<Algorithm>,
    /// The claim that names the agent.
    pub agent_claim: String,
    /// The scopes it must have, all of them.
    pub scopes: Vec<String>,
    /// The groups that its claims give.
    pub groups: GroupMapping,
}

/// What the operator makes of the issuer's groups. A claim gives nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMapping {
    /// The claim that lists the issuer's groups.
    pub claim: String,
    /// The group of each of the issuer's that is known here.
    pub map: BTreeMap<String, GroupName>,
    /// The scope that a token needs for what a group is allowed.
    pub scopes: BTreeMap<GroupName, String>,
}

impl GroupMapping {
    /// The groups that these claims give, each once.
    pub(super) fn read(
        &self,
        claims: &Map<String, Value>,
    ) -> Result<BTreeSet<GroupName>, BadBearerToken> {
        if self.map.is_empty() {
            return Ok(BTreeSet::new());
        }
        // Groups that are elsewhere (OpenID Connect, section 5.6.2): whoever is in many would lose what is denied to them.
        match claims.get("_claim_names") {
            None | Some(Value::Null) => {}
            Some(Value::Object(names)) if !names.contains_key(&self.claim) => {}
            Some(_) => return Err(BadBearerToken::Groups),
        }
        let named = match claims.get(&self.claim) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(all)) => {
                let all: Option<Vec<&str>> = all.iter().map(Value::as_str).collect();
                all.ok_or(BadBearerToken::Groups)?
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                return Err(BadBearerToken::Groups);
            }
        };
        let groups = named.into_iter().filter_map(|name| self.map.get(name));
        Ok(groups.cloned().collect())
    }

    /// What those of these groups count for that the mapping has, with these scopes. A group without its scope only closes:
    /// a scope takes away, and gives nothing.
    #[must_use]
    pub fn apply(&self, groups: &BTreeSet<GroupName>, scopes: &[&str]) -> ClaimedGroups {
        let is_mapped = |group: &&GroupName| self.map.values().any(|mapped| mapped == *group);
        let groups = groups.iter().filter(is_mapped).map(|group| {
            let needed = self.scopes.get(group);
            let has_scope = needed.is_none_or(|needed| scopes.contains(&needed.as_str()));
            let effect = if has_scope {
                EntryEffect::Whole
            } else {
                EntryEffect::Closing
            };
            (group.id(), effect)
        });
        ClaimedGroups::new(groups.collect())
    }

    /// Identifies what is read from claims; empty if nothing is.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        if self.map.is_empty() {
            return String::new();
        }
        let json = serde_json::to_vec(&(&self.claim, &self.map)).expect("texts are JSON");
        URL_SAFE_NO_PAD.encode(blake3::hash(&json).as_bytes())
    }
}

/// A valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The agent it names.
    pub agent: AgentId,
    /// When it expires, in milliseconds since 1970.
    pub not_after_ms: u64,
    /// The groups it gives.
    pub groups: ClaimedGroups,
    /// The thumbprint of the key that it is bound to (RFC 9449, section 6).
    pub bound_to: Option<String>,
}

/// Why a token is rejected. The messages repeat nothing of the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBearerToken {
    /// It is not a signed token.
    #[error("it is no signed JSON Web Token")]
    Malformed,
    /// A claim occurs twice: another parser may use the other one.
    #[error("a claim stands in it twice")]
    DuplicateClaim,
    /// It is signed with an algorithm that is not accepted.
    #[error("its algorithm is not one of those configured")]
    Algorithm,
    /// None of the issuer's keys has its `kid`.
    #[error("none of the issuer's keys made it")]
    UnknownKey,
    /// The signature is wrong.
    #[error("its signature is not valid")]
    Signature,
    /// It is from another issuer.
    #[error("its issuer is another one")]
    Issuer,
    /// It is for another audience (RFC 8707).
    #[error("it was issued for another audience")]
    Audience,
    /// Its expiry is missing or invalid, or its start is invalid.
    #[error("it does not say until when it is good")]
    BadTimes,
    /// It has expired, at this time in milliseconds since 1970.
    #[error("it expired")]
    Expired(u64),
    /// It is not valid yet.
    #[error("it is not valid yet")]
    NotYetValid,
    /// Its subject cannot be the name of an agent.
    #[error("the claim that names the agent is missing or names none")]
    Subject,
    /// Its groups are not in it, or are no list of texts: what is denied to them would not count.
    #[error(
        "the claim that lists its groups is no list of texts, or is left out because it is long"
    )]
    Groups,
    /// It lacks a scope.
    #[error("it lacks a scope")]
    Scope,
    /// It is bound to something else than a DPoP key, which cannot be checked here (RFC 7800, section 3.1).
    #[error("it is bound to something that is not checked here")]
    Binding,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    typ: Option<String>,
    /// Extensions that must be understood; none are supported.
    #[serde(default)]
    crit: Option<Value>,
}

/// Checks whether a token is valid at `now_ms` for one of these audiences.
///
/// # Errors
/// [`BadBearerToken`].
pub fn verify(
    token: &str,
    keys: &IssuerKeys,
    policy: &BearerPolicy,
    audiences: &[String],
    now_ms: u64,
) -> Result<VerifiedToken, BadBearerToken> {
    let claims = verify_signature(token, keys, &policy.algorithms, &["jwt", "at+jwt"])?;
    check_claims(&claims, policy, audiences, now_ms)
}

/// The claims of a token with a valid signature and one of these types; they are not checked yet.
pub(super) fn verify_signature(
    token: &str,
    keys: &IssuerKeys,
    algorithms: &[Algorithm],
    types: &[&str],
) -> Result<Map<String, Value>, BadBearerToken> {
    let (signed, signature) = token.rsplit_once('.').ok_or(BadBearerToken::Malformed)?;
    let (head, body) = signed.split_once('.').ok_or(BadBearerToken::Malformed)?;
    if token.len() > TOKEN_LEN_MAX || body.contains('.') {
        return Err(BadBearerToken::Malformed);
    }
    let header: Header = decode_part(head)?;
    let typ = header.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
    let typ = typ.strip_prefix("application/").unwrap_or(&typ);
    if header.crit.is_some() || !types.contains(&typ) {
        return Err(BadBearerToken::Malformed);
    }
    let algorithm = Algorithm::parse(&header.alg)
        .filter(|algorithm| algorithms.contains(algorithm))
        .ok_or(BadBearerToken::Algorithm)?;
    let signature = decode_base64(signature)?;
    keys.verify(
        algorithm,
        header.kid.as_deref(),
        signed.as_bytes(),
        &signature,
    )?;
    decode_claims(body)
}

pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, BadBearerToken> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| BadBearerToken::Malformed)
}

pub(super) fn decode_part<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, BadBearerToken> {
    serde_json::from_slice(&decode_base64(text)?).map_err(|_| BadBearerToken::Malformed)
}

/// The claims of a token, each of which must be unique (RFC 7519, section 4): however a name is escaped, parsers may
/// differ on its value if it occurs twice.
pub(super) fn decode_claims(body: &str) -> Result<Map<String, Value>, BadBearerToken> {
    let text = String::from_utf8(decode_base64(body)?).map_err(|_| BadBearerToken::Malformed)?;
    let claims = members(&text).ok_or(BadBearerToken::Malformed)?;
    let mut names: Vec<_> = claims.into_iter().map(|(name, _)| name).collect();
    if find_duplicate(&mut names).is_some() {
        return Err(BadBearerToken::DuplicateClaim);
    }
    serde_json::from_str(&text).map_err(|_| BadBearerToken::Malformed)
}

/// Checks the claims of a token with a valid signature.
fn check_claims(
    claims: &Map<String, Value>,
    policy: &BearerPolicy,
    audiences: &[String],
    now_ms: u64,
) -> Result<VerifiedToken, BadBearerToken> {
    if claims.get("iss").and_then(Value::as_str) != Some(&policy.issuer) {
        return Err(BadBearerToken::Issuer);
    }
    let plain = |text: &str| text.trim_end_matches('/').to_owned();
    let meant = |said: &&str| audiences.iter().any(|own| plain(own) == plain(said));
    if !string_list(claims.get("aud")).iter().any(meant) {
        return Err(BadBearerToken::Audience);
    }
    let end = check_times(claims, now_ms)?;
    let agent = find_agent(claims, &policy.agent_claim)?;
    let scopes: Vec<&str> = ["scope", "scp"]
        .iter()
        .flat_map(|name| string_list(claims.get(*name)))
        .flat_map(str::split_ascii_whitespace)
        .collect();
    if !policy
        .scopes
        .iter()
        .all(|wanted| scopes.contains(&wanted.as_str()))
    {
        return Err(BadBearerToken::Scope);
    }
    let groups = policy.groups.apply(&policy.groups.read(claims)?, &scopes);
    Ok(VerifiedToken {
        agent,
        groups,
        not_after_ms: end,
        bound_to: find_binding(claims)?,
    })
}

/// When a token is not accepted any more, with the leeway.
pub(super) fn check_times(claims: &Map<String, Value>, now_ms: u64) -> Result<u64, BadBearerToken> {
    let end = claims
        .get("exp")
        .and_then(seconds_to_ms)
        .ok_or(BadBearerToken::BadTimes)?;
    if end.saturating_add(LEEWAY_MS) <= now_ms {
        return Err(BadBearerToken::Expired(end));
    }
    if let Some(begin) = claims.get("nbf") {
        let begin = seconds_to_ms(begin).ok_or(BadBearerToken::BadTimes)?;
        if begin > now_ms.saturating_add(LEEWAY_MS) {
            return Err(BadBearerToken::NotYetValid);
        }
    }
    Ok(end.saturating_add(LEEWAY_MS))
}

/// The agent that a claim names.
pub(super) fn find_agent(
    claims: &Map<String, Value>,
    name: &str,
) -> Result<AgentId, BadBearerToken> {
    let subject = claims.get(name).and_then(Value::as_str);
    // Its id would be read as that of another agent, and no command could name it.
    let is_plain = |subject: &&str| {
        let begin = subject.get(..AgentId::PREFIX.len());
        !begin.is_some_and(|begin| begin.eq_ignore_ascii_case(AgentId::PREFIX))
    };
    let subject = subject.filter(is_plain);
    let agent = subject.and_then(|subject| AgentId::from_subject(subject).ok());
    agent.ok_or(BadBearerToken::Subject)
}

/// The key that a token is bound to. A binding that is not understood may not be ignored: whoever stole the token could
/// use it.
pub(super) fn find_binding(claims: &Map<String, Value>) -> Result<Option<String>, BadBearerToken> {
    match claims.get("cnf") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(members)) if members.len() == 1 => {
            let key = members.get("jkt").and_then(Value::as_str);
            key.map(|key| Some(key.to_owned()))
                .ok_or(BadBearerToken::Binding)
        }
        Some(
            Value::Object(_)
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_),
        ) => Err(BadBearerToken::Binding),
    }
}

/// One text, or a list of them.
pub(super) fn string_list(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => vec![],
    }
}

/// Converts a time in a token from seconds to milliseconds.
fn seconds_to_ms(value: &Value) -> Option<u64> {
    let seconds = value.as_f64().filter(|s| s.is_finite() && *s >= 0.0)?;
    Some((seconds * 1000.0) as u64)
}

#[cfg(test)]
mod tests;
