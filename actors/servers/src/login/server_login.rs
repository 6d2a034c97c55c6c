//! The login at one server: current tokens, renewal shared by all calls, and the pending sign-in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::record::{LoginRecord, login_name};
use mgp_engine::servers::login::scopes::ScopeSet;
use mgp_engine::servers::login::token::{IssuedTokens, TokenGrant, TokenRequest};
use mgp_engine::servers::login::{LoginConfig, SignInError, parse_safe_url};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::servers::PendingLogin;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;
use mgp_store::secrets::{Namespace, SecretStore, SecretsError};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use url::Url;

use super::http_client::{LoginHttpClient, TokenFailure};
use super::offers::LoginOffers;
use super::prover::Prover;
use super::{LoginBackend, LoginError, unattended};

/// The login at one server.
pub struct ServerLogin {
    pub(super) id: ServerId,
    /// The agent, if each has a login of its own.
    agent: Option<AgentId>,
    /// The URL as written in the entry.
    entry_url: String,
    pub(super) url: Url,
    pub(super) rules: LoginConfig,
    pub(super) backend: LoginBackend,
    /// Allows one renewal at a time; waiting calls use its token.
    renewal_permit: Semaphore,
    state: Mutex<LoginState>,
    /// Sign-in offers for calls of agents.
    pub(super) offers: tokio::sync::Mutex<LoginOffers>,
    /// True once the agent is removed: nothing is sent or stored any more.
    ended: AtomicBool,
}

#[derive(Default)]
struct LoginState {
    record: Option<Arc<LoginRecord>>,
    /// The key that the tokens are bound to.
    prover: Option<Arc<Prover>>,
    /// True once the store was read.
    is_loaded: bool,
    /// Why the store could not be read.
    load_error: Option<String>,
    wanted_login: Option<PendingLogin>,
}

impl LoginState {
    fn set(&mut self, record: Option<Arc<LoginRecord>>) {
        let key = |record: &Arc<LoginRecord>| record.proof_key.clone();
        let key = record.as_ref().and_then(key);
        // An unchanged key keeps its server's nonce.
        if self.prover.as_ref().map(|it| it.to_stored()) != key {
            self.prover = key.and_then(|key| Prover::from_stored(&key).ok());
        }
        self.record = record;
    }
}

impl std::fmt::Debug for ServerLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerLogin")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ServerLogin {
    /// Creates the login of an entry at its address, without reading the store.
    ///
    /// # Errors
    /// The address is not one to which tokens may be sent.
    pub fn new(
        (id, agent): &(ServerId, Option<AgentId>),
        url: &str,
        rules: LoginConfig,
        backend: LoginBackend,
    ) -> Result<Self, SignInError> {
        Ok(Self {
            id: id.clone(),
            agent: agent.clone(),
            entry_url: url.to_owned(),
            url: parse_safe_url("the address of the server", url)?,
            rules,
            backend,
            renewal_permit: Semaphore::new(1),
            state: Mutex::default(),
            offers: tokio::sync::Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    pub(super) fn matches(&self, url: &str, rules: &LoginConfig) -> bool {
        self.entry_url == url && self.rules == *rules
    }

    /// A client for documents and tokens.
    pub(super) async fn http_client(&self) -> LoginHttpClient {
        let rules = [&self.rules.issuer, &self.rules.exchange_endpoint];
        LoginHttpClient::new(
            &self.backend.outbound,
            &self.url,
            rules.into_iter().flatten(),
        )
        .await
    }

    /// Reads the stored record. A pending sign-in is dropped if the token has changed.
    pub async fn reload(&self) {
        let before = self.lock_state().record.clone();
        let name = self.name();
        let read = self
            .with_store(move |store| store.get(Namespace::Oauth, &name))
            .await;
        let read = read.map(|text| text.flatten().and_then(|text| parse_record(&text)));
        let mut state = self.lock_state();
        state.is_loaded = true;
        match read {
            Ok(record) => {
                let token = |record: Option<&LoginRecord>| record.and_then(|it| it.access.clone());
                if token(record.as_ref()) != token(before.as_deref()) {
                    state.wanted_login = None;
                }
                state.set(record.map(Arc::new));
                state.load_error = None;
            }
            Err(error) => state.load_error = Some(error.to_string()),
        }
    }

    /// Prepares for a new generation of the server: reads the store and drops a pending sign-in.
    pub(crate) async fn begin_generation(&self) {
        self.reload().await;
        self.lock_state().wanted_login = None;
    }

    /// The stored record.
    #[must_use]
    pub fn record(&self) -> Option<Arc<LoginRecord>> {
        self.lock_state().record.clone()
    }

    /// The prover, if the tokens are bound to a key.
    pub(super) fn prover(&self) -> Option<Arc<Prover>> {
        self.lock_state().prover.clone()
    }

    /// The pending sign-in.
    #[must_use]
    pub(crate) fn wanted_login(&self) -> Option<PendingLogin> {
        self.lock_state().wanted_login.clone()
    }

    /// The reason for parking the server until a person has signed in.
    #[must_use]
    pub(crate) fn park_reason(&self) -> Option<String> {
        let wanted = self.wanted_login().filter(|wanted| wanted.parked)?;
        Some(wanted.why)
    }

    /// The token to send; renewed if it is about to expire.
    pub(super) async fn token(self: &Arc<Self>) -> Option<String> {
        if self.ended.load(Ordering::Relaxed) {
            return None;
        }
        if !self.lock_state().is_loaded {
            self.reload().await;
        }
        let record = self.record()?;
        let token = record.access.clone()?;
        if !record.is_expiring(unix_ms()) || record.refresh.is_none() {
            return Some(token);
        }
        let (this, late) = (self.clone(), token.clone());
        let renewal = async move {
            let _permit = this.renewal_permit.acquire().await;
            match this.newer_token(Some(&late)) {
                Some(newer) => Some(newer),
                None => this.renew(&record).await.ok(),
            }
        };
        // An expiring token may still be valid; the server decides.
        run_to_completion(Box::pin(renewal)).await.or(Some(token))
    }

    /// The next token after the server refused this one, or `None` if a person has to act as
    /// [`Self::wanted_login`] describes. A `first` refusal of a request may cause one renewal, shared by all
    /// calls refused at the same time.
    pub(super) async fn next_token_after_refusal(
        self: &Arc<Self>,
        used: Option<&str>,
        challenge: &LoginChallenge,
        first: bool,
    ) -> Option<String> {
        let (this, used) = (self.clone(), used.map(str::to_owned));
        let challenge = challenge.clone();
        let next = async move {
            this.find_next_token(used.as_deref(), &challenge, first)
                .await
        };
        run_to_completion(Box::pin(next)).await
    }

    async fn find_next_token(
        &self,
        used: Option<&str>,
        challenge: &LoginChallenge,
        first: bool,
    ) -> Option<String> {
        let _permit = self.renewal_permit.acquire().await;
        if let Some(newer) = self.newer_token(used) {
            return Some(newer);
        }
        self.reload().await;
        if let Some(newer) = self.newer_token(used) {
            return Some(newer);
        }
        let record = self.record();
        if self.rules.grant.is_unattended() {
            return self.try_obtain(challenge, first).await;
        }
        if challenge.is_insufficient_scope() {
            self.require_scopes(record.as_deref(), challenge);
            return None;
        }
        if let (true, Some(record)) = (first && used.is_some(), &record)
            && record.refresh.is_some()
        {
            match self.renew(record).await {
                Ok(token) => return Some(token),
                Err(LoginError::NoAnswer(why)) => {
                    tracing::warn!(server = %self.id, why, "its token could not be renewed");
                    return None;
                }
                Err(LoginError::Rejected(_) | LoginError::Store(_)) => {}
            }
        }
        let again = used.is_some();
        self.require_login(challenge, again);
        None
    }

    /// A current token other than the one that was sent.
    fn newer_token(&self, used: Option<&str>) -> Option<String> {
        let token = self.record()?.access.clone()?;
        (Some(&*token) != used).then_some(token)
    }

    /// Renews the token with the refresh token, which can be used once if the server rotates them. A refusal
    /// ends the login.
    async fn renew(&self, record: &LoginRecord) -> Result<String, LoginError> {
        let refresh = record.refresh.as_deref().unwrap_or_default();
        let assertion = self.client_assertion(&record.client, &record.issuer)?;
        let request = TokenRequest::new(
            TokenGrant::Refresh(refresh),
            &record.client,
            record.resource.as_deref(),
            &ScopeSet::default(),
            assertion.as_deref(),
        );
        let prover = self.prover();
        let response = self
            .http_client()
            .await
            .request_token(&record.token_endpoint, request, prover.as_deref())
            .await;
        match response {
            Ok(json) => {
                let given = IssuedTokens::parse(&json, unix_ms(), prover.is_some())?;
                let renewed = record.with_tokens(given);
                let token = renewed.access.clone().unwrap_or_default();
                self.save_or_log(renewed).await;
                tracing::info!(server = %self.id, "its token was renewed");
                Ok(token)
            }
            Err(TokenFailure::Refused(refusal)) if refusal.requires_sign_in() => {
                self.save_or_log(record.without_tokens()).await;
                Err(SignInError::Rejected(refusal.description).into())
            }
            Err(TokenFailure::Refused(refusal)) => Err(LoginError::NoAnswer(refusal.description)),
            Err(TokenFailure::NoAnswer(error)) => Err(error),
        }
    }

    /// Obtains a token without a person. After a refusal, neither this grant nor another is tried for this
    /// request.
    async fn try_obtain(&self, challenge: &LoginChallenge, first: bool) -> Option<String> {
        let failed = if first {
            match self.obtain(challenge).await {
                Ok(record) => {
                    let token = record.access.clone();
                    self.save_or_log(record).await;
                    return token;
                }
                Err(error) => error.to_string(),
            }
        } else {
            "it rejected the new token".to_owned()
        };
        self.lock_state().wanted_login = Some(PendingLogin {
            why: format!("no token could be obtained for it: {failed}"),
            command: format!("mgp servers start {}", self.id),
            parked: !challenge.is_insufficient_scope(),
            ..PendingLogin::default()
        });
        None
    }

    async fn obtain(&self, challenge: &LoginChallenge) -> Result<LoginRecord, LoginError> {
        unattended::obtain_token(&self.rules, &self.url, &self.http_client().await, challenge).await
    }

    fn require_login(&self, challenge: &LoginChallenge, again: bool) {
        let command = self.command();
        let mut state = self.lock_state();
        let why = match (&state.load_error, again) {
            (Some(trouble), _) => {
                format!("it wants a login, and the stored login cannot be read: {trouble}")
            }
            (None, false) => format!("it wants a login: `{command}`"),
            (None, true) => format!("its login has ended, and it requires a new one: `{command}`"),
        };
        state.wanted_login = Some(build_wanted_login(why, command, true, challenge));
    }

    fn require_scopes(&self, record: Option<&LoginRecord>, challenge: &LoginChallenge) {
        let command = self.command();
        let already_requested = record.is_some_and(|record| record.asked.covers(&challenge.scope));
        let why = match already_requested && !challenge.scope.is_empty() {
            // Another login would request the same scopes.
            true => format!(
                "it wants rights that the login already asked for ({}): another login does not change that; \
                 ask who runs it",
                challenge.scope
            ),
            false => format!(
                "it wants a login with more rights ({}): `{command}`",
                challenge.scope
            ),
        };
        self.lock_state().wanted_login = Some(build_wanted_login(why, command, false, challenge));
    }

    /// The client assertion, if the client authenticates with a signature.
    pub(super) fn client_assertion(
        &self,
        client: &mgp_engine::servers::login::client_identity::ClientIdentity,
        issuer: &str,
    ) -> Result<Option<String>, LoginError> {
        unattended::sign_client_assertion(&self.rules, client, issuer)
    }

    /// Stores a login, replacing the previous one.
    ///
    /// # Errors
    /// [`LoginError::Store`].
    pub(crate) async fn save(&self, record: LoginRecord) -> Result<(), LoginError> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(LoginError::Store("its agent was removed".into()));
        }
        let text = serde_json::to_string(&record).expect("a record is always JSON");
        let (name, text) = (self.name(), SecretString::from(text));
        {
            let mut state = self.lock_state();
            state.set(Some(Arc::new(record)));
            state.wanted_login = None;
        }
        let saved = self
            .with_store(move |store| store.set(Namespace::Oauth, &name, &text))
            .await?;
        saved
            .map(drop)
            .ok_or_else(|| LoginError::Store("there is no home to keep it in; set HOME".into()))
    }

    /// Stores a login for waiting calls, which use it even if storing fails.
    async fn save_or_log(&self, record: LoginRecord) {
        if let Err(error) = self.save(record).await {
            tracing::warn!(server = %self.id, %error, "its token could not be kept: it wants a login after the next start");
        }
    }

    /// Revokes the tokens and removes the login. The second value is the reason why they were not revoked.
    ///
    /// # Errors
    /// [`LoginError::Store`] if it could not be removed.
    pub async fn forget(&self) -> Result<(bool, Option<String>), LoginError> {
        self.reload().await;
        if let Some(trouble) = self.lock_state().load_error.clone() {
            return Err(LoginError::Store(trouble));
        }
        let record = self.record();
        let not_revoked = match &record {
            Some(record) => self.revoke(record).await,
            None => None,
        };
        let name = self.name();
        let removed = self
            .with_store(move |store| store.remove(Namespace::Oauth, &name))
            .await?;
        self.lock_state().set(None);
        Ok((removed == Some(true), not_revoked))
    }

    /// Revokes the refresh token first, which also revokes the tokens obtained with it.
    async fn revoke(&self, record: &LoginRecord) -> Option<String> {
        let tokens = [
            (record.refresh.as_deref(), "refresh_token"),
            (record.access.as_deref(), "access_token"),
        ];
        if tokens.iter().all(|(token, _)| token.is_none()) {
            return None;
        }
        let Some(endpoint) = &record.revocation_endpoint else {
            return Some(format!(
                "{} takes no tokens back; this one ends by itself",
                record.issuer
            ));
        };
        let fetch = self.http_client().await;
        for (token, kind) in tokens {
            let Some(token) = token else { continue };
            let assertion = self
                .client_assertion(&record.client, &record.issuer)
                .ok()
                .flatten();
            let request =
                TokenRequest::revocation(token, kind, &record.client, assertion.as_deref());
            if let Err(failure) = fetch.request_token(endpoint, request, None).await {
                return Some(LoginError::from(failure).to_string());
            }
        }
        None
    }

    fn name(&self) -> String {
        login_name(
            self.id.as_str(),
            &self.entry_url,
            self.agent.as_ref().map(AgentId::as_str),
        )
    }

    /// The sign-in command for a person.
    pub(super) fn command(&self) -> String {
        match &self.agent {
            None => format!("mgp logins add {}", self.id),
            Some(agent) => {
                let name = agent.as_str();
                let name = name.strip_prefix(AgentId::PREFIX).unwrap_or(name);
                format!("mgp logins add {} --agent {name}", self.id)
            }
        }
    }

    /// Ends the login of a removed agent: tokens are neither sent nor stored any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.lock_state().set(None);
    }

    /// Sets the address where a person can sign in now.
    pub(super) fn set_sign_in_url(&self, url: &str) {
        if let Some(wanted) = &mut self.lock_state().wanted_login {
            wanted.url = Some(url.to_owned());
        }
    }

    /// Runs an operation on the store, which waits for the disk; `None` without a store.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SecretStore) -> Result<T, SecretsError> + Send + 'static,
    ) -> Result<Option<T>, LoginError> {
        let Some(store) = self.backend.store.clone() else {
            return Ok(None);
        };
        let done = task::run_blocking("login.store", move || work(&store)).await;
        let done = done.map_err(|e| LoginError::Store(e.to_string()))?;
        done.map(Some).map_err(|e| LoginError::Store(e.to_string()))
    }

    fn lock_state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completes a renewal even if its caller is cancelled: the sent refresh token is used up, and its replacement
/// must not be lost. The caller boxes the future, because requests are many and renewals few.
async fn run_to_completion(
    renewal: impl Future<Output = Option<String>> + Send + 'static,
) -> Option<String> {
    let done = task::spawn_supervised("login.renewal", renewal)
        .detach()
        .await;
    done.ok()?.ok()?
}

fn build_wanted_login(
    why: String,
    command: String,
    parked: bool,
    challenge: &LoginChallenge,
) -> PendingLogin {
    let scope = challenge.scope.to_string();
    PendingLogin {
        why,
        command,
        url: None,
        parked,
        bound: challenge.requires_dpop,
        scope: (!scope.is_empty()).then_some(scope),
        resource_metadata: challenge.resource_metadata.clone(),
    }
}

/// Parses a record; one of another program version is ignored, and a person signs in again.
fn parse_record(text: &SecretString) -> Option<LoginRecord> {
    serde_json::from_str(text.expose_secret()).ok()
}
