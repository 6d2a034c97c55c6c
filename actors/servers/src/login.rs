//! OAuth logins of the kernel at HTTP servers: their tokens, renewals, and pending sign-ins.
//!
//! A token is sent to its own server only, in one header. It is stored under the name and address of the
//! server's entry, and never appears in logs, errors or requests to other servers.

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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::servers::login::SignInError;
use mgp_engine::servers::login::record::is_login_of;
use mgp_engine::servers::spec::{ServerSpec, ServerTransport};
use mgp_engine::store::secrets::{agent_secret_name, split_agent_secret};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::servers::PendingLogin;
use mgp_store::secrets::{Namespace, SecretStore, SecretsError};
use mgp_transports::http::proxy::Outbound;
use secrecy::ExposeSecret;

pub use self::callback::CallbackListener;
pub use self::http_client::LoginHttpClient;
pub(crate) use self::server_client::ServerClient;
pub use self::server_login::ServerLogin;
pub use self::sign_in::SignIn;

/// The reason why a login failed; never contains a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// A response or a setting is invalid for the login.
    #[error(transparent)]
    Rejected(#[from] SignInError),
    /// There was no answer.
    #[error("{0}")]
    NoAnswer(String),
    /// Tokens cannot be stored.
    #[error("{0}")]
    Store(String),
}

/// The storage and network access of logins.
#[derive(Clone, Debug)]
pub struct LoginBackend {
    /// The secret store; `None` without a home folder.
    pub store: Option<SecretStore>,
    /// Network access to authorization servers.
    pub outbound: Outbound,
}

/// The logins of one kernel, each for a server at an address: one for each active entry, and one for each agent
/// of an entry with separate logins. Their number is at most entries times agents.
#[derive(Debug)]
pub struct Logins {
    backend: LoginBackend,
    logins: Mutex<BTreeMap<LoginOwner, Arc<ServerLogin>>>,
}

/// The server, and the agent if each has a login of its own.
type LoginOwner = (ServerId, Option<AgentId>);

impl Logins {
    /// Creates an empty set of logins.
    #[must_use]
    pub fn new(backend: LoginBackend) -> Self {
        Self {
            backend,
            logins: Mutex::default(),
        }
    }

    /// The login of a server, shared by all its generations and instances, or that of an agent if the entry has
    /// separate logins. `None` if the server needs no login.
    #[must_use]
    pub fn login_for(
        &self,
        spec: &ServerSpec,
        agent: Option<&AgentId>,
    ) -> Option<Arc<ServerLogin>> {
        let agent = agent.filter(|_| spec.login.per_agent);
        let owner = (spec.id.clone(), agent.cloned());
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        // Also removes logins of removed servers.
        logins.retain(|(id, _), login| {
            *id == spec.id || Arc::strong_count(login) > 1 || login.wanted_login().is_some()
        });
        let url = match &spec.transport {
            ServerTransport::Http { url, .. } if spec.login.enabled => url,
            ServerTransport::Http { .. }
            | ServerTransport::Stdio { .. }
            | ServerTransport::Node(_) => {
                logins.retain(|(id, _), _| *id != spec.id);
                return None;
            }
        };
        if let Some(login) = logins
            .get(&owner)
            .filter(|login| login.matches(url, &spec.login))
        {
            return Some(login.clone());
        }
        let login = ServerLogin::new(&owner, url, spec.login.clone(), self.backend.clone());
        let login = Arc::new(login.ok()?);
        logins.insert(owner, login.clone());
        Some(login)
    }

    /// Logins that need a person: those of the existing servers, and those of agents with separate logins.
    #[must_use]
    pub fn wanted(&self, is_server: impl Fn(&ServerId) -> bool) -> BTreeMap<String, PendingLogin> {
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = logins.iter().filter_map(|((id, agent), login)| {
            let name = match agent {
                Some(agent) => format!("{id} for {agent}"),
                None if is_server(id) => id.to_string(),
                None => return None,
            };
            Some((name, login.wanted_login()?))
        });
        wanted.collect()
    }

    /// The secrets with these names that an agent has for itself; missing ones are left out.
    ///
    /// # Errors
    /// [`LoginError::Store`] if they could not be read.
    pub(crate) async fn agent_secrets(
        &self,
        agent: &AgentId,
        names: BTreeSet<String>,
    ) -> Result<BTreeMap<String, String>, LoginError> {
        let Some(store) = self.backend.store.clone() else {
            return Ok(BTreeMap::new());
        };
        let agent = agent.clone();
        let reading = mgp_runtime::task::run_blocking("secrets.agent", move || {
            let mut found = BTreeMap::new();
            for name in names {
                let stored = store.get(Namespace::Named, &agent_secret_name(&agent, &name))?;
                if let Some(value) = stored {
                    found.insert(name, value.expose_secret().to_owned());
                }
            }
            Ok::<_, SecretsError>(found)
        });
        let read = reading.await;
        let read = read.map_err(|e| LoginError::Store(e.to_string()))?;
        read.map_err(|e| LoginError::Store(e.to_string()))
    }

    /// Removes the tokens and secrets of a removed agent, so that a later agent with the same name does not get them.
    /// Tokens are not revoked.
    ///
    /// # Errors
    /// [`LoginError::Store`] if some could not be removed.
    pub async fn forget_agent(&self, agent: &AgentId) -> Result<(), LoginError> {
        {
            let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
            logins.retain(|(_, whose), login| {
                let of_agent = whose.as_ref() == Some(agent);
                if of_agent {
                    login.end();
                }
                !of_agent
            });
        }
        let Some(store) = self.backend.store.clone() else {
            return Ok(());
        };
        let agent = agent.clone();
        let removing = mgp_runtime::task::run_blocking("login.forget", move || {
            let is_of_agent = |space: Namespace, name: &str| match space {
                Namespace::Oauth => is_login_of(name, agent.as_str()),
                Namespace::Named => {
                    split_agent_secret(name).is_some_and(|(owner, _)| owner == agent.as_str())
                }
            };
            for space in Namespace::ALL {
                for entry in store.list(space)? {
                    if is_of_agent(space, &entry.name) {
                        store.remove(space, &entry.name)?;
                    }
                }
            }
            Ok::<_, SecretsError>(())
        });
        let removed = removing.await;
        let removed = removed.map_err(|e| LoginError::Store(e.to_string()))?;
        removed.map_err(|e| LoginError::Store(e.to_string()))
    }

    /// The login of a server that needs a person.
    #[must_use]
    pub fn wanted_login(&self, server: &ServerId) -> Option<PendingLogin> {
        self.find(server)?.wanted_login()
    }

    /// The tokens of all loaded logins, to be masked.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        let table = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let logins: Vec<_> = table.values().cloned().collect();
        drop(table);
        let records = logins.into_iter().filter_map(|login| login.record());
        records
            .flat_map(|record| record.tokens().collect::<Vec<_>>())
            .collect()
    }

    /// Reads the stored logins of a server again after a change at the command line.
    pub async fn reload(&self, server: &ServerId) {
        for login in self.logins_of(server) {
            login.reload().await;
        }
    }

    fn find(&self, server: &ServerId) -> Option<Arc<ServerLogin>> {
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.get(&(server.clone(), None)).cloned()
    }

    fn logins_of(&self, server: &ServerId) -> Vec<Arc<ServerLogin>> {
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let of_server = logins.iter().filter(|((id, _), _)| id == server);
        of_server.map(|(_, login)| login.clone()).collect()
    }
}
