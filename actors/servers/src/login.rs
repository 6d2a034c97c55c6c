//! The logins of a kernel at servers reached over HTTP: what tokens it has, how the next one is got, and what
//! waits for a person.
//!
//! A token goes to the one server it was given for, in one header, and nowhere else: it is kept under the name
//! of the entry and its address, and no log, error or other server sees it.

mod callback;
mod discover;
mod fetch;
mod prover;
mod server_client;
mod server_login;
mod sign_in;
mod unattended;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::servers::login::NoLogin;
use mgp_engine::servers::spec::{Reach, ServerSpec};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::servers::WantedLogin;
use mgp_store::secrets::SecretStore;
use mgp_transports::http::proxy::Outbound;

pub use self::callback::CallbackListener;
pub use self::server_client::ServerClient;
pub use self::server_login::ServerLogin;
pub use self::sign_in::SignIn;

/// Why a login does not come about; never shows a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// What somebody wrote, or answered, is not good for it.
    #[error(transparent)]
    Judged(#[from] NoLogin),
    /// Somebody did not answer.
    #[error("{0}")]
    NoAnswer(String),
    /// Tokens cannot be kept.
    #[error("{0}")]
    Store(String),
}

/// Where logins are kept, and how they are got.
#[derive(Clone, Debug)]
pub struct LoginPlace {
    /// The store of secrets; `None` without a home.
    pub store: Option<SecretStore>,
    /// How those who guard servers are reached.
    pub outbound: Outbound,
}

/// The logins of one kernel, a server at an address each: one for every entry that is in force, so their number
/// is that of the entries.
#[derive(Debug)]
pub struct Logins {
    place: LoginPlace,
    held: Mutex<BTreeMap<ServerId, Arc<ServerLogin>>>,
}

impl Logins {
    /// None yet.
    #[must_use]
    pub fn new(place: LoginPlace) -> Self {
        Self {
            place,
            held: Mutex::default(),
        }
    }

    /// The login of a server, which all lives and instances of it share; `None` where it has none.
    #[must_use]
    pub fn of(&self, spec: &ServerSpec) -> Option<Arc<ServerLogin>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of servers that are gone go, too.
        held.retain(|id, login| {
            *id == spec.id || Arc::strong_count(login) > 1 || login.wanted().is_some()
        });
        let Reach::Http { url, .. } = &spec.reach else {
            held.remove(&spec.id);
            return None;
        };
        if !spec.login.enabled {
            held.remove(&spec.id);
            return None;
        }
        if let Some(login) = held
            .get(&spec.id)
            .filter(|login| login.is_of(url, &spec.login))
        {
            return Some(login.clone());
        }
        let login = ServerLogin::new(&spec.id, url, spec.login.clone(), self.place.clone());
        let login = Arc::new(login.ok()?);
        held.insert(spec.id.clone(), login.clone());
        Some(login)
    }

    /// The login that a server wants of a person.
    #[must_use]
    pub fn wanted(&self, server: &ServerId) -> Option<WantedLogin> {
        self.find(server)?.wanted()
    }

    /// Takes note of what a person did at the command line: reads what is kept again.
    pub async fn look_again(&self, server: &ServerId) {
        if let Some(login) = self.find(server) {
            login.look().await;
        }
    }

    fn find(&self, server: &ServerId) -> Option<Arc<ServerLogin>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(server).cloned()
    }
}
