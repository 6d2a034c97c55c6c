//! Stateless clients over HTTP, known only by their requests.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::kernel;

use super::client_activity::ClientActivity;

/// Milliseconds without a request after which a client counts as gone; a model may think for minutes.
const IDLE_MS_MAX: u64 = 5 * 60 * 1000;
/// Clients remembered; the one silent for longest is dropped.
const CLIENTS_MAX: usize = 1024;

/// Recent clients. Two clients of one agent that use the same name count as one.
#[derive(Debug, Default)]
pub struct StatelessClients {
    clients: RwLock<HashMap<u64, StatelessClient>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct StatelessClient {
    agent: AgentId,
    view: CatalogView,
    activity: Arc<ClientActivity>,
}

impl StatelessClients {
    /// The client behind a request: `client` is the JSON text of its `clientInfo`.
    pub fn activity(
        &self,
        agent: &AgentId,
        view: &CatalogView,
        client: Option<&str>,
    ) -> Arc<ClientActivity> {
        let key = self.hasher.hash_one((agent, view, client));
        let seen = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(visitor) = seen.get(&key) {
            return visitor.activity.clone();
        }
        drop(seen);
        let mut seen = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= CLIENTS_MAX && !seen.contains_key(&key) {
            evict_oldest(&mut seen);
        }
        let visitor = seen.entry(key).or_insert_with(|| StatelessClient {
            agent: agent.clone(),
            view: view.clone(),
            activity: Arc::default(),
        });
        visitor.activity.introduce_text(client, Version::STATELESS);
        visitor.activity.clone()
    }

    /// The clients that count as present.
    pub fn list_clients(&self) -> Vec<kernel::Client> {
        let mut seen = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        remove_idle(&mut seen);
        let told = seen.values().map(|visitor| {
            let agent = visitor.agent.to_string();
            visitor.activity.to_client(agent, "http", &visitor.view)
        });
        told.collect()
    }
}

fn remove_idle(seen: &mut HashMap<u64, StatelessClient>) {
    seen.retain(|_, visitor| visitor.activity.idle_ms() < IDLE_MS_MAX);
}

/// Drops half of them at once, so that a flood of names costs little per name.
fn evict_oldest(seen: &mut HashMap<u64, StatelessClient>) {
    remove_idle(seen);
    if seen.len() < CLIENTS_MAX {
        return;
    }
    // Read once, so that the order does not change during the sort.
    let silent = seen.iter().map(|(key, v)| (v.activity.idle_ms(), *key));
    let mut silent: Vec<_> = silent.collect();
    silent.select_nth_unstable(CLIENTS_MAX / 2);
    for (_, key) in &silent[CLIENTS_MAX / 2..] {
        seen.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_apart_and_are_not_remembered_without_end() {
        let (stateless_clients, agent) = (StatelessClients::default(), AgentId::new("agent.a"));
        let of = |name: &str| {
            let client = format!(r#"{{"name":"{name}","version":"1"}}"#);
            stateless_clients.activity(&agent, &CatalogView::All, Some(&client))
        };
        assert!(Arc::ptr_eq(&of("one"), &of("one")));
        assert!(!Arc::ptr_eq(&of("one"), &of("two")));
        for number in 0..3 * CLIENTS_MAX {
            of(&number.to_string());
        }
        let there = stateless_clients.list_clients().len();
        assert!((CLIENTS_MAX / 2..=CLIENTS_MAX).contains(&there), "{there}");
    }
}
