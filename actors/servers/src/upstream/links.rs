//! The connections of a server: the shared one and those of instances, and which agent changes are forwarded to
//! them. A disconnected server gets no notification: it gets the state when it connects.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;

use super::Upstream;
use crate::link::{Link, Wire};
use crate::log_levels;
use mgp_callers::Directory;
use mgp_callers::request::{Caller, Request};

/// From this number of agents with roots, a shared server gets none.
const ROOTED_AGENTS_LIMIT: usize = 3;

impl Upstream<'_> {
    /// The server's id.
    #[must_use]
    pub fn id(&self) -> &ServerId {
        &self.id
    }

    /// Starts the server for this request if it is not running.
    ///
    /// # Errors
    /// As [`Self::send`], before anything is sent.
    pub async fn start(&self, request: &Request) -> Result<(), Refusal> {
        self.link(request).await.map(drop)
    }

    /// The total time for a call with its retries, if the server negotiated error recovery (MGP §14.6).
    #[must_use]
    pub fn retry_time_limit(&self) -> Option<Duration> {
        let link = self.shared_link()?;
        // The kernel of another node handles its server's errors itself, and has already retried.
        if matches!(link.wire(), Wire::Node(_)) {
            return None;
        }
        let agreed = link.mgp().has_error_codes();
        agreed.then_some(link.limits.call_timeout_max)
    }

    /// True if requests to it mirror parts of their body in headers; the server may reject a difference before
    /// it does anything.
    #[must_use]
    pub fn has_header_params(&self) -> bool {
        let link = self.shared_link();
        link.is_some_and(|link| matches!(link.wire(), Wire::Http(_)))
    }

    /// Notifies the server that the roots of this caller changed, if it has requested roots.
    pub fn notify_roots_changed(&self, caller: &Caller, directory: &Directory) {
        let should_notify = |link: &Arc<Link>| {
            let most = ROOTED_AGENTS_LIMIT;
            link.has_requested_roots()
                && directory.agents_with_roots(&link.server, most, None).len() < most
        };
        if let Some(link) = self.shared_link().filter(should_notify) {
            link.notify_roots_changed();
        }
        if let Some(link) = self
            .instance_link(caller)
            .filter(|link| link.has_requested_roots())
        {
            link.notify_roots_changed();
        }
    }

    /// Sends a notification of this caller on the connection for its calls, if there is one. Servers of the stateless
    /// version get none.
    pub fn notify(&self, caller: &Caller, method: &str, params: Option<&str>) {
        let link = self.link_for(caller);
        let link = link.filter(|link| link.peer_for(ProtocolFamily::Legacy).is_some());
        if let Some(link) = link {
            link.notify(method, params);
        }
    }

    /// Sets the server's log level to the most verbose one that any agent has chosen.
    pub async fn sync_level(&self, caller: &Caller, directory: &Directory) {
        let links = [self.shared_link(), self.instance_link(caller)];
        let links: Vec<_> = links.into_iter().flatten().collect();
        join_all(
            links
                .iter()
                .map(|link| log_levels::sync_level(directory, link)),
        )
        .await;
    }

    /// The shared connection, if there is one now.
    pub(super) fn shared_link(&self) -> Option<Arc<Link>> {
        self.servers.load().get(&self.id)?.link()
    }

    /// The connection of this caller: that of its own instance, else the shared one.
    pub(super) fn link_for(&self, caller: &Caller) -> Option<Arc<Link>> {
        let handle = self.servers.load().get(&self.id).cloned()?;
        handle.link()?;
        handle.link_for(caller)
    }

    /// The connection of the caller's own instance.
    fn instance_link(&self, caller: &Caller) -> Option<Arc<Link>> {
        let shared = self.shared_link()?;
        let own = self.link_for(caller)?;
        (own.number != shared.number).then_some(own)
    }
}
