//! What an agent asks to be told: resource updates and log levels.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, logging, resources};
use mgp_protocol::refusal::Refusal;

use super::{Relay, nothing, required, text};
use crate::approvals;
use crate::levels;
use crate::link::{Link, Peer};
use crate::request::{Caller, Outcome, Request};

/// How long a level may take to reach the servers before the agent is answered anyway: a hung server
/// delays nobody.
const LEVEL_PATIENCE: Duration = Duration::from_secs(2);

impl Relay {
    /// `resources/subscribe`: one subscription at the server for any number of agents.
    ///
    /// # Errors
    /// Unknown resource, a full table, or the server's own error.
    pub async fn subscribe(&self, request: &Request) -> Outcome {
        let about: resources::About<'_> = mcp::read(Some(required(request)?))?;
        let uri = text(about.uri, "uri")?;
        let (server, own) = self.followed(request, uri).await?;
        if !self.tells_of_resources(&server) {
            return Err(Refusal::UnknownMethod(format!(
                "resources/subscribe (server {server} does not offer it)"
            )));
        }
        let server = self.life(request, server).await?;
        self.subscriptions
            .subscribe(request.caller.connection, server, own)
            .await?;
        Ok(nothing())
    }

    /// Whose resource is followed under a URI, and what it is called there: the kernel has its own.
    pub(super) async fn followed(
        &self,
        request: &Request,
        uri: String,
    ) -> Result<(ServerId, String), Refusal> {
        match Self::is_own(&request.caller, &uri) {
            true => Ok((approvals::own(), uri)),
            false => Box::pin(self.owner(request, &uri)).await,
        }
    }

    /// The name under which a subscription at the server is kept: of the caller's own instance, where it has
    /// one. That is there then.
    pub(super) async fn life(
        &self,
        request: &Request,
        server: ServerId,
    ) -> Result<ServerId, Refusal> {
        let life = self.life_of(&request.caller, server);
        if life.is_instance() {
            self.link(request, &life.server()).await?;
        }
        Ok(life)
    }

    fn life_of(&self, caller: &Caller, server: ServerId) -> ServerId {
        let servers = self.servers.load();
        let handle = servers.get(&server);
        handle.map_or(server, |handle| handle.key_of(caller))
    }

    /// The caller's own instances of servers, connected right now.
    fn own_links(&self, caller: &Caller) -> Vec<Arc<Link>> {
        let mut own = self.links_of(caller);
        let shared = self.links(caller);
        own.retain(|link| shared.iter().all(|other| other.number != link.number));
        own
    }

    /// True when it says so when one of its resources changes.
    pub(super) fn tells_of_resources(&self, server: &ServerId) -> bool {
        let tells = |peer: &Peer| peer.capabilities.resources_subscribe;
        *server == approvals::own() || self.shown.load().peers.get(server).is_some_and(tells)
    }

    /// `resources/unsubscribe`.
    ///
    /// # Errors
    /// Unknown resource.
    pub async fn unsubscribe(&self, request: &Request) -> Outcome {
        let about: resources::About<'_> = mcp::read(Some(required(request)?))?;
        let uri = text(about.uri, "uri")?;
        let (server, own) = match Self::is_own(&request.caller, &uri) {
            true => (approvals::own(), uri),
            // Its server need not be there for that.
            false => self.owner_of(&request.caller, &uri)?,
        };
        let server = self.life_of(&request.caller, server);
        self.subscriptions
            .unsubscribe(request.caller.connection, server, own)
            .await?;
        Ok(nothing())
    }

    /// `logging/setLevel`: the agent's own floor; each server gets the most verbose one anybody
    /// wants of it (MCP-061, MCP-062).
    ///
    /// # Errors
    /// A level outside the eight of RFC 5424.
    pub async fn set_level(&self, request: &Request) -> Outcome {
        let wanted: logging::SetLevel<'_> = mcp::read(request.params.as_deref())?;
        let level: LogLevel = wanted.level.parse().map_err(|_| {
            Refusal::BadParams(format!(
                "`level` must be one of debug, info, notice, warning, error, critical, alert, emergency, not {:?}",
                wanted.level
            ))
        })?;
        if let Some(agent) = request.caller.standing() {
            agent.set_level(level);
        }
        let mut links = self.links(&request.caller);
        links.extend(self.own_links(&request.caller));
        let telling = links.iter().map(|link| levels::tell(&self.directory, link));
        let _ = tokio::time::timeout(LEVEL_PATIENCE, join_all(telling)).await;
        Ok(nothing())
    }

    /// An agent with roots came, went or changed them. Servers that care ask again, unless so many
    /// agents have roots that they are shown none, before and after.
    pub fn roots_changed(&self, caller: &Caller) {
        if !caller.capabilities.roots {
            return;
        }
        for link in self.links(caller) {
            if link.asks_roots() && self.directory.rooted(&link.server, 3, None).len() < 3 {
                link.roots_changed();
            }
        }
        let own = self.own_links(caller).into_iter();
        own.filter(|link| link.asks_roots())
            .for_each(|link| link.roots_changed());
    }
}
