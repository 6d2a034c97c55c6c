//! Servers of other nodes. Each agent's subscriptions there are stored under the name of an instance.

use std::collections::BTreeMap;

use mgp_protocol::ids::ServerId;

use super::upstream::UpstreamServer;
use super::{EventSubscriptions, EventsEffect, SubscriptionNumber};

impl<E> EventSubscriptions<E> {
    /// A server of another node that supports events is connected: subscribes again for each agent.
    pub fn remote_server_up(&mut self, server: &ServerId, connection: u64) -> Vec<EventsEffect> {
        self.server_down(server);
        let upstream = UpstreamServer::new(connection, true);
        self.servers.insert(server.clone(), upstream);
        let mut effects = Vec::new();
        for (key, topics) in self.followers.range(server.clone()..) {
            if key.server() != *server {
                continue;
            }
            if let Some(upstream) = server_entry(&mut self.servers, key) {
                let wanted = topics.keys().cloned();
                effects.extend(wanted.filter_map(|topic| upstream.request(key, topic)));
            }
        }
        effects
    }

    /// Whether a server or instance supports events: it is connected or has followers.
    #[must_use]
    pub fn supports_events(&self, server: &ServerId) -> bool {
        let is_remote = || {
            self.servers
                .get(&server.server())
                .is_some_and(|server| server.is_remote)
        };
        self.servers.contains_key(server) || self.followers.contains_key(server) || is_remote()
    }

    /// Removes the instances of a remote server from a subscription.
    pub fn drop_remote_instances(
        &mut self,
        number: SubscriptionNumber,
        server: &ServerId,
    ) -> Vec<EventsEffect> {
        self.update(number, |subscription| {
            subscription.servers.retain(|key| key.server() != *server)
        })
    }
}

/// The entry of a connected server that supports events; for an instance of a remote server it is created on demand.
pub(super) fn server_entry<'a, E>(
    servers: &'a mut BTreeMap<ServerId, UpstreamServer<E>>,
    server: &ServerId,
) -> Option<&'a mut UpstreamServer<E>> {
    if !servers.contains_key(server) {
        let remote = servers.get(&server.server()).filter(|s| s.is_remote)?;
        let upstream = UpstreamServer::new(remote.connection, true);
        servers.insert(server.clone(), upstream);
    }
    servers.get_mut(server)
}
