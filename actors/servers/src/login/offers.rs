//! A login that was offered to a person, and waits for a browser.

use std::sync::{Arc, Weak};

use mgp_callers::agent::Agent;
use mgp_engine::clock::MonotonicTime;
use mgp_runtime::task::SupervisedTask;

use super::LoginError;

/// Clients that are told when one is complete; the oldest finds out by calling again.
const CLIENTS_MAX: usize = 16;

/// What was offered for one login.
#[derive(Debug, Default)]
pub(super) struct LoginOffers {
    pub(super) open: Option<OpenOffer>,
    /// Why the last one could not begin, and when that was.
    pub(super) failed: Option<(MonotonicTime, LoginError)>,
}

#[derive(Debug)]
pub(super) struct OpenOffer {
    pub(super) offer: SignInOffer,
    /// Whom to tell once it is done.
    pub(super) clients: Arc<std::sync::Mutex<Vec<Weak<Agent>>>>,
    /// Waits for the browser.
    pub(super) browser_task: SupervisedTask<()>,
}

/// Where a person signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignInOffer {
    /// The address.
    pub(crate) url: String,
    /// Its `elicitationId`.
    pub(crate) id: String,
}

impl OpenOffer {
    /// This client is told, too.
    pub(super) fn add_client(&self, client: Option<&Arc<Agent>>) {
        let Some(client) = client.map(Arc::downgrade) else {
            return;
        };
        let mut told = self
            .clients
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        told.retain(|known| !known.ptr_eq(&client) && known.strong_count() > 0);
        if told.len() == CLIENTS_MAX {
            told.remove(0);
        }
        told.push(client);
    }
}
