//! Sign-in offers that wait for a browser.

use std::sync::{Arc, Weak};

use mgp_callers::agent::Agent;
use mgp_engine::clock::MonotonicTime;
use mgp_runtime::task::SupervisedTask;

use super::LoginError;

/// The maximum of clients notified on completion; the oldest notices with its next call.
const CLIENTS_MAX: usize = 16;

/// The offers of one login.
#[derive(Debug, Default)]
pub(super) struct LoginOffers {
    pub(super) open: Option<OpenOffer>,
    /// When and why the last offer could not begin.
    pub(super) failed: Option<(MonotonicTime, LoginError)>,
}

#[derive(Debug)]
pub(super) struct OpenOffer {
    pub(super) offer: SignInOffer,
    /// The clients to notify on completion.
    pub(super) clients: Arc<std::sync::Mutex<Vec<Weak<Agent>>>>,
    /// Waits for the browser.
    pub(super) browser_task: SupervisedTask<()>,
}

/// An address where a person can sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignInOffer {
    /// The address.
    pub url: String,
    /// The `elicitationId` of the offer.
    pub id: String,
}

impl OpenOffer {
    /// Adds a client to notify.
    pub(super) fn add_client(&self, client: Option<&Arc<Agent>>) {
        let Some(client) = client.map(Arc::downgrade) else {
            return;
        };
        let mut clients = self
            .clients
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        clients.retain(|known| !known.ptr_eq(&client) && known.strong_count() > 0);
        if clients.len() == CLIENTS_MAX {
            clients.remove(0);
        }
        clients.push(client);
    }
}
