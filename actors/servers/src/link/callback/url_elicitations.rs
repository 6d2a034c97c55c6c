//! URL elicitations in progress, and the client to notify when one completes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mgp_json::lookalike;
use serde::Deserialize;

use mgp_callers::agent::Agent;

/// The maximum of remembered URL elicitations of one server. The oldest are dropped; their clients notice on
/// their next attempt.
const MAX_ELICITED: usize = 256;

/// The client of each `elicitationId`.
#[derive(Debug, Default)]
pub(in crate::link) struct UrlElicitations(Mutex<VecDeque<(String, Weak<Agent>)>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Elicitation {
    elicitation_id: String,
}

/// Error -32042 of 2025-11-25: the call needs these elicitations first.
#[derive(Deserialize)]
struct UrlElicitationRequired {
    code: i64,
    data: UrlElicitationDetails,
}

#[derive(Deserialize)]
struct UrlElicitationDetails {
    elicitations: Vec<Elicitation>,
}

const URL_ELICITATION_REQUIRED: i64 = -32042;

impl UrlElicitations {
    /// Remembers an elicitation sent to a client, if it is a URL elicitation.
    pub(in crate::link) fn record_request(&self, params: Option<&str>, agent: &Arc<Agent>) {
        if let Some(Ok(one)) = params.map(lookalike::from_object::<Elicitation>) {
            self.remember(one, agent);
        }
    }

    /// Remembers the elicitations in an error that a client's call got.
    pub(in crate::link) fn record_error(&self, error: &str, agent: &Arc<Agent>) {
        let Ok(required) = lookalike::from_object::<UrlElicitationRequired>(error) else {
            return;
        };
        if required.code == URL_ELICITATION_REQUIRED {
            for one in required.data.elicitations.into_iter().take(MAX_ELICITED) {
                self.remember(one, agent);
            }
        }
    }

    /// Removes a completed elicitation and returns the client to notify.
    pub(in crate::link) fn take_client(&self, id: &str) -> Option<Arc<Agent>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|(known, _)| known == id)?;
        known.remove(at)?.1.upgrade()
    }

    fn remember(&self, one: Elicitation, agent: &Arc<Agent>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == MAX_ELICITED {
            known.pop_front();
        }
        known.push_back((one.elicitation_id, Arc::downgrade(agent)));
    }
}
