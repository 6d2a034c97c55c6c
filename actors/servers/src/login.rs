//! The logins of a kernel at servers reached over HTTP: what tokens it has, how the next one is got, and what
//! waits for a person.
//!
//! A token goes to the one server it was given for, in one header, and nowhere else: it is kept under the name
//! of the entry and its address, and no log, error or other server sees it.

mod callback;
mod discovery;
mod http_client;
mod offer;
mod offers;
mod prover;
mod server_client;
mod server_login;
mod sign_in;
mod unattended;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::servers::login::SignInError;
use mgp_engine::servers::login::record::is_login_of;
use mgp_engine::servers::spec::{ServerSpec, ServerTransport};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::servers::PendingLogin;
use mgp_store::secrets::{Namespace, SecretStore};
use mgp_transports::http::proxy::Outbound;

pub use self::callback::CallbackListener;
pub(crate) use self::server_client::ServerClient;
pub use self::server_login::ServerLogin;
pub use self::sign_in::SignIn;

/// Why a login does not come about; never shows a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// What somebody wrote, or answered, is not good for it.
    #[error(transparent)]
    Rejected(#[from] SignInError),
    /// Somebody did not answer.
    #[error("{0}")]
    NoAnswer(String),
    /// Tokens cannot be kept.
    #[error("{0}")]
    Store(String),
}

/// Where logins are kept, and how they are got.
#[derive(Clone, Debug)]
pub struct LoginBackend {
    /// The store of secrets; `None` without a home.
    pub store: Option<SecretStore>,
    /// How those who guard servers are reached.
    pub outbound: Outbound,
}

/// The logins of one kernel, a server at an address each: one for every entry that is in force, and one for every
/// agent that called one where each has its own; so their number is that of the entries times that of the agents.
#[derive(Debug)]
pub struct Logins {
    backend: LoginBackend,
    logins: Mutex<BTreeMap<LoginOwner, Arc<ServerLogin>>>,
}

/// The server, and the agent where each has a login of its own.
type LoginOwner = (ServerId, Option<AgentId>);

impl Logins {
    /// None yet.
    #[must_use]
    pub fn new(backend: LoginBackend) -> Self {
        Self {
            backend,
            logins: Mutex::default(),
        }
    }

    /// The login of a server, which all lives and instances of it share; or that of an agent, where the entry says
    /// that each has its own. `None` where it has none.
    #[must_use]
    pub fn login_for(
        &self,
        spec: &ServerSpec,
        agent: Option<&AgentId>,
    ) -> Option<Arc<ServerLogin>> {
        let agent = agent.filter(|_| spec.login.per_agent);
        let owner = (spec.id.clone(), agent.cloned());
        let mut held = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of servers that are gone go, too.
        held.retain(|(id, _), login| {
            *id == spec.id || Arc::strong_count(login) > 1 || login.wanted_login().is_some()
        });
        let url = match &spec.transport {
            ServerTransport::Http { url, .. } if spec.login.enabled => url,
            ServerTransport::Http { .. }
            | ServerTransport::Stdio { .. }
            | ServerTransport::Node(_) => {
                held.retain(|(id, _), _| *id != spec.id);
                return None;
            }
        };
        if let Some(login) = held
            .get(&owner)
            .filter(|login| login.matches(url, &spec.login))
        {
            return Some(login.clone());
        }
        let login = ServerLogin::new(&owner, url, spec.login.clone(), self.backend.clone());
        let login = Arc::new(login.ok()?);
        held.insert(owner, login.clone());
        Some(login)
    }

    /// The logins that wait for a person: those of the servers there are, and those that agents have to have before
    /// they can call, where each has its own.
    #[must_use]
    pub fn wanted(&self, is_server: impl Fn(&ServerId) -> bool) -> BTreeMap<String, PendingLogin> {
        let held = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = held.iter().filter_map(|((id, agent), login)| {
            let name = match agent {
                Some(agent) => format!("{id} for {agent}"),
                None if is_server(id) => id.to_string(),
                None => return None,
            };
            Some((name, login.wanted_login()?))
        });
        wanted.collect()
    }

    /// An agent is removed: nobody who is called the same later has its tokens. They are not taken back where they
    /// were got.
    ///
    /// # Errors
    /// [`LoginError::Store`]: some are still kept.
    pub async fn forget_agent(&self, agent: &AgentId) -> Result<(), LoginError> {
        {
            let mut held = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|(_, whose), login| {
                let its = whose.as_ref() == Some(agent);
                if its {
                    login.end();
                }
                !its
            });
        }
        let Some(store) = self.backend.store.clone() else {
            return Ok(());
        };
        let agent = agent.clone();
        let removing = mgp_runtime::task::run_blocking("login.forget", move || {
            let kept = store.list(Namespace::Oauth)?;
            let its = kept
                .iter()
                .filter(|it| is_login_of(&it.name, agent.as_str()));
            its.map(|it| store.remove(Namespace::Oauth, &it.name))
                .collect::<Result<Vec<_>, _>>()
        });
        let removed = removing.await;
        let removed = removed.map_err(|e| LoginError::Store(e.to_string()))?;
        removed
            .map(drop)
            .map_err(|e| LoginError::Store(e.to_string()))
    }

    /// The login that a server wants of a person.
    #[must_use]
    pub fn wanted_login(&self, server: &ServerId) -> Option<PendingLogin> {
        self.find(server)?.wanted_login()
    }

    /// The tokens of all logins that are held right now, to be masked.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        let held = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let logins: Vec<_> = held.values().cloned().collect();
        drop(held);
        let records = logins.into_iter().filter_map(|login| login.record());
        records
            .flat_map(|record| record.tokens().collect::<Vec<_>>())
            .collect()
    }

    /// Takes note of what a person did at the command line: reads what is kept again.
    pub async fn reload(&self, server: &ServerId) {
        for login in self.logins_of(server) {
            login.reload().await;
        }
    }

    fn find(&self, server: &ServerId) -> Option<Arc<ServerLogin>> {
        let held = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&(server.clone(), None)).cloned()
    }

    fn logins_of(&self, server: &ServerId) -> Vec<Arc<ServerLogin>> {
        let held = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let its = held.iter().filter(|((id, _), _)| id == server);
        its.map(|(_, login)| login.clone()).collect()
    }
}
