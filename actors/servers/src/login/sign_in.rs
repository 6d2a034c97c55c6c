//! One login by a person: the steps before the browser opens, and those after its redirect.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use mgp_engine::servers::login::authorization::{AuthorizationRequest, ExpectedResponse};
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::client_identity::{
    ClientIdentity, ClientSource, choose_client, parse_registration, render_registration,
};
use mgp_engine::servers::login::pkce::CodeVerifier;
use mgp_engine::servers::login::record::LoginRecord;
use mgp_engine::servers::login::scopes::{ScopeSet, ScopeSources, choose_scopes};
use mgp_engine::servers::login::token::{IssuedTokens, TokenGrant, TokenRequest};
use mgp_engine::servers::login::{LoginGrant, SignInError};
use mgp_protocol::dialect::Version;
use mgp_protocol::jsonrpc;
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use mgp_transports::http::client::{Client, parse_url};
use std::sync::Arc;
use std::time::Duration;

use super::discovery::{DiscoveredIssuer, discover};
use super::http_client::LoginHttpClient;
use super::prover::Prover;
use super::{CallbackListener, LoginError, ServerLogin};

/// How long the server may take to send its login challenge.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A login that waits for its browser. Its verifier and state are only in memory.
pub struct SignIn {
    fetch: LoginHttpClient,
    discovered: DiscoveredIssuer,
    client: ClientIdentity,
    scopes: ScopeSet,
    /// Set if the tokens will be bound to a key.
    prover: Option<Arc<Prover>>,
    verifier: CodeVerifier,
    state: String,
    callback_url: String,
    url: String,
}

impl SignIn {
    /// Runs discovery and client registration, and creates the address for the browser, which will be redirected
    /// to `listener`. `challenge` is the challenge that the kernel received; without one the server is probed.
    ///
    /// # Errors
    /// [`LoginError`]; the browser must not be opened then.
    pub async fn begin(
        login: &ServerLogin,
        challenge: Option<LoginChallenge>,
        listener: &mut CallbackListener,
    ) -> Result<Self, LoginError> {
        if login.rules.grant != LoginGrant::Browser {
            return Err(SignInError::IncompleteConfig(
                "a `grant` that a person signs in for: the kernel gets its token by itself",
            )
            .into());
        }
        let challenge = match challenge {
            Some(challenge) => challenge,
            None => probe_challenge(login).await.unwrap_or_default(),
        };
        let (rules, fetch) = (&login.rules, login.http_client().await);
        let found = discover(&fetch, &login.url, rules, Some(&challenge)).await?;
        found.server.check_pkce(found.is_from_origin)?;
        found.server.check_sign_in_page(rules.issuer.is_some())?;
        // A client registered by a person uses the redirect URL of its registration.
        if rules.client_id.is_none() && rules.callback.is_none() {
            listener.set_issuer(&found.server.issuer);
        }
        let callback = listener.url();
        // Client data of one issuer is not sent to another.
        let before = login
            .record()
            .filter(|record| record.issuer == found.server.issuer);
        let none = ScopeSet::default();
        let scopes = choose_scopes(ScopeSources {
            configured: &rules.scopes,
            challenged: &challenge.scope,
            previous: before.as_ref().map_or(&none, |record| &record.asked),
            resource: &found.scopes,
            issuer: &found.server.scopes,
        });
        let known = before.as_ref().map(|record| &record.client);
        let client = match choose_client(rules, &found.server, known, Some(callback))? {
            ClientSource::Existing(client) => client,
            ClientSource::Register(at) => {
                let json = fetch
                    .register(&at, render_registration(&found.server, callback))
                    .await?;
                parse_registration(&json, &found.server, callback)?
            }
        };
        let bound = before.is_some_and(|record| record.proof_key.is_some());
        let prover = if challenge.requires_dpop || bound {
            Some(Prover::new()?)
        } else {
            None
        };
        let verifier = CodeVerifier::from_random(randomness::random_bytes());
        let state = URL_SAFE_NO_PAD.encode(randomness::random_bytes::<32>());
        let endpoint = found.server.authorization_endpoint.as_deref();
        let request = AuthorizationRequest {
            endpoint: endpoint.unwrap_or_default(),
            client: &client.id,
            callback,
            state: &state,
            verifier: &verifier,
            resource: found.resource.as_deref(),
            scopes: &scopes,
        };
        Ok(Self {
            url: request.url()?,
            callback_url: callback.to_owned(),
            fetch,
            prover,
            client,
            scopes,
            verifier,
            state,
            discovered: found,
        })
    }

    /// The address where a person signs in.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The authorization server of that address.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.discovered.server.issuer
    }

    /// The endpoint that receives the code.
    #[must_use]
    pub fn token_endpoint(&self) -> &str {
        &self.discovered.server.token_endpoint
    }

    /// The code in the query of a redirect.
    ///
    /// # Errors
    /// As [`ExpectedResponse::parse_code`].
    pub fn parse_code(&self, query: &str) -> Result<String, SignInError> {
        let awaited = ExpectedResponse {
            state: &self.state,
            issuer: &self.discovered.server.issuer,
            sends_issuer: self.discovered.server.sends_issuer,
        };
        awaited.parse_code(query)
    }

    /// Exchanges a code for tokens and stores them.
    ///
    /// # Errors
    /// [`LoginError`]; the previous login stays stored, except after [`LoginError::Store`].
    pub async fn finish(self, login: &ServerLogin, code: &str) -> Result<LoginRecord, LoginError> {
        let server = &self.discovered.server;
        let signed = login.client_assertion(&self.client, &server.issuer)?;
        let grant = TokenGrant::Code {
            code,
            callback: &self.callback_url,
            verifier: &self.verifier,
        };
        let resource = self.discovered.resource.as_deref();
        let request = TokenRequest::new(
            grant,
            &self.client,
            resource,
            &self.scopes,
            signed.as_deref(),
        );
        let json = self
            .fetch
            .request_token(&server.token_endpoint, request, self.prover.as_deref())
            .await?;
        let given = IssuedTokens::parse(&json, unix_ms(), self.prover.is_some())?;
        let proof_key = self.prover.as_ref().map(|it| it.to_stored());
        let record = LoginRecord::new(
            server,
            self.discovered.resource.clone(),
            self.client,
            self.scopes,
            given,
        );
        let record = LoginRecord {
            proof_key,
            ..record
        };
        login.save(record.clone()).await?;
        Ok(record)
    }
}

/// Sends a request without a token to get the server's challenge.
async fn probe_challenge(login: &ServerLogin) -> Option<LoginChallenge> {
    let params = format!(
        r#"{{"protocolVersion":"{}","capabilities":{{}},"clientInfo":{{"name":"mgp","version":"{}"}}}}"#,
        Version::LATEST_LEGACY.as_str(),
        env!("CARGO_PKG_VERSION")
    );
    let frame = jsonrpc::request("0", "initialize", Some(&params));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(ACCEPT, both);
    let url = parse_url(login.url.as_str()).ok()?;
    let client = Client::new(login.backend.outbound.clone());
    let request = client.request(Method::POST, &url, headers, Some(Bytes::from(frame)));
    let answer = tokio::time::timeout(PROBE_TIMEOUT, request)
        .await
        .ok()?
        .ok()?;
    let values = answer.headers.get_all(WWW_AUTHENTICATE).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    (answer.status == StatusCode::UNAUTHORIZED).then(|| LoginChallenge::parse(values))?
}
