//! The login at one server: the tokens at hand, one renewal for any number of calls, and what waits for a person.

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
    /// Whose it is, where each agent has its own.
    agent: Option<AgentId>,
    /// As written in the entry.
    entry_url: String,
    pub(super) url: Url,
    pub(super) rules: LoginConfig,
    pub(super) backend: LoginBackend,
    /// One renewal at a time: whoever waited finds the token that it came to.
    renewal_permit: Semaphore,
    state: Mutex<LoginState>,
    /// What was offered to a person because an agent called.
    pub(super) offers: tokio::sync::Mutex<LoginOffers>,
    /// Its agent is gone: nothing is sent or kept any more.
    ended: AtomicBool,
}

#[derive(Default)]
struct LoginState {
    record: Option<Arc<LoginRecord>>,
    /// The key that its tokens are bound to.
    prover: Option<Arc<Prover>>,
    /// The store was read.
    is_loaded: bool,
    /// Why the store could not be read.
    load_error: Option<String>,
    wanted_login: Option<PendingLogin>,
}

impl LoginState {
    fn set(&mut self, record: Option<Arc<LoginRecord>>) {
        let key = |record: &Arc<LoginRecord>| record.proof_key.clone();
        let key = record.as_ref().and_then(key);
        // The same key keeps the nonce that its server gave.
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
    /// The login of an entry at its address; nothing is read yet.
    ///
    /// # Errors
    /// The address is not one that tokens may be sent to.
    pub(crate) fn new(
        (id, agent): &(ServerId, Option<AgentId>),
        url: &str,
        rules: LoginConfig,
        place: LoginBackend,
    ) -> Result<Self, SignInError> {
        Ok(Self {
            id: id.clone(),
            agent: agent.clone(),
            entry_url: url.to_owned(),
            url: parse_safe_url("the address of the server", url)?,
            rules,
            backend: place,
            renewal_permit: Semaphore::new(1),
            state: Mutex::default(),
            offers: tokio::sync::Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    pub(super) fn matches(&self, url: &str, rules: &LoginConfig) -> bool {
        self.entry_url == url && self.rules == *rules
    }

    /// What is asked for documents and tokens.
    pub(super) async fn http_client(&self) -> LoginHttpClient {
        let rules = [&self.rules.issuer, &self.rules.exchange_endpoint];
        LoginHttpClient::new(
            &self.backend.outbound,
            &self.url,
            rules.into_iter().flatten(),
        )
        .await
    }

    /// Reads what is kept. What was wanted is wanted no more where that is another token than before; a life
    /// begins with this.
    pub async fn reload(&self) {
        let before = self.lock_state().record.clone();
        let name = self.name();
        let read = self
            .with_store(move |store| store.get(Namespace::Oauth, &name))
            .await;
        let read = read.map(|text| text.flatten().and_then(|text| parse_record(&text)));
        let mut held = self.lock_state();
        held.is_loaded = true;
        match read {
            Ok(record) => {
                let token = |record: Option<&LoginRecord>| record.and_then(|it| it.access.clone());
                if token(record.as_ref()) != token(before.as_deref()) {
                    held.wanted_login = None;
                }
                held.set(record.map(Arc::new));
                held.load_error = None;
            }
            Err(error) => held.load_error = Some(error.to_string()),
        }
    }

    /// A life begins: what is kept is read, and nothing is wanted until the server says so.
    pub(crate) async fn begin_generation(&self) {
        self.reload().await;
        self.lock_state().wanted_login = None;
    }

    /// What is kept.
    #[must_use]
    pub fn record(&self) -> Option<Arc<LoginRecord>> {
        self.lock_state().record.clone()
    }

    /// What signs the proofs of its requests, where its tokens are bound to a key.
    pub(super) fn prover(&self) -> Option<Arc<Prover>> {
        self.lock_state().prover.clone()
    }

    /// The login that it wants.
    #[must_use]
    pub(crate) fn wanted_login(&self) -> Option<PendingLogin> {
        self.lock_state().wanted_login.clone()
    }

    /// Why it takes no calls before a person has signed in.
    #[must_use]
    pub(crate) fn park_reason(&self) -> Option<String> {
        let wanted = self.wanted_login().filter(|wanted| wanted.parked)?;
        Some(wanted.why)
    }

    /// The token to send; a new one where the last one is about to expire.
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
            let _turn = this.renewal_permit.acquire().await;
            match this.newer_token(Some(&late)) {
                Some(newer) => Some(newer),
                None => this.renew(&record).await.ok(),
            }
        };
        // A token that is late may still be good; the server says so.
        run_to_completion(Box::pin(renewal)).await.or(Some(token))
    }

    /// The server refused this token: the next one to try, or `None`, and then [`Self::wanted`] says what a person
    /// can do. A `first` refusal of a request may lead to one renewal; however many calls are refused at once,
    /// there is one.
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
        let _turn = self.renewal_permit.acquire().await;
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

    /// A token at hand that is not the one that was sent.
    fn newer_token(&self, used: Option<&str>) -> Option<String> {
        let token = self.record()?.access.clone()?;
        (Some(&*token) != used).then_some(token)
    }

    /// Gets the next token with the refresh token, which is good once where the server rotates them. A refusal
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
        let asked = self
            .http_client()
            .await
            .request_token(&record.token_endpoint, request, prover.as_deref())
            .await;
        match asked {
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

    /// Gets a token that nobody has to be asked for. What refuses is not asked again for this request, nor by
    /// another grant.
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
            "it refuses the token that was got for it".to_owned()
        };
        self.lock_state().wanted_login = Some(PendingLogin {
            why: format!("no token was got for it: {failed}"),
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
        let mut held = self.lock_state();
        let why = match (&held.load_error, again) {
            (Some(trouble), _) => {
                format!("it wants a login, and what is kept cannot be read: {trouble}")
            }
            (None, false) => format!("it wants a login: `{command}`"),
            (None, true) => format!("its login is over, and it wants another one: `{command}`"),
        };
        held.wanted_login = Some(build_wanted_login(why, command, true, challenge));
    }

    fn require_scopes(&self, record: Option<&LoginRecord>, challenge: &LoginChallenge) {
        let command = self.command();
        let asked = record.is_some_and(|record| record.asked.covers(&challenge.scope));
        let why = match asked && !challenge.scope.is_empty() {
            // Another login would ask for the same.
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

    /// What the client signs, where that is how it shows who it is.
    pub(super) fn client_assertion(
        &self,
        client: &mgp_engine::servers::login::client_identity::ClientIdentity,
        issuer: &str,
    ) -> Result<Option<String>, LoginError> {
        unattended::sign_client_assertion(&self.rules, client, issuer)
    }

    /// Keeps a login in the place of the one before.
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
            let mut held = self.lock_state();
            held.set(Some(Arc::new(record)));
            held.wanted_login = None;
        }
        let kept = self
            .with_store(move |store| store.set(Namespace::Oauth, &name, &text))
            .await?;
        kept.map(drop)
            .ok_or_else(|| LoginError::Store("there is no home to keep it in; set HOME".into()))
    }

    /// The same while calls wait for the token: they go on with it, kept or not.
    async fn save_or_log(&self, record: LoginRecord) {
        if let Err(error) = self.save(record).await {
            tracing::warn!(server = %self.id, %error, "its token could not be kept: it wants a login after the next start");
        }
    }

    /// Has its tokens taken back where it was got, and forgets it; the second is why nobody took them back.
    ///
    /// # Errors
    /// [`LoginError::Store`]: it is still kept.
    pub async fn forget(&self) -> Result<(bool, Option<String>), LoginError> {
        self.reload().await;
        if let Some(trouble) = self.lock_state().load_error.clone() {
            return Err(LoginError::Store(trouble));
        }
        let record = self.record();
        let told = match &record {
            Some(record) => self.revoke(record).await,
            None => None,
        };
        let name = self.name();
        let removed = self
            .with_store(move |store| store.remove(Namespace::Oauth, &name))
            .await?;
        self.lock_state().set(None);
        Ok((removed == Some(true), told))
    }

    /// The refresh token first: with it go those that came of it.
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

    /// What a person types for it.
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

    /// Its agent is gone: what is at hand is sent no more, and nothing is kept for it.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.lock_state().set(None);
    }

    /// Where a person can sign in for it now.
    pub(super) fn set_sign_in_url(&self, url: &str) {
        if let Some(wanted) = &mut self.lock_state().wanted_login {
            wanted.url = Some(url.to_owned());
        }
    }

    /// Does something with the store, which waits for the disk; `None` without one.
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

/// Carries a renewal through, whoever still waits for it: a refresh token that was sent is good no more, and the
/// one that comes for it must not be lost with a call that was taken back. Boxed by who calls, as requests are many
/// and renewals few.
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

/// One of another version of this program is none: a person signs in again.
fn parse_record(text: &SecretString) -> Option<LoginRecord> {
    serde_json::from_str(text.expose_secret()).ok()
}
