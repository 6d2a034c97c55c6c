//! The login at one server: the tokens at hand, one renewal for any number of calls, and what waits for a person.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::record::{LoginRecord, login_name};
use mgp_engine::servers::login::scopes::ScopeSet;
use mgp_engine::servers::login::token::{GivenTokens, TokenGrant, TokenRequest};
use mgp_engine::servers::login::{LoginRules, NoLogin, safe_url};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::servers::WantedLogin;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;
use mgp_store::secrets::{Namespace, SecretStore, SecretsError};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use url::Url;

use super::fetch::{LoginFetch, TokenFailure};
use super::open_offer::LoginOffers;
use super::prover::Prover;
use super::{LoginError, LoginPlace, unattended};

/// The login at one server.
pub struct ServerLogin {
    pub(super) id: ServerId,
    /// Whose it is, where each agent has its own.
    agent: Option<AgentId>,
    /// As written in the entry.
    written: String,
    pub(super) url: Url,
    pub(super) rules: LoginRules,
    pub(super) place: LoginPlace,
    /// One renewal at a time: whoever waited finds the token that it came to.
    turn: Semaphore,
    held: Mutex<HeldLogin>,
    /// What was offered to a person because an agent called.
    pub(super) offer: tokio::sync::Mutex<LoginOffers>,
    /// Its agent is gone: nothing is sent or kept any more.
    over: AtomicBool,
}

#[derive(Default)]
struct HeldLogin {
    record: Option<Arc<LoginRecord>>,
    /// The key that its tokens are bound to.
    prover: Option<Arc<Prover>>,
    /// The store was read.
    read: bool,
    /// Why the store could not be read.
    trouble: Option<String>,
    wanted: Option<WantedLogin>,
}

impl HeldLogin {
    fn set(&mut self, record: Option<Arc<LoginRecord>>) {
        let key = |record: &Arc<LoginRecord>| record.proof_key.clone();
        let key = record.as_ref().and_then(key);
        // The same key keeps the nonce that its server gave.
        if self.prover.as_ref().map(|it| it.kept()) != key {
            self.prover = key.and_then(|key| Prover::read(&key).ok());
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
    pub fn new(
        (id, agent): &(ServerId, Option<AgentId>),
        url: &str,
        rules: LoginRules,
        place: LoginPlace,
    ) -> Result<Self, NoLogin> {
        Ok(Self {
            id: id.clone(),
            agent: agent.clone(),
            written: url.to_owned(),
            url: safe_url("the address of the server", url)?,
            rules,
            place,
            turn: Semaphore::new(1),
            held: Mutex::default(),
            offer: tokio::sync::Mutex::default(),
            over: AtomicBool::new(false),
        })
    }

    pub(super) fn is_of(&self, url: &str, rules: &LoginRules) -> bool {
        self.written == url && self.rules == *rules
    }

    /// What is asked for documents and tokens.
    pub(super) async fn fetch(&self) -> LoginFetch {
        let rules = [&self.rules.issuer, &self.rules.exchange_at];
        LoginFetch::new(&self.place.outbound, &self.url, rules.into_iter().flatten()).await
    }

    /// Reads what is kept. What was wanted is wanted no more where that is another token than before; a life
    /// begins with this.
    pub async fn look(&self) {
        let before = self.held().record.clone();
        let name = self.name();
        let read = self
            .stored(move |store| store.get(Namespace::Oauth, &name))
            .await;
        let read = read.map(|text| text.flatten().and_then(|text| parsed(&text)));
        let mut held = self.held();
        held.read = true;
        match read {
            Ok(record) => {
                let token = |record: Option<&LoginRecord>| record.and_then(|it| it.access.clone());
                if token(record.as_ref()) != token(before.as_deref()) {
                    held.wanted = None;
                }
                held.set(record.map(Arc::new));
                held.trouble = None;
            }
            Err(error) => held.trouble = Some(error.to_string()),
        }
    }

    /// A life begins: what is kept is read, and nothing is wanted until the server says so.
    pub async fn begins(&self) {
        self.look().await;
        self.held().wanted = None;
    }

    /// What is kept.
    #[must_use]
    pub fn record(&self) -> Option<Arc<LoginRecord>> {
        self.held().record.clone()
    }

    /// What signs the proofs of its requests, where its tokens are bound to a key.
    pub(super) fn prover(&self) -> Option<Arc<Prover>> {
        self.held().prover.clone()
    }

    /// The login that it wants.
    #[must_use]
    pub fn wanted(&self) -> Option<WantedLogin> {
        self.held().wanted.clone()
    }

    /// Why it takes no calls before a person has signed in.
    #[must_use]
    pub fn parked(&self) -> Option<String> {
        let wanted = self.wanted().filter(|wanted| wanted.parked)?;
        Some(wanted.why)
    }

    /// The token to send; a new one where the last one is about to expire.
    pub(super) async fn token(self: &Arc<Self>) -> Option<String> {
        if self.over.load(Ordering::Relaxed) {
            return None;
        }
        if !self.held().read {
            self.look().await;
        }
        let record = self.record()?;
        let token = record.access.clone()?;
        if !record.is_late(unix_ms()) || record.refresh.is_none() {
            return Some(token);
        }
        let (this, late) = (self.clone(), token.clone());
        let renewal = async move {
            let _turn = this.turn.acquire().await;
            match this.newer(Some(&late)) {
                Some(newer) => Some(newer),
                None => this.renewed(&record).await.ok(),
            }
        };
        // A token that is late may still be good; the server says so.
        whole(Box::pin(renewal)).await.or(Some(token))
    }

    /// The server refused this token: the next one to try, or `None`, and then [`Self::wanted`] says what a person
    /// can do. A `first` refusal of a request may lead to one renewal; however many calls are refused at once,
    /// there is one.
    pub(super) async fn refused(
        self: &Arc<Self>,
        used: Option<&str>,
        challenge: &LoginChallenge,
        first: bool,
    ) -> Option<String> {
        let (this, used) = (self.clone(), used.map(str::to_owned));
        let challenge = challenge.clone();
        let next = async move { this.next(used.as_deref(), &challenge, first).await };
        whole(Box::pin(next)).await
    }

    async fn next(
        &self,
        used: Option<&str>,
        challenge: &LoginChallenge,
        first: bool,
    ) -> Option<String> {
        let _turn = self.turn.acquire().await;
        if let Some(newer) = self.newer(used) {
            return Some(newer);
        }
        self.look().await;
        if let Some(newer) = self.newer(used) {
            return Some(newer);
        }
        let record = self.record();
        if self.rules.grant.is_unattended() {
            return self.obtained(challenge, first).await;
        }
        if challenge.wants_more() {
            self.wants_more(record.as_deref(), challenge);
            return None;
        }
        if let (true, Some(record)) = (first && used.is_some(), &record)
            && record.refresh.is_some()
        {
            match self.renewed(record).await {
                Ok(token) => return Some(token),
                Err(LoginError::NoAnswer(why)) => {
                    tracing::warn!(server = %self.id, why, "its token could not be renewed");
                    return None;
                }
                Err(LoginError::Judged(_) | LoginError::Store(_)) => {}
            }
        }
        let again = used.is_some();
        self.wants_login(challenge, again);
        None
    }

    /// A token at hand that is not the one that was sent.
    fn newer(&self, used: Option<&str>) -> Option<String> {
        let token = self.record()?.access.clone()?;
        (Some(&*token) != used).then_some(token)
    }

    /// Gets the next token with the refresh token, which is good once where the server rotates them. A refusal
    /// ends the login.
    async fn renewed(&self, record: &LoginRecord) -> Result<String, LoginError> {
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
            .fetch()
            .await
            .token(&record.token_endpoint, request, prover.as_deref())
            .await;
        match asked {
            Ok(json) => {
                let given = GivenTokens::read(&json, unix_ms(), prover.is_some())?;
                let renewed = record.renewed(given);
                let token = renewed.access.clone().unwrap_or_default();
                self.keep_or_tell(renewed).await;
                tracing::info!(server = %self.id, "its token was renewed");
                Ok(token)
            }
            Err(TokenFailure::Refused(refusal)) if refusal.ends_login() => {
                self.keep_or_tell(record.ended()).await;
                Err(NoLogin::Refused(refusal.words).into())
            }
            Err(TokenFailure::Refused(refusal)) => Err(LoginError::NoAnswer(refusal.words)),
            Err(TokenFailure::NoAnswer(error)) => Err(error),
        }
    }

    /// Gets a token that nobody has to be asked for. What refuses is not asked again for this request, nor by
    /// another grant.
    async fn obtained(&self, challenge: &LoginChallenge, first: bool) -> Option<String> {
        let failed = match first {
            true => match self.obtain(challenge).await {
                Ok(record) => {
                    let token = record.access.clone();
                    self.keep_or_tell(record).await;
                    return token;
                }
                Err(error) => error.to_string(),
            },
            false => "it refuses the token that was got for it".to_owned(),
        };
        self.held().wanted = Some(WantedLogin {
            why: format!("no token was got for it: {failed}"),
            command: format!("mgp servers start {}", self.id),
            parked: !challenge.wants_more(),
            ..WantedLogin::default()
        });
        None
    }

    async fn obtain(&self, challenge: &LoginChallenge) -> Result<LoginRecord, LoginError> {
        unattended::obtain(&self.rules, &self.url, &self.fetch().await, challenge).await
    }

    fn wants_login(&self, challenge: &LoginChallenge, again: bool) {
        let command = self.command();
        let mut held = self.held();
        let why = match (&held.trouble, again) {
            (Some(trouble), _) => {
                format!("it wants a login, and what is kept cannot be read: {trouble}")
            }
            (None, false) => format!("it wants a login: `{command}`"),
            (None, true) => format!("its login is over, and it wants another one: `{command}`"),
        };
        held.wanted = Some(wanted(why, command, true, challenge));
    }

    fn wants_more(&self, record: Option<&LoginRecord>, challenge: &LoginChallenge) {
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
        self.held().wanted = Some(wanted(why, command, false, challenge));
    }

    /// What the client signs, where that is how it shows who it is.
    pub(super) fn client_assertion(
        &self,
        client: &mgp_engine::servers::login::client_identity::ClientIdentity,
        issuer: &str,
    ) -> Result<Option<String>, LoginError> {
        unattended::client_assertion(&self.rules, client, issuer)
    }

    /// Keeps a login in the place of the one before.
    ///
    /// # Errors
    /// [`LoginError::Store`].
    pub async fn keep(&self, record: LoginRecord) -> Result<(), LoginError> {
        if self.over.load(Ordering::Relaxed) {
            return Err(LoginError::Store("its agent was removed".into()));
        }
        let text = serde_json::to_string(&record).expect("a record is always JSON");
        let (name, text) = (self.name(), SecretString::from(text));
        {
            let mut held = self.held();
            held.set(Some(Arc::new(record)));
            held.wanted = None;
        }
        let kept = self
            .stored(move |store| store.set(Namespace::Oauth, &name, &text))
            .await?;
        kept.map(drop)
            .ok_or_else(|| LoginError::Store("there is no home to keep it in; set HOME".into()))
    }

    /// The same while calls wait for the token: they go on with it, kept or not.
    async fn keep_or_tell(&self, record: LoginRecord) {
        if let Err(error) = self.keep(record).await {
            tracing::warn!(server = %self.id, %error, "its token could not be kept: it wants a login after the next start");
        }
    }

    /// Has its tokens taken back where it was got, and forgets it; the second is why nobody took them back.
    ///
    /// # Errors
    /// [`LoginError::Store`]: it is still kept.
    pub async fn forget(&self) -> Result<(bool, Option<String>), LoginError> {
        self.look().await;
        if let Some(trouble) = self.held().trouble.clone() {
            return Err(LoginError::Store(trouble));
        }
        let record = self.record();
        let told = match &record {
            Some(record) => self.revoked(record).await,
            None => None,
        };
        let name = self.name();
        let removed = self
            .stored(move |store| store.remove(Namespace::Oauth, &name))
            .await?;
        self.held().set(None);
        Ok((removed == Some(true), told))
    }

    /// The refresh token first: with it go those that came of it.
    async fn revoked(&self, record: &LoginRecord) -> Option<String> {
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
        let fetch = self.fetch().await;
        for (token, kind) in tokens {
            let Some(token) = token else { continue };
            let assertion = self
                .client_assertion(&record.client, &record.issuer)
                .ok()
                .flatten();
            let request =
                TokenRequest::revocation(token, kind, &record.client, assertion.as_deref());
            if let Err(failure) = fetch.token(endpoint, request, None).await {
                return Some(LoginError::from(failure).to_string());
            }
        }
        None
    }

    fn name(&self) -> String {
        login_name(
            self.id.as_str(),
            &self.written,
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
    pub(super) fn ends(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.held().set(None);
    }

    /// Where a person can sign in for it now.
    pub(super) fn shows(&self, url: &str) {
        if let Some(wanted) = &mut self.held().wanted {
            wanted.url = Some(url.to_owned());
        }
    }

    /// Does something with the store, which waits for the disk; `None` without one.
    async fn stored<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SecretStore) -> Result<T, SecretsError> + Send + 'static,
    ) -> Result<Option<T>, LoginError> {
        let Some(store) = self.place.store.clone() else {
            return Ok(None);
        };
        let done = task::blocking("login.store", move || work(&store)).await;
        let done = done.map_err(|e| LoginError::Store(e.to_string()))?;
        done.map(Some).map_err(|e| LoginError::Store(e.to_string()))
    }

    fn held(&self) -> MutexGuard<'_, HeldLogin> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries a renewal through, whoever still waits for it: a refresh token that was sent is good no more, and the
/// one that comes for it must not be lost with a call that was taken back. Boxed by who calls, as requests are many
/// and renewals few.
async fn whole(renewal: impl Future<Output = Option<String>> + Send + 'static) -> Option<String> {
    let done = task::supervised("login.renewal", renewal).detach().await;
    done.ok()?.ok()?
}

fn wanted(why: String, command: String, parked: bool, challenge: &LoginChallenge) -> WantedLogin {
    let scope = challenge.scope.to_string();
    WantedLogin {
        why,
        command,
        url: None,
        parked,
        bound: challenge.bound,
        scope: (!scope.is_empty()).then_some(scope),
        resource_metadata: challenge.resource_metadata.clone(),
    }
}

/// One of another version of this program is none: a person signs in again.
fn parsed(text: &SecretString) -> Option<LoginRecord> {
    serde_json::from_str(text.expose_secret()).ok()
}
