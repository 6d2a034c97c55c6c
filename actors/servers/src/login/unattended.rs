//! Grants without a person: client credentials, or an assertion of another identity provider.

use std::borrow::Cow;

use mgp_engine::servers::login::assertion::{ClientAssertion, ClientKey};
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::client_identity::{
    ClientAuth, ClientIdentity, ClientSource, choose_client,
};
use mgp_engine::servers::login::record::LoginRecord;
use mgp_engine::servers::login::scopes::{ScopeSet, ScopeSources, choose_scopes};
use mgp_engine::servers::login::token::{IssuedTokens, TokenGrant, TokenRequest};
use mgp_engine::servers::login::{LoginConfig, LoginGrant, SignInError};
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use ring::rand::SystemRandom;
use url::Url;

use super::LoginError;
use super::discovery::{DiscoveredIssuer, discover};
use super::http_client::LoginHttpClient;
use super::prover::Prover;

/// Obtains a token once, by the rules of the entry.
pub(super) async fn obtain_token(
    rules: &LoginConfig,
    server: &Url,
    fetch: &LoginHttpClient,
    challenge: &LoginChallenge,
) -> Result<LoginRecord, LoginError> {
    let found = discover(fetch, server, rules, Some(challenge)).await?;
    if rules.client_id.is_none() {
        return Err(SignInError::IncompleteConfig("`client_id`").into());
    }
    let ClientSource::Existing(client) = choose_client(rules, &found.server, None, None)? else {
        return Err(SignInError::IncompleteConfig("a `client_id` that this issuer knows").into());
    };
    let none = ScopeSet::default();
    let scopes = choose_scopes(ScopeSources {
        configured: &rules.scopes,
        challenged: &challenge.scope,
        previous: &none,
        resource: &found.scopes,
        issuer: &[],
    });
    let assertion = || {
        rules
            .assertion
            .as_deref()
            .ok_or(SignInError::IncompleteConfig("`assertion`"))
    };
    let assertion = match rules.grant {
        LoginGrant::Browser | LoginGrant::ClientCredentials => None,
        LoginGrant::Assertion => Some(Cow::Borrowed(assertion()?)),
        LoginGrant::Exchange => Some(Cow::Owned(
            exchange_assertion(fetch, rules, &found, assertion()?).await?,
        )),
    };
    let grant = match &assertion {
        None => TokenGrant::ClientCredentials,
        Some(assertion) => TokenGrant::Assertion(assertion),
    };
    let signed = sign_client_assertion(rules, &client, &found.server.issuer)?;
    let resource = found.resource.as_deref();
    let request = TokenRequest::new(grant, &client, resource, &scopes, signed.as_deref());
    let prover = if challenge.requires_dpop {
        Some(Prover::new()?)
    } else {
        None
    };
    let endpoint = &found.server.token_endpoint;
    let json = fetch
        .request_token(endpoint, request, prover.as_deref())
        .await?;
    let given = IssuedTokens::parse(&json, unix_ms(), challenge.requires_dpop)?;
    let record = LoginRecord::new(&found.server, found.resource, client, scopes, given);
    Ok(LoginRecord {
        proof_key: prover.map(|it| it.to_stored()),
        ..record
    })
}

/// Exchanges a person's identity token for an assertion to the server's issuer.
async fn exchange_assertion(
    fetch: &LoginHttpClient,
    rules: &LoginConfig,
    found: &DiscoveredIssuer,
    subject: &str,
) -> Result<String, LoginError> {
    let lacks = SignInError::IncompleteConfig("`exchange_at` and `exchange_client_id`");
    let (Some(at), Some(id)) = (&rules.exchange_endpoint, &rules.exchange_client_id) else {
        return Err(lacks.into());
    };
    let client = ClientIdentity {
        id: id.clone(),
        secret: None,
        auth: ClientAuth::None,
        callback: None,
    };
    let grant = TokenGrant::Exchange {
        subject,
        audience: &found.server.issuer,
    };
    let resource = found.resource.as_deref();
    let request = TokenRequest::new(grant, &client, resource, &ScopeSet::default(), None);
    Ok(IssuedTokens::parse_exchanged_assertion(
        &fetch.request_token(at, request, None).await?,
    )?)
}

/// Signs a client assertion for one request.
pub(super) fn sign_client_assertion(
    rules: &LoginConfig,
    client: &ClientIdentity,
    issuer: &str,
) -> Result<Option<String>, LoginError> {
    if client.auth != ClientAuth::PrivateKeyJwt {
        return Ok(None);
    }
    let key = rules
        .client_key
        .as_deref()
        .ok_or(SignInError::IncompleteConfig("`client_key`"))?;
    let chance = SystemRandom::new();
    let id: String = randomness::random_bytes::<16>()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let says = ClientAssertion {
        client: &client.id,
        audience: issuer,
        id: &id,
        now: unix_ms() / 1000,
    };
    Ok(Some(
        ClientKey::parse_pem(key, &chance)?.sign(says, &chance)?,
    ))
}
