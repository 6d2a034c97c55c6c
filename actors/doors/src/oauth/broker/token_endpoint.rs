//! The token endpoint: codes, refresh tokens and assertions become tokens of the kernel (RFC 6749, 7523, 9449; SEP-990).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mgp_engine::doors::agent_registry::TokenDigest;
use mgp_engine::doors::broker::ACCESS_LIFETIME_MS;
use mgp_engine::doors::broker::OauthError;
use mgp_engine::doors::broker::assertions::verify_id_jag;
use mgp_engine::doors::broker::clients::ClientId;
use mgp_engine::doors::broker::codes::{CodeError, CodeRequest};
use mgp_engine::doors::broker::grants::{Grant, RefreshError};
use mgp_engine::doors::broker::params::Params;
use mgp_engine::doors::broker::sign_in::match_resource;
use mgp_engine::doors::dpop::{ProvenRequest, VerifiedProof, verify_proof};
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::audit::EventType;
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use url::form_urlencoded;

use super::{Broker, Edit, TOKEN_PATH};

/// RFC 7523.
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The profile of assertions (draft-ietf-oauth-identity-assertion-authz-grant).
pub(super) const ID_JAG_PROFILE: &str = "urn:ietf:params:oauth:grant-profile:id-jag";

/// A request to the token or revocation endpoint.
pub(crate) struct TokenRequest<'r> {
    /// The form.
    pub(crate) form: &'r str,
    /// The header `Authorization`.
    pub(crate) authorization: Option<&'r str>,
    /// The headers `DPoP`.
    pub(crate) proofs: Vec<&'r str>,
}

/// A client that has identified itself.
enum Identified {
    /// It has no secret: only what it shows counts.
    Public(TokenDigest),
    /// Its secret is right.
    Configured(String),
}

impl Identified {
    fn digest(&self) -> TokenDigest {
        match self {
            Self::Public(digest) => *digest,
            Self::Configured(id) => TokenDigest::new(id),
        }
    }
}

impl Broker {
    /// Answers a token request.
    pub(crate) async fn issue_tokens(
        &self,
        request: &TokenRequest<'_>,
    ) -> Result<Value, OauthError> {
        let params = Params::parse(request.form)?;
        let client = self.identify(&params, request.authorization)?;
        let proof = self.check_proof(&request.proofs)?;
        match params.require("grant_type")? {
            "authorization_code" => self.redeem_code(&params, &client, proof).await,
            "refresh_token" => self.refresh(&params, &client, proof).await,
            JWT_BEARER => self.accept_assertion(&params, &client, proof).await,
            _ => Err(OauthError::new(
                "unsupported_grant_type",
                "`grant_type` is authorization_code, refresh_token or, for clients of [oauth.broker], jwt-bearer",
            )),
        }
    }

    /// The client of a request (RFC 6749, section 2.3): one method, and the secret where it has one.
    fn identify(
        &self,
        params: &Params,
        authorization: Option<&str>,
    ) -> Result<Identified, OauthError> {
        let invalid =
            || OauthError::invalid_client("the client did not identify itself with what it has");
        let basic = authorization.map(|value| parse_basic(value).ok_or_else(invalid));
        let basic = basic.transpose()?;
        let posted = params.get("client_secret");
        let (id, secret) = match (&basic, params.get("client_id")) {
            (Some((id, _)), Some(named)) if id != named => return Err(invalid()),
            (Some(_), _) if posted.is_some() => return Err(invalid()),
            (Some((id, secret)), _) => (id.as_str(), Some(secret.as_str())),
            (None, Some(id)) => (id, posted),
            (None, None) => return Err(OauthError::invalid_client("`client_id` is missing")),
        };
        match (self.settings.clients.get(id), secret) {
            (Some(known), Some(shown)) if bool::from(known.as_bytes().ct_eq(shown.as_bytes())) => {
                Ok(Identified::Configured(id.to_owned()))
            }
            (Some(_), _) => Err(invalid()),
            (None, Some(shown)) if !shown.is_empty() => Err(invalid()),
            (None, _) => {
                ClientId::parse(id, &self.seal)?;
                Ok(Identified::Public(TokenDigest::new(id)))
            }
        }
    }

    fn check_proof(&self, proofs: &[&str]) -> Result<Option<VerifiedProof>, OauthError> {
        let invalid = |why: String| OauthError::new("invalid_dpop_proof", why);
        match proofs {
            [] if self.settings.require_dpop => Err(invalid(
                "tokens of this gateway are bound to a key: send a proof".into(),
            )),
            [] => Ok(None),
            [proof] => {
                let request = ProvenRequest {
                    method: "POST",
                    urls: &[self.url(TOKEN_PATH)],
                    token: None,
                };
                let verified = verify_proof(proof, request, unix_ms());
                verified.map(Some).map_err(|e| invalid(e.to_string()))
            }
            _ => Err(invalid("more than one proof".into())),
        }
    }

    /// Only proofs beside a valid code or token are remembered.
    fn remember_proof(
        &self,
        proof: Option<&VerifiedProof>,
        agent: &AgentId,
    ) -> Result<(), OauthError> {
        let Some(proof) = proof else { return Ok(()) };
        let remembered = self.state().proofs.remember(proof, agent, unix_ms());
        remembered.map_err(|e| OauthError::new("invalid_dpop_proof", e.to_string()))
    }

    async fn redeem_code(
        &self,
        params: &Params,
        client: &Identified,
        proof: Option<VerifiedProof>,
    ) -> Result<Value, OauthError> {
        let request = CodeRequest {
            code: params.require("code")?,
            client: client.digest(),
            redirect_uri: params.require("redirect_uri")?,
            verifier: params.require("code_verifier")?,
            resource: params.get("resource"),
        };
        let (id, now_ms) = (new_grant_id(), unix_ms());
        let redeemed = self.state().codes.redeem(request, &id, now_ms);
        let (person, sign_in) = match redeemed {
            Ok(redeemed) => redeemed,
            Err(CodeError::Invalid(error)) => return Err(error),
            Err(CodeError::Replayed { grant }) => {
                self.end_grant(&grant, "its code was used twice").await?;
                return Err(OauthError::invalid_grant("the code was used before"));
            }
        };
        self.remember_proof(proof.as_ref(), &person.agent)?;
        let session_ms = u64::try_from(self.settings.session.as_millis()).unwrap_or(u64::MAX);
        let grant = Grant {
            id,
            agent: person.agent,
            groups: person.groups,
            mapping: self.settings.policy.groups.fingerprint(),
            client: sign_in.client,
            client_name: sign_in.client_name,
            resource: sign_in.resource,
            key: proof.map(|proof| proof.key),
            created_ms: now_ms,
            used_ms: now_ms,
            expires_ms: now_ms.saturating_add(session_ms),
            generation: Some(0),
        };
        self.add_grant(grant).await
    }

    async fn add_grant(&self, grant: Grant) -> Result<Value, OauthError> {
        let now_ms = unix_ms();
        let added = grant.clone();
        let ended = self.change(|grants| Edit::Store(grants.add(added, now_ms)));
        let ended = ended.await?;
        self.end(&ended, "expired, or replaced by a newer one");
        self.record(EventType::AGENT_SIGNED_IN, &grant, json!({}));
        Ok(self.render_tokens(&grant))
    }

    async fn refresh(
        &self,
        params: &Params,
        client: &Identified,
        proof: Option<VerifiedProof>,
    ) -> Result<Value, OauthError> {
        let token = params.require("refresh_token")?;
        let known = self
            .state()
            .grants
            .find_by_token(token, &self.seal)
            .cloned();
        let Some(known) = known else {
            return Err(OauthError::invalid_grant(
                "the grant has ended; sign in again",
            ));
        };
        if let Some(resource) = params.get("resource")
            && resource.trim_end_matches('/') != known.resource
        {
            let why = "`resource` is another one than in the authorization request";
            return Err(OauthError::new("invalid_target", why));
        }
        self.remember_proof(proof.as_ref(), &known.agent)?;
        let key = proof.as_ref().map(|proof| proof.key.as_str());
        let now_ms = unix_ms();
        let refreshed = self.change(|grants| {
            match grants.check_refresh(token, client.digest(), key, &self.seal, now_ms) {
                Ok(grant) => Edit::Store(grants.rotate(&grant.id, now_ms).cloned().ok_or(
                    RefreshError::Invalid(OauthError::invalid_grant("the grant has ended")),
                )),
                Err(error @ RefreshError::Reused(_)) => Edit::Store(Err(error)),
                Err(error @ RefreshError::Invalid(_)) => Edit::Discard(Err(error)),
            }
        });
        match refreshed.await? {
            Ok(grant) => Ok(self.render_tokens(&grant)),
            Err(RefreshError::Invalid(error)) => Err(error),
            Err(RefreshError::Reused(grant)) => {
                self.end(&[*grant], "its refresh token was used twice");
                Err(OauthError::invalid_grant(
                    "the refresh token was used before, so the sign-in has ended; sign in again",
                ))
            }
        }
    }

    /// The provider vouches for a person at a client (SEP-990). Nobody is asked, so only the operator names such clients.
    async fn accept_assertion(
        &self,
        params: &Params,
        client: &Identified,
        proof: Option<VerifiedProof>,
    ) -> Result<Value, OauthError> {
        let Identified::Configured(client_id) = client else {
            let why = "assertions are accepted from clients in `clients` of [oauth.broker]";
            return Err(OauthError::new("unauthorized_client", why));
        };
        let assertion = params.require("assertion")?;
        let policy = &self.settings.policy;
        let verified = self.keys.verify(|keys| {
            verify_id_jag(
                assertion,
                keys,
                policy,
                (self.issuer(), client_id),
                unix_ms(),
            )
        });
        let verified = verified.await;
        let verified = verified.map_err(|e| {
            OauthError::invalid_grant(format!("the assertion is not accepted: {e}"))
        })?;
        let key = proof.as_ref().map(|proof| &proof.key);
        if verified.bound_to.is_some() && verified.bound_to.as_ref() != key {
            let why = "the assertion is bound to a key: send a proof of it";
            return Err(OauthError::new("invalid_dpop_proof", why));
        }
        let asserted = verified.resource.as_deref();
        let resource = match_resource(asserted.or(params.get("resource")), self.resources())?;
        let named = params
            .get("resource")
            .map(|named| named.trim_end_matches('/'));
        if named.is_some_and(|named| named != resource) {
            let why = "`resource` is not that of the assertion";
            return Err(OauthError::new("invalid_target", why));
        }
        let now_ms = unix_ms();
        self.state().used_assertions.remember(&verified, now_ms)?;
        self.remember_proof(proof.as_ref(), &verified.person.agent)?;
        self.add_grant(Grant {
            id: new_grant_id(),
            agent: verified.person.agent,
            groups: verified.person.groups,
            mapping: policy.groups.fingerprint(),
            client: client.digest(),
            client_name: client_id.clone(),
            resource,
            key: proof.map(|proof| proof.key),
            created_ms: now_ms,
            used_ms: now_ms,
            expires_ms: now_ms + ACCESS_LIFETIME_MS,
            generation: None,
        })
        .await
    }

    fn render_tokens(&self, grant: &Grant) -> Value {
        let tokens = grant.issue_tokens(&self.seal, unix_ms());
        let mut response = json!({
            "access_token": tokens.access,
            "token_type": if tokens.bound { "DPoP" } else { "Bearer" },
            "expires_in": tokens.expires_secs,
        });
        if let Some(refresh) = tokens.refresh {
            response["refresh_token"] = json!(refresh);
        }
        response
    }

    /// Ends the grant of a token (RFC 7009). An unknown token is no error there.
    pub(crate) async fn revoke(&self, request: &TokenRequest<'_>) -> Result<(), OauthError> {
        let params = Params::parse(request.form)?;
        let client = self.identify(&params, request.authorization)?;
        let token = params.require("token")?;
        let found = self
            .state()
            .grants
            .find_by_token(token, &self.seal)
            .cloned();
        match found.filter(|grant| grant.client == client.digest()) {
            Some(grant) => self.end_grant(&grant.id, "revoked by its client").await,
            None => Ok(()),
        }
    }

    async fn end_grant(&self, id: &str, reason: &str) -> Result<(), OauthError> {
        let removed = self.change(|grants| match grants.remove(id) {
            Some(grant) => Edit::Store(Some(grant)),
            None => Edit::Discard(None),
        });
        self.end(removed.await?.as_slice(), reason);
        Ok(())
    }
}

/// 128 random bits.
fn new_grant_id() -> String {
    URL_SAFE_NO_PAD.encode(randomness::random_bytes::<16>())
}

/// Id and secret, which are form-encoded in this header (RFC 6749, section 2.3.1).
fn parse_basic(value: &str) -> Option<(String, String)> {
    let (scheme, coded) = value.split_once(' ')?;
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    let pair = STANDARD.decode(coded.trim()).ok().filter(|_| is_basic)?;
    let pair = String::from_utf8(pair).ok()?;
    let (id, secret) = pair.split_once(':')?;
    let decode = |part: &str| {
        let form = format!("x={part}");
        let mut pairs = form_urlencoded::parse(form.as_bytes());
        pairs.next().map(|(_, value)| value.into_owned())
    };
    Some((decode(id)?, decode(secret)?))
}
