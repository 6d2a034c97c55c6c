//! The broker: the kernel as the authorization server of its own endpoint, in front of an identity provider that registers
//! no clients. What it decides is in the engine; here are its state, the provider, and the file of grants.

mod documents;
mod grants_file;
mod provider;
mod token_endpoint;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mgp_callers::Credential;
use mgp_engine::callers::seal::SealKey;
use mgp_engine::doors::broker::OauthError;
use mgp_engine::doors::broker::address_rates::AddressRates;
use mgp_engine::doors::broker::assertions::{ProviderPolicy, UsedAssertions, verify_id_token};
use mgp_engine::doors::broker::clients::{self, Client, ClientId};
use mgp_engine::doors::broker::codes::Codes;
use mgp_engine::doors::broker::grants::{Grant, Grants};
use mgp_engine::doors::broker::params::Params;
use mgp_engine::doors::broker::sign_in::{
    AuthorizationRequest, ConsumedSignIns, SignIn, Stage, UnknownSignIn,
};
use mgp_engine::doors::dpop::ProofReplays;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::audit::{EventType, Outcome, Target, TraceId};
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_runtime::{randomness, task};
use mgp_store::audit::{self, AuditHandle};
use mgp_transports::http::address_scope::AddressScope;
use mgp_transports::http::proxy::Outbound;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::keys::KeyCache;
use super::{AccessToken, KeySource, ProtectedResource, TokenError};

use self::documents::ClientDocuments;
use self::provider::{Provider, ProviderError};
pub(crate) use self::token_endpoint::TokenRequest;

/// The algorithms of proofs, for metadata.
pub(super) const DPOP_ALGORITHMS: [&str; 7] = [
    "ES256", "ES384", "EdDSA", "RS256", "RS384", "RS512", "PS256",
];

/// The paths of the endpoints.
pub(crate) const AUTHORIZE_PATH: &str = "/oauth/authorize";
pub(crate) const CALLBACK_PATH: &str = "/oauth/callback";
pub(crate) const TOKEN_PATH: &str = "/oauth/token";
pub(crate) const REGISTER_PATH: &str = "/oauth/register";
pub(crate) const REVOKE_PATH: &str = "/oauth/revoke";

/// The settings of the broker.
pub struct BrokerSettings {
    /// The provider, and who may sign in.
    pub policy: ProviderPolicy,
    /// The kernel's secret there.
    pub client_secret: Option<String>,
    /// The scopes that are requested there.
    pub scopes: Vec<String>,
    /// Clients that show assertions of the provider, with their secrets.
    pub clients: BTreeMap<String, String>,
    /// How long a person stays signed in.
    pub session: Duration,
    /// Whether tokens must be bound to a key.
    pub require_dpop: bool,
    /// The provider's keys.
    pub keys: KeySource,
    /// The file of grants.
    pub file: PathBuf,
    /// Outgoing HTTP.
    pub outbound: Outbound,
}

impl std::fmt::Debug for BrokerSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrokerSettings")
            .field("policy", &self.policy)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// The broker of a kernel.
#[derive(Debug)]
pub struct Broker {
    settings: BrokerSettings,
    seal: SealKey,
    audit: AuditHandle,
    keys: Arc<KeyCache>,
    provider: Provider,
    /// Set before the endpoint opens.
    address: OnceLock<BrokerAddress>,
    state: Mutex<State>,
    /// Locked from a change of the grants until it is on disk.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    rates: AddressRates,
    consumed: ConsumedSignIns,
    codes: Codes,
    grants: Grants,
    used_assertions: UsedAssertions,
    proofs: ProofReplays,
    /// Cancelled when the grant ends; only of grants that were used since the start.
    grant_ends: HashMap<String, CancellationToken>,
}

/// Where clients and browsers reach the broker.
#[derive(Debug)]
struct BrokerAddress {
    /// Its issuer, one name whatever host a client used.
    issuer: String,
    resources: Vec<String>,
    documents: ClientDocuments,
}

/// What becomes of a change of the grants.
enum Edit<T> {
    Store(T),
    Discard(T),
}

/// What a person's answer on the page leads to.
pub(crate) struct SignInStep {
    /// Where the browser goes.
    pub(crate) url: String,
    /// The cookie of the next stage; `None` removes it.
    pub(crate) cookie: Option<String>,
    pub(crate) slot: u8,
}

/// Why a browser is shown a message instead.
pub(crate) enum SignInFailure {
    Unknown(UnknownSignIn),
    /// For people.
    Failed(String),
}

impl Broker {
    /// Loads the grants. The broker serves once it has an address.
    #[must_use]
    pub fn new(settings: BrokerSettings, seal: SealKey, audit: AuditHandle) -> Arc<Self> {
        let grants = grants_file::load(&settings.file, &settings.policy.groups.fingerprint());
        let policy = &settings.policy;
        let provider = Provider::new(
            policy.issuer.clone(),
            (policy.client_id.clone(), settings.client_secret.clone()),
            &settings.scopes,
            settings.outbound.clone(),
        );
        Arc::new(Self {
            keys: KeyCache::new(policy.issuer.clone(), settings.keys.clone()),
            provider,
            seal,
            audit,
            settings,
            address: OnceLock::new(),
            state: Mutex::new(State {
                grants,
                ..State::default()
            }),
            writing: tokio::sync::Mutex::default(),
        })
    }

    /// Sets the address. Documents of clients are fetched from the public network, and from this machine if only it
    /// reaches the endpoint.
    pub fn open(&self, resource: &ProtectedResource) {
        let resources = resource.resources.clone();
        let issuer = origin(resources.first().map_or("", String::as_str)).to_owned();
        let host = issuer.split_once("://").map_or("", |(_, host)| host);
        let scope = if mgp_transports::http::guard::is_loopback(host) {
            AddressScope::Loopback
        } else {
            AddressScope::Public
        };
        let documents = ClientDocuments::new(self.settings.outbound.clone(), scope);
        let _ = self.address.set(BrokerAddress {
            issuer,
            resources,
            documents,
        });
    }

    /// The issuer of the broker.
    pub(crate) fn issuer(&self) -> &str {
        self.address.get().map_or("", |address| &address.issuer)
    }

    /// The origin of its pages, as browsers send it.
    pub(crate) fn issuer_origin(&self) -> &str {
        let issuer = self.issuer();
        let begin = issuer.find("://").map_or(0, |at| at + 3);
        let path = issuer[begin..].find('/');
        &issuer[..path.map_or(issuer.len(), |at| begin + at)]
    }

    /// The origin of its pages, once it is open.
    #[must_use]
    pub fn page_origin(&self) -> Option<String> {
        let origin = self.issuer_origin();
        (!origin.is_empty()).then(|| origin.to_owned())
    }

    fn resources(&self) -> &[String] {
        self.address.get().map_or(&[], |address| &address.resources)
    }

    /// The identity provider.
    pub(crate) fn provider_issuer(&self) -> &str {
        &self.provider.issuer
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.issuer())
    }

    /// Counts a request at an open endpoint.
    ///
    /// # Errors
    /// The time until the next one is accepted.
    pub(crate) fn count_request(&self, address: IpAddr) -> Result<(), Duration> {
        self.state().rates.count(address, monotonic_now())
    }

    /// Metadata of the authorization server (RFC 8414).
    pub(crate) fn metadata(&self) -> Value {
        let mut methods = vec!["none"];
        let mut grants = vec!["authorization_code", "refresh_token"];
        if !self.settings.clients.is_empty() {
            methods.extend(["client_secret_basic", "client_secret_post"]);
            grants.push(token_endpoint::JWT_BEARER);
        }
        let mut metadata = json!({
            "issuer": self.issuer(),
            "authorization_endpoint": self.url(AUTHORIZE_PATH),
            "token_endpoint": self.url(TOKEN_PATH),
            "registration_endpoint": self.url(REGISTER_PATH),
            "revocation_endpoint": self.url(REVOKE_PATH),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": grants,
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": methods,
            "revocation_endpoint_auth_methods_supported": methods,
            "authorization_response_iss_parameter_supported": true,
            "client_id_metadata_document_supported": true,
            "dpop_signing_alg_values_supported": DPOP_ALGORITHMS,
        });
        if !self.settings.clients.is_empty() {
            let profiles = json!([token_endpoint::ID_JAG_PROFILE]);
            metadata["authorization_grant_profiles_supported"] = profiles;
        }
        metadata
    }

    /// Registers a client.
    pub(crate) fn register(&self, json: &[u8]) -> Result<Value, OauthError> {
        let salt = URL_SAFE_NO_PAD.encode(randomness::random_bytes::<8>());
        clients::register(json, &self.seal, salt, unix_ms())
    }

    async fn find_client(&self, id: &str) -> Result<Client, OauthError> {
        match ClientId::parse(id, &self.seal)? {
            ClientId::Registered(client) => Ok(client),
            ClientId::Document(url) => match self.address.get() {
                Some(address) => address.documents.find(&url).await,
                None => Err(OauthError::invalid_client("the broker is not open")),
            },
        }
    }

    /// Begins a sign-in: its client, to be shown to the person, and the cookie of the browser.
    pub(crate) async fn begin(&self, query: &str) -> Result<(Client, SignIn, String), OauthError> {
        let params = Params::parse(query)?;
        let client = self.find_client(params.require("client_id")?).await?;
        let request = AuthorizationRequest::parse(&params, &client, self.resources())?;
        let sign_in = SignIn::begin(request, &client, randomness::random_bytes(), unix_ms());
        let cookie = sign_in.seal(Stage::Consent, &self.seal);
        Ok((client, sign_in, cookie))
    }

    fn open_sign_in(&self, cookie: &str, stage: Stage, key: &str) -> Result<SignIn, SignInFailure> {
        let opened = SignIn::open(cookie, stage, key, &self.seal, unix_ms());
        let sign_in = opened.map_err(SignInFailure::Unknown)?;
        if self.state().consumed.consume(&sign_in, unix_ms()) {
            Ok(sign_in)
        } else {
            Err(SignInFailure::Unknown(UnknownSignIn))
        }
    }

    /// The person agreed: they go to the provider.
    pub(crate) async fn approve(
        &self,
        cookie: &str,
        key: &str,
    ) -> Result<SignInStep, SignInFailure> {
        let sign_in = self.open_sign_in(cookie, Stage::Consent, key)?;
        let sign_in = sign_in.approve(randomness::random_bytes());
        let callback = self.url(CALLBACK_PATH);
        let url = self.provider.sign_in_url(&sign_in, &callback).await;
        let url = url.map_err(SignInFailure::Failed)?;
        Ok(SignInStep {
            url,
            cookie: Some(sign_in.seal(Stage::Provider, &self.seal)),
            slot: sign_in.slot(),
        })
    }

    /// The person denied: the client is told.
    pub(crate) fn deny(&self, cookie: &str, key: &str) -> Result<SignInStep, SignInFailure> {
        let sign_in = self.open_sign_in(cookie, Stage::Consent, key)?;
        Ok(self.answer(&sign_in, &[("error", "access_denied")]))
    }

    fn answer(&self, sign_in: &SignIn, answer: &[(&str, &str)]) -> SignInStep {
        SignInStep {
            url: sign_in.answer_url(self.issuer(), answer),
            cookie: None,
            slot: sign_in.slot(),
        }
    }

    /// The person comes back from the provider: the client gets a code, or an error.
    pub(crate) async fn finish(
        &self,
        cookie: &str,
        key: &str,
        query: &str,
    ) -> Result<SignInStep, SignInFailure> {
        let sign_in = self.open_sign_in(cookie, Stage::Provider, key)?;
        let callback = self.url(CALLBACK_PATH);
        let failed = |error: &'static str, why: String| {
            tracing::warn!(issuer = self.provider.issuer, %why, "a person could not sign in");
            self.answer(
                &sign_in,
                &[("error", error), ("error_description", &quotable(&why))],
            )
        };
        let token = match self.provider.exchange(query, &sign_in, &callback).await {
            Ok(token) => token,
            Err(ProviderError::Foreign(why)) => return Err(SignInFailure::Failed(why)),
            Err(ProviderError::Failed(why)) => return Ok(failed("server_error", why)),
        };
        let nonce = sign_in.nonce();
        let verified = self
            .keys
            .verify(|keys| verify_id_token(&token, keys, &self.settings.policy, &nonce, unix_ms()));
        let person = match verified.await {
            Ok(person) => person,
            Err(error) => {
                let why = format!("the ID token is not accepted: {error}");
                return Ok(failed("access_denied", why));
            }
        };
        let code = URL_SAFE_NO_PAD.encode(randomness::random_bytes::<32>());
        let added = self
            .state()
            .codes
            .add(&code, person, sign_in.clone(), unix_ms());
        match added {
            Ok(()) => Ok(self.answer(&sign_in, &[("code", &code)])),
            Err(error) => Ok(failed(error.error, error.description)),
        }
    }

    /// The credential of an access token for one of these audiences.
    pub(super) fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<AccessToken, TokenError> {
        let mut state = self.state();
        let found = state.grants.authenticate(token, &self.seal, unix_ms());
        let (grant, expires_ms) = found.ok_or(TokenError::Unknown)?;
        if !audiences.contains(&grant.resource) {
            let audience = mgp_engine::doors::bearer::BadBearerToken::Audience;
            return Err(TokenError::Token(audience));
        }
        let (id, agent, bound_to) = (grant.id.clone(), grant.agent.clone(), grant.key.clone());
        // Its tokens have no scopes.
        let groups = self.settings.policy.groups.apply(&grant.groups, &[]);
        let end = state.grant_ends.entry(id).or_default().clone();
        Ok(AccessToken {
            credential: Credential::permanent(agent)
                .with_groups(groups)
                .with_expiry(Some(expires_ms))
                .with_revocation(end),
            bound_to,
        })
    }

    /// Changes the grants: on disk first, then in force.
    async fn change<T>(&self, edit: impl FnOnce(&mut Grants) -> Edit<T>) -> Result<T, OauthError> {
        let _alone = self.writing.lock().await;
        let mut next = self.state().grants.clone();
        let changed = match edit(&mut next) {
            Edit::Store(changed) => changed,
            Edit::Discard(unchanged) => return Ok(unchanged),
        };
        let (bytes, file) = (grants_file::render(&next), self.settings.file.clone());
        let writing = task::run_blocking("broker.write", move || grants_file::write(&file, &bytes));
        let written = writing.await.map_err(std::io::Error::other).flatten();
        written.map_err(|error| {
            tracing::error!(%error, "the sign-ins of agents could not be written");
            OauthError::new("server_error", "the gateway cannot store sign-ins now")
        })?;
        self.state().grants = next;
        Ok(changed)
    }

    /// Ends what these grants are used for, after they were removed.
    fn end(&self, ended: &[Grant], reason: &str) {
        for grant in ended {
            if let Some(end) = self.state().grant_ends.remove(&grant.id) {
                end.cancel();
            }
            self.record(
                EventType::AGENT_SIGNED_OUT,
                grant,
                json!({"reason": reason}),
            );
        }
    }

    fn record(&self, event_type: EventType, grant: &Grant, mut details: Value) {
        let trace = TraceId::from_random(randomness::random_bytes());
        let target = Target {
            agent_id: Some(grant.agent.to_string()),
            ..Target::default()
        };
        details["client"] = json!(grant.client_name);
        details["resource"] = json!(grant.resource);
        let actor = audit::agent_actor(grant.agent.as_str());
        let event = audit::new_event(event_type, actor, target, &trace, Outcome::Success, details);
        self.audit.record(event);
    }

    /// Ends all that an agent's person allowed; returns it. New sign-ins are possible: the provider decides about people.
    ///
    /// # Errors
    /// The disk's; then nothing has ended.
    pub async fn end_agent(&self, agent: &AgentId) -> Result<Vec<Grant>, OauthError> {
        self.state().codes.remove_agent(agent);
        let ended = self.change(|grants| {
            let ended = grants.remove_agent(agent);
            if ended.is_empty() {
                Edit::Discard(ended)
            } else {
                Edit::Store(ended)
            }
        });
        let ended = ended.await?;
        self.end(&ended, "removed");
        Ok(ended)
    }

    /// The grants that are in force.
    #[must_use]
    pub fn grants(&self) -> Vec<Grant> {
        self.state().grants.iter(unix_ms()).cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a resource's URL before the path of the endpoint.
pub(super) fn origin(resource: &str) -> &str {
    let begin = resource.find("://").map_or(0, |at| at + 3);
    let path = resource[begin..].find('/');
    let origin = &resource[..path.map_or(resource.len(), |at| begin + at)];
    resource.strip_suffix("/mcp").unwrap_or(origin)
}

/// What may stand in `error_description` (RFC 6749, section 4.1.2.1).
fn quotable(text: &str) -> String {
    let plain = |c: &char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    text.chars().filter(plain).take(200).collect()
}
