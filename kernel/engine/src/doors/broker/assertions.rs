//! What the identity provider signs for the broker: the ID token of a person who signed in (OpenID Connect Core, section
//! 3.1.3.7), and the assertion that stands for a person (ID-JAG, SEP-990).

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::{AgentId, GroupName};
use serde_json::{Map, Value};

use super::OauthError;
use crate::doors::bearer::{
    self, Algorithm, BadBearerToken, GroupMapping, IssuerKeys, check_times, find_agent,
    find_binding, string_list,
};

/// Longest lifetime of an assertion, in milliseconds: its id is remembered for that long. ID-JAGs live for minutes.
const ASSERTION_LIFETIME_MAX_MS: u64 = 3_600_000;
/// Longest id of an assertion, in bytes.
const ID_BYTES_MAX: usize = 256;

/// The provider, and who may sign in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPolicy {
    /// The issuer.
    pub issuer: String,
    /// The kernel's client id there.
    pub client_id: String,
    /// The accepted algorithms.
    pub algorithms: Vec<Algorithm>,
    /// The claim that names the agent.
    pub agent_claim: String,
    /// Claims that a person must have: with this value, or with it in a list.
    pub required_claims: BTreeMap<String, String>,
    /// The groups that the claims of a person give.
    pub groups: GroupMapping,
}

/// A person, as the provider knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The agent.
    pub agent: AgentId,
    /// The groups that the claims gave.
    pub groups: BTreeSet<GroupName>,
}

/// Why the provider's statement is not accepted. The messages repeat nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAssertion {
    /// As for every signed token.
    #[error(transparent)]
    Token(#[from] BadBearerToken),
    /// It was issued through another client.
    #[error("it was issued for another client")]
    AuthorizedParty,
    /// It answers another sign-in.
    #[error("its nonce is not that of this sign-in")]
    Nonce,
    /// The provider has not verified the address that names the agent.
    #[error("its email address is not verified")]
    UnverifiedEmail,
    /// A claim of `require_claims` is missing or differs.
    #[error("the claim {0:?} is not as `require_claims` has it")]
    Claim(String),
    /// It has no id, or lives for too long to remember it.
    #[error("its id is missing, or it is valid for more than an hour")]
    Id,
    /// It is for another resource.
    #[error("it is for another resource")]
    Resource,
}

/// The person that an ID token is about.
///
/// # Errors
/// [`BadAssertion`].
pub fn verify_id_token(
    token: &str,
    keys: &IssuerKeys,
    policy: &ProviderPolicy,
    nonce: &str,
    now_ms: u64,
) -> Result<Person, BadAssertion> {
    let claims = bearer::verify_signature(token, keys, &policy.algorithms, &["jwt"])?;
    check_issuer(&claims, policy)?;
    let own = |it: &&str| *it == policy.client_id;
    let audiences = string_list(claims.get("aud"));
    if !audiences.iter().any(own) {
        return Err(BadBearerToken::Audience.into());
    }
    let party = claims.get("azp").map(|party| party.as_str());
    let is_own_party = party.map_or(audiences.len() == 1, |it| it == Some(&policy.client_id));
    if !is_own_party {
        return Err(BadAssertion::AuthorizedParty);
    }
    check_times(&claims, now_ms)?;
    if claims.get("nonce").and_then(Value::as_str) != Some(nonce) {
        return Err(BadAssertion::Nonce);
    }
    find_person(&claims, policy)
}

/// An accepted ID-JAG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonAssertion {
    /// The person.
    pub person: Person,
    /// The resource, if it names one.
    pub resource: Option<String>,
    /// Its id, which is accepted once.
    pub id: String,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: u64,
    /// The thumbprint of the key that it is bound to.
    pub bound_to: Option<String>,
}

/// The person that an ID-JAG for `audience`, the issuer of the broker, and this client is about.
///
/// # Errors
/// [`BadAssertion`].
pub fn verify_id_jag(
    token: &str,
    keys: &IssuerKeys,
    policy: &ProviderPolicy,
    (audience, client): (&str, &str),
    now_ms: u64,
) -> Result<PersonAssertion, BadAssertion> {
    let claims = bearer::verify_signature(token, keys, &policy.algorithms, &["oauth-id-jag+jwt"])?;
    check_issuer(&claims, policy)?;
    if string_list(claims.get("aud")) != [audience] {
        return Err(BadBearerToken::Audience.into());
    }
    if claims.get("client_id").and_then(Value::as_str) != Some(client) {
        return Err(BadAssertion::AuthorizedParty);
    }
    let expires_ms = check_times(&claims, now_ms)?;
    let id = claims.get("jti").and_then(Value::as_str);
    let id = id.filter(|id| (1..=ID_BYTES_MAX).contains(&id.len()));
    let is_short = expires_ms.saturating_sub(now_ms) <= ASSERTION_LIFETIME_MAX_MS + 60_000;
    let id = id.filter(|_| is_short).ok_or(BadAssertion::Id)?;
    let resource = match string_list(claims.get("resource"))[..] {
        [] => None,
        [one] => Some(one.to_owned()),
        _ => return Err(BadAssertion::Resource),
    };
    Ok(PersonAssertion {
        person: find_person(&claims, policy)?,
        resource,
        id: id.to_owned(),
        expires_ms,
        bound_to: find_binding(&claims)?,
    })
}

fn check_issuer(claims: &Map<String, Value>, policy: &ProviderPolicy) -> Result<(), BadAssertion> {
    match claims.get("iss").and_then(Value::as_str) {
        Some(issuer) if issuer == policy.issuer => Ok(()),
        Some(_) | None => Err(BadBearerToken::Issuer.into()),
    }
}

fn find_person(
    claims: &Map<String, Value>,
    policy: &ProviderPolicy,
) -> Result<Person, BadAssertion> {
    for (name, wanted) in &policy.required_claims {
        let value = claims.get(name);
        let has = string_list(value).contains(&wanted.as_str())
            || value
                .and_then(Value::as_bool)
                .map(|it| it.to_string())
                .as_ref()
                == Some(wanted);
        if !has {
            return Err(BadAssertion::Claim(name.clone()));
        }
    }
    // Where people choose their address, one that is not verified may be another person's.
    let verified = claims.get("email_verified");
    let is_verified = matches!(verified, Some(Value::Bool(true)))
        || verified.and_then(Value::as_str) == Some("true");
    if policy.agent_claim == "email" && !is_verified {
        return Err(BadAssertion::UnverifiedEmail);
    }
    Ok(Person {
        agent: find_agent(claims, &policy.agent_claim)?,
        groups: policy.groups.read(claims)?,
    })
}

/// The ids of used assertions, until they expire.
#[derive(Debug, Default)]
pub struct UsedAssertions {
    ids: BTreeMap<String, u64>,
}

/// Most remembered ids. Only assertions that the provider signed are remembered; at the bound further ones fail until one
/// expires.
const USED_MAX: usize = 16_384;

impl UsedAssertions {
    /// Remembers an assertion.
    ///
    /// # Errors
    /// `invalid_grant` if it was used before, `temporarily_unavailable` at the bound.
    pub fn remember(&mut self, assertion: &PersonAssertion, now_ms: u64) -> Result<(), OauthError> {
        if self.ids.len() >= USED_MAX {
            self.ids.retain(|_, end| *end > now_ms);
        }
        if self.ids.contains_key(&assertion.id) {
            return Err(OauthError::invalid_grant("the assertion was used before"));
        }
        if self.ids.len() >= USED_MAX {
            let why = "too many assertions within an hour; try again later";
            return Err(OauthError::new("temporarily_unavailable", why));
        }
        self.ids.insert(assertion.id.clone(), assertion.expires_ms);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn pair() -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap()
    }

    fn keys() -> IssuerKeys {
        let x = URL_SAFE_NO_PAD.encode(pair().public_key().as_ref());
        let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": x}]});
        IssuerKeys::parse(set.to_string().as_bytes()).unwrap()
    }

    fn sign(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = pair().sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn policy() -> ProviderPolicy {
        ProviderPolicy {
            issuer: "https://idp".into(),
            client_id: "kernel".into(),
            algorithms: vec![Algorithm::EdDsa],
            agent_claim: "email".into(),
            required_claims: BTreeMap::from([
                ("hd".to_owned(), "example.com".to_owned()),
                ("groups".to_owned(), "mcp".to_owned()),
            ]),
            groups: GroupMapping {
                claim: "teams".into(),
                map: BTreeMap::from([("Eng".to_owned(), GroupName::parse("readers").unwrap())]),
                scopes: BTreeMap::new(),
            },
        }
    }

    fn claims() -> Value {
        json!({
            "iss": "https://idp", "aud": "kernel", "nonce": "n", "email": "ada@example.com",
            "email_verified": true, "hd": "example.com", "groups": ["x", "mcp"],
            "exp": NOW / 1000 + 300,
        })
    }

    fn verify(header: &Value, changes: &[(&str, Value)]) -> Result<Person, BadAssertion> {
        let mut claims = claims();
        for (name, value) in changes {
            claims[*name] = value.clone();
        }
        verify_id_token(&sign(header, &claims), &keys(), &policy(), "n", NOW)
    }

    /// EXT-229: an ID token counts for this client, this sign-in and these people, and only if it is signed.
    #[test]
    fn id_token_is_for_this_client_and_sign_in() {
        let header = json!({"alg": "EdDSA", "kid": "k", "typ": "JWT"});
        let good = verify(&header, &[]).unwrap();
        assert_eq!(good.agent.to_string(), "agent.ada%40example.com");
        assert_eq!(good.groups, BTreeSet::new());
        let teams = [("teams", json!(["Eng", "group.readers", "readers"]))];
        let readers = BTreeSet::from([GroupName::parse("readers").unwrap()]);
        assert_eq!(verify(&header, &teams).unwrap().groups, readers);
        let list = [
            ("aud", json!(["kernel", "other"])),
            ("azp", json!("kernel")),
        ];
        assert!(verify(&header, &list).is_ok());
        let token = BadAssertion::Token;
        let claim = |name: &str| BadAssertion::Claim(name.into());
        for (name, value, wanted) in [
            ("iss", json!("https://evil"), token(BadBearerToken::Issuer)),
            ("iss", json!("https://idp/"), token(BadBearerToken::Issuer)),
            ("iss", json!(null), token(BadBearerToken::Issuer)),
            ("aud", json!("other"), token(BadBearerToken::Audience)),
            ("aud", json!(null), token(BadBearerToken::Audience)),
            (
                "aud",
                json!(["kernel", "other"]),
                BadAssertion::AuthorizedParty,
            ),
            ("azp", json!("other"), BadAssertion::AuthorizedParty),
            ("azp", json!(null), BadAssertion::AuthorizedParty),
            ("nonce", json!("m"), BadAssertion::Nonce),
            ("nonce", json!(null), BadAssertion::Nonce),
            ("exp", json!(null), token(BadBearerToken::BadTimes)),
            ("hd", json!("example.org"), claim("hd")),
            ("hd", json!(null), claim("hd")),
            ("groups", json!(["mcpx"]), claim("groups")),
            (
                "email_verified",
                json!(false),
                BadAssertion::UnverifiedEmail,
            ),
            (
                "email_verified",
                json!("false"),
                BadAssertion::UnverifiedEmail,
            ),
            ("email_verified", json!(null), BadAssertion::UnverifiedEmail),
            ("email_verified", json!(1), BadAssertion::UnverifiedEmail),
            ("email", json!("agent.eve"), token(BadBearerToken::Subject)),
            ("teams", json!({"Eng": true}), token(BadBearerToken::Groups)),
            (
                "_claim_names",
                json!({"teams": "src1"}),
                token(BadBearerToken::Groups),
            ),
            ("email", json!("operator"), token(BadBearerToken::Subject)),
            ("email", json!(null), token(BadBearerToken::Subject)),
        ] {
            assert_eq!(
                verify(&header, &[(name, value.clone())]),
                Err(wanted),
                "{name} {value}"
            );
        }
        let expired = verify(&header, &[("exp", json!(NOW / 1000 - 60))]);
        assert!(matches!(
            expired,
            Err(BadAssertion::Token(BadBearerToken::Expired(_)))
        ));
        for (header, wanted) in [
            (json!({"alg": "none"}), BadBearerToken::Algorithm),
            (json!({"alg": "HS256"}), BadBearerToken::Algorithm),
            (
                json!({"alg": "EdDSA", "typ": "at+jwt"}),
                BadBearerToken::Malformed,
            ),
            (
                json!({"alg": "EdDSA", "typ": "oauth-id-jag+jwt"}),
                BadBearerToken::Malformed,
            ),
            (
                json!({"alg": "EdDSA", "kid": "l"}),
                BadBearerToken::UnknownKey,
            ),
        ] {
            assert_eq!(verify(&header, &[]), Err(token(wanted)), "{header}");
        }
    }

    fn verify_jag(
        header: &Value,
        changes: &[(&str, Value)],
    ) -> Result<PersonAssertion, BadAssertion> {
        let mut claims = claims();
        claims["aud"] = json!("https://door");
        claims["client_id"] = json!("desk");
        claims["jti"] = json!("1");
        claims["resource"] = json!("https://door/mcp");
        for (name, value) in changes {
            claims[*name] = value.clone();
        }
        let token = sign(header, &claims);
        verify_id_jag(&token, &keys(), &policy(), ("https://door", "desk"), NOW)
    }

    /// EXT-231: an assertion is for this door and the client that shows it, and counts once.
    #[test]
    fn assertion_is_for_this_door_and_its_client() {
        let header = json!({"alg": "EdDSA", "kid": "k", "typ": "oauth-id-jag+jwt"});
        let good = verify_jag(&header, &[]).unwrap();
        assert_eq!(good.resource.as_deref(), Some("https://door/mcp"));
        let bound = verify_jag(&header, &[("cnf", json!({"jkt": "k"}))]).unwrap();
        assert_eq!(bound.bound_to.as_deref(), Some("k"));
        let teams = verify_jag(&header, &[("teams", json!("Eng"))]).unwrap();
        let readers = BTreeSet::from([GroupName::parse("readers").unwrap()]);
        assert_eq!(teams.person.groups, readers);
        let token = BadAssertion::Token;
        for (name, value, wanted) in [
            ("iss", json!("https://evil"), token(BadBearerToken::Issuer)),
            (
                "aud",
                json!("https://other"),
                token(BadBearerToken::Audience),
            ),
            (
                "aud",
                json!(["https://door", "https://other"]),
                token(BadBearerToken::Audience),
            ),
            ("client_id", json!("other"), BadAssertion::AuthorizedParty),
            ("client_id", json!(null), BadAssertion::AuthorizedParty),
            ("jti", json!(null), BadAssertion::Id),
            ("jti", json!(""), BadAssertion::Id),
            (
                "cnf",
                json!({"x5t#S256": "k"}),
                token(BadBearerToken::Binding),
            ),
            ("exp", json!(NOW / 1000 + 7200), BadAssertion::Id),
            ("resource", json!(["a", "b"]), BadAssertion::Resource),
            ("hd", json!("example.org"), BadAssertion::Claim("hd".into())),
        ] {
            assert_eq!(
                verify_jag(&header, &[(name, value.clone())]),
                Err(wanted),
                "{name} {value}"
            );
        }
        let id_token = verify_jag(&json!({"alg": "EdDSA", "typ": "JWT"}), &[]);
        assert_eq!(id_token, Err(token(BadBearerToken::Malformed)));
        let mut used = UsedAssertions::default();
        assert!(used.remember(&good, NOW).is_ok());
        assert_eq!(
            used.remember(&good, NOW).unwrap_err().error,
            "invalid_grant"
        );
        for n in 2..=USED_MAX {
            let other = PersonAssertion {
                id: n.to_string(),
                ..good.clone()
            };
            used.remember(&other, NOW).unwrap();
        }
        let other = PersonAssertion {
            id: "x".into(),
            ..good.clone()
        };
        assert_eq!(
            used.remember(&other, NOW).unwrap_err().error,
            "temporarily_unavailable"
        );
        assert!(used.remember(&other, good.expires_ms).is_ok());
    }
}
