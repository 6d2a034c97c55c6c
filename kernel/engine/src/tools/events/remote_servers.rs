//! Servers of other nodes. What an agent follows there has a life of its own, under the name of an instance.

use std::collections::BTreeMap;

use mgp_protocol::ids::ServerId;

use super::upstream::UpstreamServer;
use super::{EventSubscriptions, EventsEffect, SubscriptionNumber};

impl<E> EventSubscriptions<E> {
    /// A server of another node that knows events is connected: each agent that follows something there does so anew.
    pub fn remote_server_up(&mut self, server: &ServerId, life: u64) -> Vec<EventsEffect> {
        self.server_down(server);
        let upstream = UpstreamServer::new(life, true);
        self.servers.insert(server.clone(), upstream);
        let mut effects = Vec::new();
        for (key, here) in self.followers.range(server.clone()..) {
            if key.server() != *server {
                continue;
            }
            if let Some(upstream) = server_entry(&mut self.servers, key) {
                let wanted = here.keys().cloned();
                effects.extend(wanted.filter_map(|topic| upstream.request(key, topic)));
            }
        }
        effects
    }

    /// Whether a server, or what an agent follows of it, knows events: it is connected, or somebody follows it.
    #[must_use]
    pub fn supports_events(&self, server: &ServerId) -> bool {
        let of_node = || {
            self.servers
                .get(&server.server())
                .is_some_and(|own| own.is_remote)
        };
        self.servers.contains_key(server) || self.followers.contains_key(server) || of_node()
    }

    /// Nothing that an agent follows of this server of another node is reached any more.
    pub fn drop_remote_instances(
        &mut self,
        number: SubscriptionNumber,
        server: &ServerId,
    ) -> Vec<EventsEffect> {
        self.update(number, |of| {
            of.servers.retain(|key| key.server() != *server)
        })
    }
}

/// A server that knows events, or what an agent follows of one of another node, from the first time on.
pub(super) fn server_entry<'a, E>(
    servers: &'a mut BTreeMap<ServerId, UpstreamServer<E>>,
    server: &ServerId,
) -> Option<&'a mut UpstreamServer<E>> {
    if !servers.contains_key(server) {
        let whole = servers.get(&server.server()).filter(|own| own.is_remote)?;
        let upstream = UpstreamServer::new(whole.connection, true);
        servers.insert(server.clone(), upstream);
    }
    servers.get_mut(server)
}
