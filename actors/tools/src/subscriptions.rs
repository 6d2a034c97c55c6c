//! Subscriptions to resources: one at the server for any number of agents.
//! The `calls` crate, supervisors and links send to it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use mgp_engine::tools::subscriptions::{SubscriptionEffect, Subscriptions};
use mgp_json::{Splice, member, quote};
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::jsonrpc;
use mgp_protocol::mgp::approvals::PENDING_URI;
use mgp_protocol::refusal::Refusal;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::published_catalog::PublishedCatalog;
use mgp_callers::directory::Directory;
use mgp_callers::in_flight_call::Delivery;
use mgp_policy::approvals::kernel_owner;
use mgp_runtime::mailbox::{Mailbox, Queued, Reply};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_servers::link::Link;
use mgp_servers::server::{ResubscriptionGuard, ServerTable};
use mgp_sync::snapshot::Snapshot;

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct SubscriptionsHandle(Mailbox<SubscriptionsMsg>);

/// Messages to the actor.
#[derive(Debug)]
pub enum SubscriptionsMsg {
    /// An agent subscribes to a resource of a server or of an instance, by the server's own URI.
    Subscribe(ConnectionId, ServerId, String, Reply<Result<(), Refusal>>),
    /// An agent unsubscribes.
    Unsubscribe(ConnectionId, ServerId, String, Reply<()>),
    /// An agent disconnected.
    Leave(ConnectionId),
    /// A resource changed; `params` as the server sent them.
    Updated(ServerId, String, String),
    /// A server is connected again.
    ServerUp(ServerId, ResubscriptionGuard),
    /// A server is no longer connected.
    ServerDown(ServerId),
    /// A server was removed.
    Removed(ServerId),
    /// The rights of agents have changed.
    AccessChanged,
}

impl SubscriptionsHandle {
    /// The handle of a running actor.
    #[must_use]
    pub fn new(mailbox: Mailbox<SubscriptionsMsg>) -> Self {
        Self(mailbox)
    }

    /// Subscribes; answered when the server has accepted it.
    ///
    /// # Errors
    /// The table is full, or the server refused.
    pub async fn subscribe(
        &self,
        who: ConnectionId,
        server: ServerId,
        uri: String,
    ) -> Result<(), Refusal> {
        self.0
            .ask(|reply| SubscriptionsMsg::Subscribe(who, server, uri, reply))
            .await
            .map_err(|e| Refusal::Internal(format!("subscriptions: {e}")))?
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// Only when the actor cannot be reached.
    pub async fn unsubscribe(
        &self,
        who: ConnectionId,
        server: ServerId,
        uri: String,
    ) -> Result<(), Refusal> {
        self.0
            .ask(|reply| SubscriptionsMsg::Unsubscribe(who, server, uri, reply))
            .await
            .map_err(|e| Refusal::Internal(format!("subscriptions: {e}")))
    }

    /// An agent disconnected.
    pub fn remove_connection(&self, who: ConnectionId) {
        // If this message were lost, its subscriptions would stay until the kernel ends.
        let _ = self.0.send_to_self(SubscriptionsMsg::Leave(who));
    }

    /// A resource changed.
    pub(crate) fn publish_update(&self, server: &ServerId, uri: &str, params: &str) {
        let _ = self.0.send(SubscriptionsMsg::Updated(
            server.clone(),
            uri.to_owned(),
            params.to_owned(),
        ));
    }

    /// The operator's list of pending entries has changed.
    pub fn pending_changed(&self) {
        let params = format!(r#"{{"uri":{}}}"#, quote(PENDING_URI));
        self.publish_update(&kernel_owner(), PENDING_URI, &params);
    }

    /// A server is connected again: its subscriptions are renewed.
    pub(crate) fn server_up(&self, server: &ServerId, hold: ResubscriptionGuard) {
        let back = SubscriptionsMsg::ServerUp(server.clone(), hold);
        let _ = self.0.send_to_self(back);
    }

    /// A server is no longer connected.
    pub(crate) fn server_down(&self, server: &ServerId) {
        let _ = self
            .0
            .send_to_self(SubscriptionsMsg::ServerDown(server.clone()));
    }

    /// A server was removed.
    pub(crate) fn server_removed(&self, server: &ServerId) {
        let removed = SubscriptionsMsg::Removed(server.clone());
        let _ = self.0.send_to_self(removed);
    }

    /// The rights of agents have changed. A subscription that is no longer allowed ends, and does not come
    /// back with the right.
    pub fn access_changed(&self) {
        let _ = self.0.send_to_self(SubscriptionsMsg::AccessChanged);
    }
}

/// Fixed at construction.
#[derive(Debug)]
pub struct SubscriptionsActor {
    /// The agents that are notified.
    pub directory: Arc<Directory>,
    /// The servers; set once the tree is complete.
    pub servers: Arc<OnceLock<Arc<ServerTable>>>,
    /// The URI of a resource in each view.
    pub published: Arc<Snapshot<PublishedCatalog>>,
}

/// The state of the actor.
#[derive(Debug, Default)]
pub struct SubscriptionsState {
    engine: Subscriptions,
    /// Requests in flight at servers without a listen, the latest for each resource. The next request for a resource
    /// waits for it, so that the server receives them in order. Bounded by the engine's table.
    requests: HashMap<(ServerId, Arc<str>), SupervisedTask<()>>,
}

impl Actor for SubscriptionsActor {
    type Msg = Queued<SubscriptionsMsg>;
    type State = SubscriptionsState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<SubscriptionsState, ActorProcessingErr> {
        Ok(SubscriptionsState::default())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut SubscriptionsState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            SubscriptionsMsg::Subscribe(who, server, uri, reply) => {
                // It may have been closed since the request.
                if !self.can_receive(who, &server) {
                    reply.send(Err(Refusal::UnknownResource(uri)));
                    return Ok(());
                }
                match state.engine.subscribe(who, &server, &uri) {
                    Ok(effect) => {
                        self.apply_effect(state, effect, SubscriptionWaiter::Agent(reply))
                    }
                    Err(full) => reply.send(Err(Refusal::Overloaded {
                        what: full.to_string(),
                    })),
                }
            }
            SubscriptionsMsg::Unsubscribe(who, server, uri, reply) => {
                let effect = state.engine.unsubscribe(who, &server, &uri);
                self.apply_effect(state, effect, SubscriptionWaiter::Nobody);
                reply.send(());
            }
            SubscriptionsMsg::Leave(who) => {
                for effect in state.engine.remove_connection(who) {
                    self.apply_effect(state, Some(effect), SubscriptionWaiter::Nobody);
                }
            }
            SubscriptionsMsg::Updated(server, uri, params) => {
                let followers = state.engine.followers(&server, &uri);
                self.notify(&server, &uri, &params, followers);
            }
            SubscriptionsMsg::ServerUp(server, hold) => {
                for uri in state.engine.server_up(&server) {
                    self.apply_effect(
                        state,
                        Some(SubscriptionEffect::SubscribeUpstream {
                            server: server.clone(),
                            uri,
                        }),
                        SubscriptionWaiter::Renewal(hold.clone()),
                    );
                }
            }
            SubscriptionsMsg::ServerDown(server) => {
                // An instance without subscribers may never come back.
                let followed = !state.engine.server_up(&server).is_empty();
                if followed || !server.is_instance() {
                    state.engine.server_down(&server);
                }
            }
            SubscriptionsMsg::Removed(server) => state.engine.remove_server(&server),
            SubscriptionsMsg::AccessChanged => {
                let ended = state
                    .engine
                    .retain(|who, server| self.can_receive(who, server));
                for effect in ended {
                    self.apply_effect(state, Some(effect), SubscriptionWaiter::Nobody);
                }
            }
        }
        Ok(())
    }
}

impl SubscriptionsActor {
    /// Whether a connection may be notified of a server's resources right now. A disconnected one never may: its last
    /// request would be stored for nobody.
    fn can_receive(&self, who: ConnectionId, server: &ServerId) -> bool {
        let Some(agent) = self.directory.get(who) else {
            return false;
        };
        let (caller, server) = (agent.caller(), &server.server());
        *server == kernel_owner()
            || caller.is_none_or(|caller| self.directory.keep_following_filter(server)(caller))
    }

    /// Notifies the server; the requesting agent gets its answer.
    fn apply_effect(
        &self,
        state: &mut SubscriptionsState,
        effect: Option<SubscriptionEffect>,
        waiter: SubscriptionWaiter,
    ) {
        let link = effect.as_ref().and_then(|effect| {
            let (SubscriptionEffect::SubscribeUpstream { server, .. }
            | SubscriptionEffect::UnsubscribeUpstream { server, .. }) = effect;
            let servers = self.servers.get()?.load();
            servers.get(&server.server())?.link_by_key(server)
        });
        let (Some(effect), Some(link)) = (effect, link) else {
            // Nothing to send, or the server is unavailable: it is asked when it reconnects.
            return waiter.finish();
        };
        let (SubscriptionEffect::SubscribeUpstream { uri, .. }
        | SubscriptionEffect::UnsubscribeUpstream { uri, .. }) = &effect;
        if !link.set_subscribed(
            uri,
            matches!(effect, SubscriptionEffect::SubscribeUpstream { .. }),
        ) {
            return waiter.finish();
        }
        if link.has_listen() {
            return request_listen(link, effect, waiter);
        }
        state.requests.retain(|_, asked| !asked.is_finished());
        let (SubscriptionEffect::SubscribeUpstream { server, uri }
        | SubscriptionEffect::UnsubscribeUpstream { server, uri }) = effect.clone();
        let before = state.requests.remove(&(server.clone(), uri.clone()));
        let asking = task::spawn_supervised("subscriptions.ask", async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            send_request(&link, effect, waiter).await;
        });
        state.requests.insert((server, uri), asking);
    }

    /// Each agent is notified of the resource under the URI it knows.
    fn notify(
        &self,
        server: &ServerId,
        uri: &str,
        params: &str,
        interested: impl Iterator<Item = ConnectionId>,
    ) {
        let (shown, server) = (self.published.load(), &server.server());
        let open = self.directory.follow_filter(server);
        for agent in interested.filter_map(|who| self.directory.get(who)) {
            let Some(caller) = agent.caller() else {
                continue;
            };
            let frame = match *server == kernel_owner() {
                true => rename_uri(params, uri),
                false if !open(caller) => continue,
                false => rename_uri(
                    params,
                    &shown.catalog.visible_uri(&caller.view, server, uri),
                ),
            };
            agent.send(frame, Delivery::Reliable);
        }
    }
}

/// Waiters for a server's answer.
#[derive(Debug)]
enum SubscriptionWaiter {
    /// The agent that subscribes.
    Agent(Reply<Result<(), Refusal>>),
    /// A replaced instance of the server, which ends when all is subscribed again.
    Renewal(ResubscriptionGuard),
    Nobody,
}

impl SubscriptionWaiter {
    /// There is nothing to wait for.
    fn finish(self) {
        if let Self::Agent(reply) = self {
            reply.send(Ok(()));
        }
    }
}

/// A server with a listen gets the full list with its next listen.
fn request_listen(link: Arc<Link>, effect: SubscriptionEffect, waiter: SubscriptionWaiter) {
    match effect {
        SubscriptionEffect::UnsubscribeUpstream { uri, .. } => {
            link.unfollow(&uri);
            waiter.finish();
        }
        SubscriptionEffect::SubscribeUpstream { uri, .. } => {
            let agreed = link.follow(&uri);
            task::spawn_detached("subscriptions.listen", async move {
                let answer = agreed.await;
                report_result(&link, waiter, "subscriptions/listen", &uri, answer);
            });
        }
    }
}

/// Any other server gets one resource at a time.
async fn send_request(link: &Arc<Link>, effect: SubscriptionEffect, waiter: SubscriptionWaiter) {
    let (method, uri) = match effect {
        SubscriptionEffect::SubscribeUpstream { uri, .. } => ("resources/subscribe", uri),
        SubscriptionEffect::UnsubscribeUpstream { uri, .. } => ("resources/unsubscribe", uri),
    };
    let params = format!(r#"{{"uri":{}}}"#, quote(&uri));
    let answer = link.request(method, Some(&params)).await;
    report_result(link, waiter, method, &uri, answer.map(|_| ()));
}

/// The requesting agent gets the answer, else the server's log.
fn report_result(
    link: &Link,
    waiter: SubscriptionWaiter,
    method: &str,
    uri: &str,
    answer: Result<(), Refusal>,
) {
    let hold = match waiter {
        SubscriptionWaiter::Agent(reply) => return reply.send(answer),
        SubscriptionWaiter::Renewal(hold) => Some(hold),
        SubscriptionWaiter::Nobody => None,
    };
    if let Err(error) = answer {
        link.log.push_note(&format!("{method} {uri}: {error}"));
    }
    // The previous instance may end now.
    drop(hold);
}

fn rename_uri(params: &str, uri: &str) -> Bytes {
    let mut splice = Splice::new(params);
    if let Some(raw) = member(params, "uri") {
        splice.replace(raw, quote(uri));
    }
    jsonrpc::notification("notifications/resources/updated", Some(&splice.finish())).into()
}
