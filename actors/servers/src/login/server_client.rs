//! An HTTP client for one server, which adds the token of the server's login.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, StatusCode, Uri};
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_transports::http::client::{Client, ClientError, Response};
use std::sync::Arc;

use super::prover::{PROOF_HEADER, Prover, USE_NONCE_ERROR};
use super::server_login::ServerLogin;

/// The maximum of tokens tried for one request: the current one, its renewal, and one from a sign-in meanwhile.
const TOKEN_ATTEMPTS_MAX: usize = 3;

/// Sends requests to one server.
#[derive(Clone, Debug)]
pub(crate) struct ServerClient {
    client: Client,
    login: Option<Arc<ServerLogin>>,
}

impl From<Client> for ServerClient {
    fn from(client: Client) -> Self {
        Self {
            client,
            login: None,
        }
    }
}

impl ServerClient {
    /// Creates a client with the tokens of this login.
    #[must_use]
    pub(crate) fn new(client: Client, login: Option<Arc<ServerLogin>>) -> Self {
        Self { client, login }
    }

    /// Sends a request and waits for the head of its response. A request refused for its token was not executed,
    /// and is sent again with another token. If there is none, the refusal is returned, and
    /// [`ServerClient::park_reason`] and [`ServerClient::sign_in_hint`] explain what to do.
    ///
    /// # Errors
    /// [`ClientError`], as [`Client::request`].
    pub(crate) async fn request(
        &self,
        method: Method,
        url: &Uri,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, ClientError> {
        let Some(login) = &self.login else {
            return self.client.request(method, url, headers, body).await;
        };
        let mut token = login.token().await;
        let (mut tried, mut with_nonce) = (1, false);
        loop {
            let prover = login.prover().filter(|_| token.is_some());
            let headers =
                add_authorization(&headers, token.as_deref(), prover.as_deref(), &method, url);
            let sent = self
                .client
                .request(method.clone(), url, headers, body.clone());
            let response = sent.await?;
            if let Some(prover) = &prover {
                prover.record_nonce(&response.headers);
            }
            let Some(challenge) = token_challenge(&response) else {
                return Ok(response);
            };
            let wants_nonce = challenge.error.as_deref() == Some(USE_NONCE_ERROR);
            if wants_nonce && prover.is_some() && !with_nonce {
                with_nonce = true;
                continue;
            }
            let next = login
                .next_token_after_refusal(token.as_deref(), &challenge, tried == 1)
                .await;
            match next.filter(|_| tried < TOKEN_ATTEMPTS_MAX) {
                Some(next) => token = Some(next),
                None => return Ok(response),
            }
            tried += 1;
        }
    }

    /// The client without tokens.
    pub(crate) fn without_login(&self) -> &Client {
        &self.client
    }

    /// The reason for parking the server until a person has signed in.
    #[must_use]
    pub(crate) fn park_reason(&self) -> Option<String> {
        self.login.as_ref()?.park_reason()
    }

    /// What a person can do about a refusal, to append to its text.
    #[must_use]
    pub(crate) fn sign_in_hint(&self, status: StatusCode) -> Option<String> {
        let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let wanted = self.login.as_ref().filter(|_| refused)?.wanted_login()?;
        Some(format!("; {}", wanted.why))
    }
}

/// The challenge of a response that requires another token.
fn token_challenge(response: &Response) -> Option<LoginChallenge> {
    let values = response.headers.get_all(WWW_AUTHENTICATE).iter();
    let challenge = LoginChallenge::parse(values.filter_map(|value| value.to_str().ok()));
    match response.status {
        StatusCode::UNAUTHORIZED => Some(challenge.unwrap_or_default()),
        StatusCode::FORBIDDEN => challenge.filter(LoginChallenge::is_insufficient_scope),
        _ => None,
    }
}

fn add_authorization(
    headers: &HeaderMap,
    token: Option<&str>,
    prover: Option<&Prover>,
    method: &Method,
    url: &Uri,
) -> HeaderMap {
    let mut headers = headers.clone();
    let Some(token) = token else { return headers };
    let scheme = if prover.is_some() { "DPoP" } else { "Bearer" };
    if let Ok(mut value) = HeaderValue::try_from(format!("{scheme} {token}")) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let prove = |it: &Prover| {
        let nonce = it.nonce();
        it.prove(
            method.as_str(),
            &url.to_string(),
            Some(token),
            nonce.as_deref(),
        )
    };
    if let Some(proof) = prover.and_then(prove) {
        headers.insert(PROOF_HEADER, proof);
    }
    headers
}
