//! Stateless clients over HTTP, identified by their requests only.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::kernel;

use super::client_activity::ClientActivity;

/// Milliseconds without a request after which a client counts as disconnected; a model may think for
/// minutes.
const IDLE_MS_MAX: u64 = 5 * 60 * 1000;
/// The most stored clients; the longest idle are evicted.
const CLIENTS_MAX: usize = 1024;

/// Recent stateless clients. Two clients of one agent that use the same name count as one.
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
    /// The activity of the client that sent a request: `client` is the JSON text of its `clientInfo`.
    pub fn activity(
        &self,
        agent: &AgentId,
        view: &CatalogView,
        client: Option<&str>,
    ) -> Arc<ClientActivity> {
        let key = self.hasher.hash_one((agent, view, client));
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = clients.get(&key) {
            return entry.activity.clone();
        }
        drop(clients);
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&key) {
            evict_oldest(&mut clients);
        }
        let entry = clients.entry(key).or_insert_with(|| StatelessClient {
            agent: agent.clone(),
            view: view.clone(),
            activity: Arc::default(),
        });
        entry.activity.introduce_text(client, Version::STATELESS);
        entry.activity.clone()
    }

    /// The clients that count as connected.
    pub fn list_clients(&self) -> Vec<kernel::Client> {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        remove_idle(&mut clients);
        let listed = clients.values().map(|entry| {
            let agent = entry.agent.to_string();
            entry.activity.to_client(agent, "http", &entry.view)
        });
        listed.collect()
    }
}

fn remove_idle(clients: &mut HashMap<u64, StatelessClient>) {
    clients.retain(|_, entry| entry.activity.idle_ms() < IDLE_MS_MAX);
}

/// Evicts half of the clients at once, so that a flood of names costs little per name.
fn evict_oldest(clients: &mut HashMap<u64, StatelessClient>) {
    remove_idle(clients);
    if clients.len() < CLIENTS_MAX {
        return;
    }
    // Read once, so that the order does not change during the sort.
    let idle = clients.iter().map(|(key, v)| (v.activity.idle_ms(), *key));
    let mut idle: Vec<_> = idle.collect();
    idle.select_nth_unstable(CLIENTS_MAX / 2);
    for (_, key) in &idle[CLIENTS_MAX / 2..] {
        clients.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_distinct_by_name_and_bounded() {
        let (stateless_clients, agent) = (StatelessClients::default(), AgentId::new("agent.a"));
        let activity_of = |name: &str| {
            let client = format!(r#"{{"name":"{name}","version":"1"}}"#);
            stateless_clients.activity(&agent, &CatalogView::All, Some(&client))
        };
        assert!(Arc::ptr_eq(&activity_of("one"), &activity_of("one")));
        assert!(!Arc::ptr_eq(&activity_of("one"), &activity_of("two")));
        for number in 0..3 * CLIENTS_MAX {
            activity_of(&number.to_string());
        }
        let count = stateless_clients.list_clients().len();
        assert!((CLIENTS_MAX / 2..=CLIENTS_MAX).contains(&count), "{count}");
    }
}
