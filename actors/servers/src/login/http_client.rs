//! HTTP requests to authorization servers, limited in size, time and reachable addresses.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use mgp_engine::servers::login::token::{TokenErrorResponse, TokenRequest};
use mgp_engine::servers::login::{SignInError, parse_safe_url, quote_foreign_text};
use mgp_transports::http::address_scope::AddressScope;
use mgp_transports::http::client::{Client, parse_url, read_json};
use mgp_transports::http::proxy::Outbound;
use url::{Origin, Url};

use super::LoginError;
use super::prover::{PROOF_HEADER, Prover, USE_NONCE_ERROR, read_nonce};

/// How long each answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer, in bytes; documents and tokens have a few thousand.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Fetches documents and tokens. Redirects are not followed, and only the given headers are sent.
#[derive(Debug)]
pub struct LoginHttpClient {
    /// For addresses that a person configured.
    trusted: Client,
    /// For addresses that documents name.
    untrusted: Client,
    trusted_origins: Vec<Origin>,
}

/// A complete response.
struct LoginResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Why a token request failed.
#[derive(Debug)]
pub(super) enum TokenFailure {
    /// The server sent an OAuth error.
    Refused(TokenErrorResponse),
    /// There was no valid answer.
    NoAnswer(LoginError),
}

impl From<TokenFailure> for LoginError {
    fn from(failure: TokenFailure) -> Self {
        match failure {
            TokenFailure::Refused(refusal) => SignInError::Rejected(refusal.description).into(),
            TokenFailure::NoAnswer(error) => error,
        }
    }
}

impl LoginHttpClient {
    /// Creates the client for a server at this address; `written` are further addresses of its entry.
    pub async fn new<'w>(
        outbound: &Outbound,
        server: &Url,
        written: impl Iterator<Item = &'w String>,
    ) -> Self {
        let scope = match parse_url(server.as_str()) {
            Ok(uri) => tokio::time::timeout(ANSWER_TIMEOUT, AddressScope::from_url(&uri)).await,
            Err(_) => Ok(AddressScope::Public),
        };
        let written = written.filter_map(|text| Url::parse(text).ok());
        let written = written.chain([server.clone()]).map(|url| url.origin());
        Self {
            trusted: Client::new(outbound.clone()),
            untrusted: Client::with_scope(outbound.clone(), scope.unwrap_or(AddressScope::Public)),
            trusted_origins: written.collect(),
        }
    }

    /// Fetches a document; `None` if there is none at this address.
    ///
    /// # Errors
    /// [`LoginError::NoAnswer`].
    pub async fn fetch_document(
        &self,
        what: &'static str,
        url: &str,
    ) -> Result<Option<Bytes>, LoginError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let answer = self
            .send_request(what, url, Method::GET, headers, None)
            .await?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            status if status.is_client_error() || status.is_success() => Ok(None),
            status => Err(LoginError::NoAnswer(format!(
                "{what} at {} could not be fetched: HTTP {status}",
                quote_foreign_text(url)
            ))),
        }
    }

    /// Sends a token or revocation request and returns the body of the answer. With a prover each request has a
    /// proof, and is repeated once if the server requires its nonce.
    pub(super) async fn request_token(
        &self,
        endpoint: &str,
        request: TokenRequest,
        prover: Option<&Prover>,
    ) -> Result<Bytes, TokenFailure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        let authorization = request
            .authorization
            .and_then(|it| HeaderValue::try_from(it).ok());
        if let Some(mut value) = authorization {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let body = Bytes::from(request.body);
        let mut given: Option<String> = None;
        loop {
            let prove = |it: &Prover| it.prove("POST", endpoint, None, given.as_deref());
            if let Some(proof) = prover.and_then(prove) {
                headers.insert(PROOF_HEADER, proof);
            }
            let what = "the token address";
            let response = self.send_request(
                what,
                endpoint,
                Method::POST,
                headers.clone(),
                Some(body.clone()),
            );
            let answer = response.await.map_err(TokenFailure::NoAnswer)?;
            if answer.status.is_success() {
                return Ok(answer.body);
            }
            let refusal = TokenErrorResponse::parse(&answer.body, answer.status.as_u16());
            match read_nonce(&answer.headers) {
                Some(nonce)
                    if refusal.error == USE_NONCE_ERROR && given.is_none() && prover.is_some() =>
                {
                    given = Some(nonce);
                }
                Some(_) | None => return Err(TokenFailure::Refused(refusal)),
            }
        }
    }

    /// Exchanges a code, as a client whose tokens are not bound to a key.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn exchange_code(
        &self,
        endpoint: &str,
        request: TokenRequest,
    ) -> Result<Bytes, LoginError> {
        Ok(self.request_token(endpoint, request, None).await?)
    }

    /// Registers a client.
    pub(super) async fn register(&self, endpoint: &str, body: String) -> Result<Bytes, LoginError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Some(Bytes::from(body));
        let response = self.send_request(
            "the registration address",
            endpoint,
            Method::POST,
            headers,
            body,
        );
        let answer = response.await?;
        if answer.status.is_success() {
            Ok(answer.body)
        } else {
            let words = TokenErrorResponse::parse(&answer.body, answer.status.as_u16()).description;
            Err(SignInError::Rejected(format!("it registers no client: {words}")).into())
        }
    }

    async fn send_request(
        &self,
        what: &'static str,
        url: &str,
        method: Method,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<LoginResponse, LoginError> {
        let failed = |why: &dyn std::fmt::Display| {
            LoginError::NoAnswer(format!("{what} could not be reached: {why}"))
        };
        let safe = parse_safe_url(what, url)?;
        let client = if self.trusted_origins.contains(&safe.origin()) {
            &self.trusted
        } else {
            &self.untrusted
        };
        let uri = parse_url(safe.as_str()).map_err(|e| failed(&e))?;
        let request_and_body = async {
            let answer = client.request(method, &uri, headers, body).await;
            let answer = answer.map_err(|e| failed(&e))?;
            let body = read_json(answer.body, ANSWER_BYTES_MAX).await;
            Ok(LoginResponse {
                status: answer.status,
                headers: answer.headers,
                body: body.map_err(|e| failed(&e))?,
            })
        };
        let late = |_| {
            failed(&format_args!(
                "no answer within {} s",
                ANSWER_TIMEOUT.as_secs()
            ))
        };
        tokio::time::timeout(ANSWER_TIMEOUT, request_and_body)
            .await
            .map_err(late)?
    }
}
