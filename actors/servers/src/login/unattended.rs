//! Tokens that nobody has to be asked for: the client shows who it is, or an assertion from elsewhere.

use std::borrow::Cow;

use mgp_engine::servers::login::assertion::{ClientAssertion, ClientKey};
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::client_identity::{
    ClientAuth, ClientChoice, ClientIdentity, choose,
};
use mgp_engine::servers::login::record::LoginRecord;
use mgp_engine::servers::login::scopes::{ScopeSet, ScopeSources, chosen};
use mgp_engine::servers::login::token::{GivenTokens, TokenGrant, TokenRequest};
use mgp_engine::servers::login::{LoginGrant, LoginRules, NoLogin};
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use ring::rand::SystemRandom;
use url::Url;

use super::LoginError;
use super::discover::{FoundIssuer, discover};
use super::fetch::LoginFetch;
use super::prover::Prover;

/// Gets a token by the rules of the entry, once.
pub(super) async fn obtain(
    rules: &LoginRules,
    server: &Url,
    fetch: &LoginFetch,
    challenge: &LoginChallenge,
) -> Result<LoginRecord, LoginError> {
    let found = discover(fetch, server, rules, Some(challenge)).await?;
    if rules.client_id.is_none() {
        return Err(NoLogin::Incomplete("`client_id`").into());
    }
    let ClientChoice::Known(client) = choose(rules, &found.server, None, None)? else {
        return Err(NoLogin::Incomplete("a `client_id` that this issuer knows").into());
    };
    let none = ScopeSet::default();
    let scopes = chosen(ScopeSources {
        configured: &rules.scopes,
        challenged: &challenge.scope,
        before: &none,
        resource: &found.scopes,
        issuer: &[],
    });
    let shown = || {
        rules
            .assertion
            .as_deref()
            .ok_or(NoLogin::Incomplete("`assertion`"))
    };
    let assertion = match rules.grant {
        LoginGrant::Browser | LoginGrant::ClientCredentials => None,
        LoginGrant::Assertion => Some(Cow::Borrowed(shown()?)),
        LoginGrant::Exchange => Some(Cow::Owned(exchanged(fetch, rules, &found, shown()?).await?)),
    };
    let grant = match &assertion {
        None => TokenGrant::ClientCredentials,
        Some(assertion) => TokenGrant::Assertion(assertion),
    };
    let signed = client_assertion(rules, &client, &found.server.issuer)?;
    let resource = found.resource.as_deref();
    let request = TokenRequest::new(grant, &client, resource, &scopes, signed.as_deref());
    let prover = match challenge.bound {
        true => Some(Prover::new()?),
        false => None,
    };
    let endpoint = &found.server.token_endpoint;
    let json = fetch.token(endpoint, request, prover.as_deref()).await?;
    let given = GivenTokens::read(&json, unix_ms(), challenge.bound)?;
    let record = LoginRecord::new(&found.server, found.resource, client, scopes, given);
    Ok(LoginRecord {
        proof_key: prover.map(|it| it.kept()),
        ..record
    })
}

/// An assertion for the issuer of the server, in exchange for the identity token of a person.
async fn exchanged(
    fetch: &LoginFetch,
    rules: &LoginRules,
    found: &FoundIssuer,
    subject: &str,
) -> Result<String, LoginError> {
    let lacks = NoLogin::Incomplete("`exchange_at` and `exchange_client_id`");
    let (Some(at), Some(id)) = (&rules.exchange_at, &rules.exchange_client_id) else {
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
    Ok(GivenTokens::exchanged(
        &fetch.token(at, request, None).await?,
    )?)
}

/// What a client with a key signs for one request.
pub(super) fn client_assertion(
    rules: &LoginRules,
    client: &ClientIdentity,
    issuer: &str,
) -> Result<Option<String>, LoginError> {
    if client.auth != ClientAuth::PrivateKeyJwt {
        return Ok(None);
    }
    let key = rules
        .client_key
        .as_deref()
        .ok_or(NoLogin::Incomplete("`client_key`"))?;
    let chance = SystemRandom::new();
    let id: String = randomness::bytes::<16>()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let says = ClientAssertion {
        client: &client.id,
        audience: issuer,
        id: &id,
        now: unix_ms() / 1000,
    };
    Ok(Some(ClientKey::read(key, &chance)?.sign(says, &chance)?))
}
