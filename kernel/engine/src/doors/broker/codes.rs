//! Authorization codes of people who signed in (RFC 6749, section 4.1.2).

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mgp_protocol::ids::AgentId;
use ring::digest::{SHA256, digest};

use super::OauthError;
use super::assertions::Person;
use super::sign_in::SignIn;
use crate::doors::agent_registry::TokenDigest;

/// How long a code is valid, in milliseconds: the time of a redirect.
pub(crate) const CODE_LIFETIME_MS: u64 = 60_000;
/// Most codes in all: 128 people at once with eight clients each. At the bound further sign-ins fail until one expires.
const CODES_MAX: usize = 1024;
/// Most codes of one agent; a further one replaces the oldest.
const AGENT_CODES_MAX: usize = 8;
/// Length of a code verifier in characters (RFC 7636, section 4.1).
const VERIFIER_LEN: std::ops::RangeInclusive<usize> = 43..=128;

/// The codes; only their hashes are stored.
#[derive(Debug, Default)]
pub struct Codes {
    codes: HashMap<TokenDigest, IssuedCode>,
}

#[derive(Debug)]
struct IssuedCode {
    person: Person,
    sign_in: SignIn,
    expires_ms: u64,
    /// The grant that it was exchanged for.
    grant: Option<String>,
}

/// What a client shows with a code.
#[derive(Clone, Copy, Debug)]
pub struct CodeRequest<'a> {
    /// The code.
    pub code: &'a str,
    /// The client.
    pub client: TokenDigest,
    /// The redirect URI of the authorization request.
    pub redirect_uri: &'a str,
    /// The PKCE verifier.
    pub verifier: &'a str,
    /// The resource, if it is named again.
    pub resource: Option<&'a str>,
}

/// Why a code is not exchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// It is invalid for this client.
    Invalid(OauthError),
    /// It was exchanged before: the grant of that exchange is in doubt, too (RFC 6749, section 4.1.2).
    Replayed {
        /// The grant.
        grant: String,
    },
}

impl Codes {
    /// Stores the code of a person who signed in.
    ///
    /// # Errors
    /// `temporarily_unavailable` at the bound.
    pub fn add(
        &mut self,
        code: &str,
        person: Person,
        sign_in: SignIn,
        now_ms: u64,
    ) -> Result<(), OauthError> {
        self.codes.retain(|_, code| code.expires_ms > now_ms);
        let own = self
            .codes
            .iter()
            .filter(|(_, code)| code.person.agent == person.agent);
        let oldest = own.clone().min_by_key(|(_, code)| code.expires_ms);
        if own.count() >= AGENT_CODES_MAX
            && let Some(digest) = oldest.map(|(digest, _)| *digest)
        {
            self.codes.remove(&digest);
        }
        if self.codes.len() >= CODES_MAX {
            let why = "too many people sign in; try again in a minute";
            return Err(OauthError::new("temporarily_unavailable", why));
        }
        let issued = IssuedCode {
            person,
            sign_in,
            expires_ms: now_ms + CODE_LIFETIME_MS,
            grant: None,
        };
        self.codes.insert(TokenDigest::new(code), issued);
        Ok(())
    }

    /// Exchanges a code for the grant with this id: its person and sign-in. A request that does not fit leaves the code for
    /// the client that it was issued to.
    ///
    /// # Errors
    /// [`CodeError`].
    pub fn redeem(
        &mut self,
        request: CodeRequest<'_>,
        grant: &str,
        now_ms: u64,
    ) -> Result<(Person, SignIn), CodeError> {
        let invalid = |why: &str| CodeError::Invalid(OauthError::invalid_grant(why));
        let found = self.codes.get_mut(&TokenDigest::new(request.code));
        let issued = found.filter(|code| code.expires_ms > now_ms);
        let issued = issued.ok_or_else(|| invalid("the code is unknown or expired"))?;
        let sign_in = &issued.sign_in;
        if sign_in.client != request.client || sign_in.redirect_uri != request.redirect_uri {
            return Err(invalid(
                "the code was issued to another client or redirect URI",
            ));
        }
        let hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, request.verifier.as_bytes()));
        if !VERIFIER_LEN.contains(&request.verifier.len()) || hash != sign_in.challenge {
            return Err(invalid(
                "`code_verifier` is not that of the authorization request",
            ));
        }
        let plain = |resource: &str| resource.trim_end_matches('/').to_owned();
        if request
            .resource
            .is_some_and(|asked| plain(asked) != sign_in.resource)
        {
            let why = "`resource` is another one than in the authorization request";
            return Err(CodeError::Invalid(OauthError::new("invalid_target", why)));
        }
        match issued.grant.replace(grant.to_owned()) {
            None => Ok((issued.person.clone(), sign_in.clone())),
            Some(grant) => Err(CodeError::Replayed { grant }),
        }
    }

    /// Removes the codes of an agent.
    pub fn remove_agent(&mut self, agent: &AgentId) {
        self.codes.retain(|_, code| code.person.agent != *agent);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::doors::broker::clients::Client;
    use crate::doors::broker::params::Params;
    use crate::doors::broker::sign_in::AuthorizationRequest;

    const NOW: u64 = 1_800_000_000_000;
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const REDIRECT: &str = "http://127.0.0.1:9/cb";

    fn sign_in() -> SignIn {
        let client = Client {
            id: "c".into(),
            name: String::new(),
            redirect_uris: vec![REDIRECT.into()],
            document_host: None,
        };
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        let query = format!(
            "redirect_uri={REDIRECT}&response_type=code&code_challenge_method=S256&code_challenge={challenge}"
        );
        let params = Params::parse(&query).unwrap();
        let request = AuthorizationRequest::parse(&params, &client, &["https://h/mcp".into()]);
        SignIn::begin(request.unwrap(), &client, [1; 32], NOW)
    }

    fn person(name: &str) -> Person {
        Person {
            agent: AgentId::new(format!("agent.{name}")),
            groups: BTreeSet::new(),
        }
    }

    fn request(code: &str) -> CodeRequest<'_> {
        CodeRequest {
            code,
            client: TokenDigest::new("c"),
            redirect_uri: REDIRECT,
            verifier: VERIFIER,
            resource: None,
        }
    }

    /// EXT-222, EXT-227: a code is worth nothing to another client, at another redirect URI, without the verifier, for
    /// another resource, after a minute or a second time.
    #[test]
    fn code_is_redeemed_once_by_its_client() {
        let mut codes = Codes::default();
        codes.add("code", person("a"), sign_in(), NOW).unwrap();
        let other = "x".repeat(43);
        for wrong in [
            CodeRequest {
                code: "other",
                ..request("code")
            },
            CodeRequest {
                client: TokenDigest::new("d"),
                ..request("code")
            },
            CodeRequest {
                redirect_uri: "http://127.0.0.1:8/cb",
                ..request("code")
            },
            CodeRequest {
                verifier: "",
                ..request("code")
            },
            CodeRequest {
                verifier: &other,
                ..request("code")
            },
            CodeRequest {
                resource: Some("https://other/mcp"),
                ..request("code")
            },
        ] {
            let refused = codes.redeem(wrong, "g", NOW);
            assert!(matches!(refused, Err(CodeError::Invalid(_))), "{wrong:?}");
        }
        let right = CodeRequest {
            resource: Some("https://h/mcp/"),
            ..request("code")
        };
        let (found, _) = codes
            .redeem(right, "g", NOW + CODE_LIFETIME_MS - 1)
            .unwrap();
        assert_eq!(found, person("a"));
        let again = codes.redeem(right, "h", NOW);
        assert_eq!(
            again.unwrap_err(),
            CodeError::Replayed { grant: "g".into() }
        );
        codes.add("late", person("a"), sign_in(), NOW).unwrap();
        let late = codes.redeem(request("late"), "g", NOW + CODE_LIFETIME_MS);
        assert!(matches!(late, Err(CodeError::Invalid(_))));
        codes.add("gone", person("a"), sign_in(), NOW).unwrap();
        codes.remove_agent(&person("a").agent);
        assert!(codes.redeem(request("gone"), "g", NOW).is_err());
    }

    /// EXT-230: one agent replaces its own codes, and not those of others.
    #[test]
    fn codes_are_bounded_for_each_agent_and_in_all() {
        let mut codes = Codes::default();
        codes.add("first", person("b"), sign_in(), NOW).unwrap();
        for n in 0..100 {
            codes
                .add(&format!("a{n}"), person("a"), sign_in(), NOW + n)
                .unwrap();
        }
        assert_eq!(codes.codes.len(), 1 + AGENT_CODES_MAX);
        assert!(codes.redeem(request("first"), "g", NOW).is_ok());
        for n in 0..CODES_MAX {
            let _ = codes.add(&format!("c{n}"), person(&n.to_string()), sign_in(), NOW);
        }
        assert_eq!(codes.codes.len(), CODES_MAX);
        let full = codes
            .add("more", person("more"), sign_in(), NOW)
            .unwrap_err();
        assert_eq!(full.error, "temporarily_unavailable");
        let later = NOW + CODE_LIFETIME_MS + 100;
        assert!(codes.add("more", person("more"), sign_in(), later).is_ok());
    }
}
