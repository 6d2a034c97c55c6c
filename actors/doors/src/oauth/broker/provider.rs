//! The identity provider behind the broker, where the kernel is one client. Of its tokens only the ID token is used, once.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::doors::broker::sign_in::SignIn;
use mgp_engine::servers::login::authorization::{AuthorizationRequest, ExpectedResponse};
use mgp_engine::servers::login::client_identity::{ClientIdentity, ClientSource, choose_client};
use mgp_engine::servers::login::discovery::{AuthorizationServer, issuer_metadata_urls};
use mgp_engine::servers::login::scopes::ScopeSet;
use mgp_engine::servers::login::token::{TokenGrant, TokenRequest};
use mgp_engine::servers::login::{LoginConfig, SignInError};
use mgp_runtime::time::monotonic_now;
use mgp_servers::LoginHttpClient;
use mgp_transports::http::proxy::Outbound;
use serde::Deserialize;
use tokio::sync::{Mutex, OnceCell, Semaphore};
use url::Url;

/// Metadata older than this is fetched again.
const METADATA_AGE: Duration = Duration::from_secs(3600);
/// The shortest time between two attempts while the provider does not answer.
const FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// Simultaneous code exchanges, of at most ten seconds each; further ones are asked to try again.
const EXCHANGES_MAX: usize = 32;

/// The provider.
#[derive(Debug)]
pub(super) struct Provider {
    pub(super) issuer: String,
    login: LoginConfig,
    scopes: ScopeSet,
    outbound: Outbound,
    http: OnceCell<LoginHttpClient>,
    metadata: Mutex<CachedMetadata>,
    exchanges: Semaphore,
}

#[derive(Debug, Default)]
struct CachedMetadata {
    server: Option<Arc<AuthorizationServer>>,
    fetched_at: Option<MonotonicTime>,
    failed_at: Option<MonotonicTime>,
}

/// Why a code was not exchanged; for people, and without a token.
#[derive(Debug)]
pub(super) enum ProviderError {
    /// The response belongs to no sign-in of this browser.
    Foreign(String),
    /// The provider refused, or did not answer.
    Failed(String),
}

#[derive(Deserialize)]
struct TokenResponse {
    id_token: Option<String>,
}

impl Provider {
    /// With a secret the kernel is a confidential client of the provider.
    pub(super) fn new(
        issuer: String,
        (client_id, client_secret): (String, Option<String>),
        scopes: &[String],
        outbound: Outbound,
    ) -> Self {
        Self {
            issuer,
            login: LoginConfig {
                client_id: Some(client_id),
                client_secret,
                ..LoginConfig::with_browser()
            },
            scopes: ScopeSet::parse(&scopes.join(" ")),
            outbound,
            http: OnceCell::new(),
            metadata: Mutex::default(),
            exchanges: Semaphore::new(EXCHANGES_MAX),
        }
    }

    async fn http(&self) -> Result<&LoginHttpClient, String> {
        let url = Url::parse(&self.issuer).map_err(|e| e.to_string())?;
        let create = || LoginHttpClient::new(&self.outbound, &url, std::iter::empty());
        Ok(self.http.get_or_init(create).await)
    }

    /// The provider's metadata (OpenID Connect Discovery, RFC 8414).
    async fn server(&self) -> Result<Arc<AuthorizationServer>, String> {
        let mut cached = self.metadata.lock().await;
        let is_younger = |at: Option<MonotonicTime>, than| {
            at.is_some_and(|at| monotonic_now().duration_since(at) < than)
        };
        let usable = cached.server.clone().filter(|_| {
            is_younger(cached.fetched_at, METADATA_AGE)
                || is_younger(cached.failed_at, FETCH_INTERVAL)
        });
        if let Some(server) = usable {
            return Ok(server);
        }
        if is_younger(cached.failed_at, FETCH_INTERVAL) {
            return Err("the identity provider did not answer a moment ago".into());
        }
        match self.fetch_metadata().await {
            Ok(server) => {
                let server = Arc::new(server);
                cached.server = Some(server.clone());
                cached.fetched_at = Some(monotonic_now());
                Ok(server)
            }
            Err(error) => {
                tracing::warn!(issuer = self.issuer, %error, "the metadata of the identity provider could not be fetched");
                cached.failed_at = Some(monotonic_now());
                cached.server.clone().ok_or(error)
            }
        }
    }

    async fn fetch_metadata(&self) -> Result<AuthorizationServer, String> {
        let http = self.http().await?;
        let mut failure = format!("{} publishes no metadata", self.issuer);
        for url in issuer_metadata_urls(&self.issuer) {
            let fetched = http.fetch_document("the metadata of the identity provider", &url);
            match fetched.await {
                Ok(Some(json)) => match AuthorizationServer::parse(&json, &url, &self.issuer) {
                    Ok(server) => return Ok(server),
                    Err(error) => failure = error.to_string(),
                },
                Ok(None) => {}
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    fn client(&self, server: &AuthorizationServer) -> Result<ClientIdentity, String> {
        match choose_client(&self.login, server, None, None) {
            Ok(ClientSource::Existing(client)) => Ok(client),
            Ok(ClientSource::Register(_)) => {
                Err("the kernel has no client id at the provider".into())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Where a person signs in; `callback` is the kernel's redirect URI.
    pub(super) async fn sign_in_url(
        &self,
        sign_in: &SignIn,
        callback: &str,
    ) -> Result<String, String> {
        let server = self.server().await?;
        let endpoint = server.authorization_endpoint.as_deref();
        let verifier = sign_in.verifier();
        let request = AuthorizationRequest {
            endpoint: endpoint.ok_or("the identity provider has no sign-in page")?,
            client: &self.client(&server)?.id,
            callback,
            state: &sign_in.key(),
            verifier: &verifier,
            resource: None,
            scopes: &self.scopes,
        };
        let url = request.url().map_err(|e| e.to_string())?;
        Ok(format!("{url}&nonce={}", sign_in.nonce()))
    }

    /// The ID token for the answer that a browser brought back.
    pub(super) async fn exchange(
        &self,
        query: &str,
        sign_in: &SignIn,
        callback: &str,
    ) -> Result<String, ProviderError> {
        let failed = ProviderError::Failed;
        let Ok(_permit) = self.exchanges.try_acquire() else {
            return Err(failed("too many people sign in at once; try again".into()));
        };
        let server = self.server().await.map_err(failed)?;
        let expected = ExpectedResponse {
            state: &sign_in.key(),
            issuer: &self.issuer,
            sends_issuer: server.sends_issuer,
        };
        let code = expected.parse_code(query).map_err(|error| {
            if matches!(error, SignInError::Rejected(_)) {
                failed(error.to_string())
            } else {
                ProviderError::Foreign(error.to_string())
            }
        })?;
        let verifier = sign_in.verifier();
        let grant = TokenGrant::Code {
            code: &code,
            callback,
            verifier: &verifier,
        };
        let client = self.client(&server).map_err(failed)?;
        let request = TokenRequest::new(grant, &client, None, &ScopeSet::default(), None);
        let http = self.http().await.map_err(failed)?;
        let json = http.exchange_code(&server.token_endpoint, request).await;
        let json = json.map_err(|e| failed(e.to_string()))?;
        let response: Option<TokenResponse> = serde_json::from_slice(&json).ok();
        let token = response.and_then(|response| response.id_token);
        token.ok_or_else(|| {
            failed("the identity provider sent no ID token; is `openid` in `scopes`?".into())
        })
    }
}
