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
use mgp_callers::{Delivery, Directory};
use mgp_policy::kernel_owner;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{Mailbox, Queued, Reply, task};
use mgp_servers::link::Link;
use mgp_servers::{ResubscriptionGuard, ServerTable};
use mgp_sync::Snapshot;

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct SubscriptionsHandle(Mailbox<SubscriptionsMsg>);

/// Messages to the actor.
#[derive(Debug)]
pub enum SubscriptionsMsg {
    /// An agent subscribes to a resource of a server or an instance, by the server's own URI.
    Subscribe(ConnectionId, ServerId, String, Reply<Result<(), Refusal>>),
    /// An agent unsubscribes.
    Unsubscribe(ConnectionId, ServerId, String, Reply<()>),
    /// An agent disconnected.
    Leave(ConnectionId),
    /// A resource changed; the last field is the server's own `params`.
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

    /// Subscribes; resolves when the server has accepted it.
    ///
    /// # Errors
    /// The table is full, or the server rejected it.
    pub async fn subscribe(
        &self,
        connection: ConnectionId,
        server: ServerId,
        uri: String,
    ) -> Result<(), Refusal> {
        self.0
            .ask(|reply| SubscriptionsMsg::Subscribe(connection, server, uri, reply))
            .await
            .map_err(|e| Refusal::Internal(format!("subscriptions: {e}")))?
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// The actor cannot be reached.
    pub async fn unsubscribe(
        &self,
        connection: ConnectionId,
        server: ServerId,
        uri: String,
    ) -> Result<(), Refusal> {
        self.0
            .ask(|reply| SubscriptionsMsg::Unsubscribe(connection, server, uri, reply))
            .await
            .map_err(|e| Refusal::Internal(format!("subscriptions: {e}")))
    }

    /// Removes the subscriptions of a disconnected agent.
    pub fn remove_connection(&self, connection: ConnectionId) {
        // If this message were lost, its subscriptions would stay until the kernel ends.
        let _ = self.0.send_to_self(SubscriptionsMsg::Leave(connection));
    }

    /// Notifies the subscribers of a resource.
    pub(crate) fn publish_update(&self, server: &ServerId, uri: &str, params: &str) {
        let _ = self.0.send(SubscriptionsMsg::Updated(
            server.clone(),
            uri.to_owned(),
            params.to_owned(),
        ));
    }

    /// Notifies the subscribers of the operator's pending entries.
    pub fn pending_changed(&self) {
        let params = format!(r#"{{"uri":{}}}"#, quote(PENDING_URI));
        self.publish_update(&kernel_owner(), PENDING_URI, &params);
    }

    /// Renews the subscriptions of a server that is connected again.
    pub(crate) fn server_up(&self, server: &ServerId, guard: ResubscriptionGuard) {
        let message = SubscriptionsMsg::ServerUp(server.clone(), guard);
        let _ = self.0.send_to_self(message);
    }

    /// A server is no longer connected.
    pub(crate) fn server_down(&self, server: &ServerId) {
        let _ = self
            .0
            .send_to_self(SubscriptionsMsg::ServerDown(server.clone()));
    }

    /// Removes the subscriptions to a server that was removed.
    pub(crate) fn server_removed(&self, server: &ServerId) {
        let message = SubscriptionsMsg::Removed(server.clone());
        let _ = self.0.send_to_self(message);
    }

    /// Checks all subscriptions again after a change of rights. A subscription that is no longer allowed ends, and does
    /// not return with the right.
    pub fn access_changed(&self) {
        let _ = self.0.send_to_self(SubscriptionsMsg::AccessChanged);
    }
}

/// The actor; its fields are fixed at construction.
#[derive(Debug)]
pub struct SubscriptionsActor {
    /// The agents to notify.
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
            SubscriptionsMsg::Subscribe(connection, server, uri, reply) => {
                // The connection may have closed since the request.
                if !self.can_receive(connection, &server) {
                    reply.send(Err(Refusal::UnknownResource(uri)));
                    return Ok(());
                }
                match state.engine.subscribe(connection, &server, &uri) {
                    Ok(effect) => {
                        self.wake(&server);
                        self.apply_effect(state, effect, SubscriptionWaiter::Agent(reply))
                    }
                    Err(full) => reply.send(Err(Refusal::Overloaded {
                        what: full.to_string(),
                    })),
                }
            }
            SubscriptionsMsg::Unsubscribe(connection, server, uri, reply) => {
                let effect = state.engine.unsubscribe(connection, &server, &uri);
                self.apply_effect(state, effect, SubscriptionWaiter::Nobody);
                reply.send(());
            }
            SubscriptionsMsg::Leave(connection) => {
                for effect in state.engine.remove_connection(connection) {
                    self.apply_effect(state, Some(effect), SubscriptionWaiter::Nobody);
                }
            }
            SubscriptionsMsg::Updated(server, uri, params) => {
                let followers = state.engine.followers(&server, &uri);
                self.notify(&server, &uri, &params, followers);
            }
            SubscriptionsMsg::ServerUp(server, guard) => {
                for uri in state.engine.server_up(&server) {
                    self.apply_effect(
                        state,
                        Some(SubscriptionEffect::SubscribeUpstream {
                            server: server.clone(),
                            uri,
                        }),
                        SubscriptionWaiter::Renewal(guard.clone()),
                    );
                }
            }
            SubscriptionsMsg::ServerDown(server) => {
                // An instance without subscribers may never return.
                let has_followers = !state.engine.server_up(&server).is_empty();
                if has_followers || !server.is_instance() {
                    state.engine.server_down(&server);
                }
            }
            SubscriptionsMsg::Removed(server) => state.engine.remove_server(&server),
            SubscriptionsMsg::AccessChanged => {
                let ended = state
                    .engine
                    .retain(|connection, server| self.can_receive(connection, server));
                for effect in ended {
                    self.apply_effect(state, Some(effect), SubscriptionWaiter::Nobody);
                }
            }
        }
        Ok(())
    }
}

impl SubscriptionsActor {
    /// Whether a connection may be notified of a server's resources now. A disconnected one may not: its last request
    /// would be stored for nobody.
    fn can_receive(&self, connection: ConnectionId, server: &ServerId) -> bool {
        let Some(agent) = self.directory.get(connection) else {
            return false;
        };
        let (caller, server) = (agent.caller(), &server.server());
        *server == kernel_owner()
            || caller.is_none_or(|caller| self.directory.keep_following_filter(server)(caller))
    }

    /// Starts a server that a call starts: it is subscribed when it is connected.
    fn wake(&self, server: &ServerId) {
        let servers = self.servers.get().map(|servers| servers.load());
        if let Some(handle) = servers.and_then(|servers| servers.get(server).cloned()) {
            handle.wake();
        }
    }

    /// Sends the effect to the server; the requesting agent gets its answer.
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
            // Nothing to send, or the server is unavailable; it is sent when the server reconnects.
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
        state.requests.retain(|_, request| !request.is_finished());
        let (SubscriptionEffect::SubscribeUpstream { server, uri }
        | SubscriptionEffect::UnsubscribeUpstream { server, uri }) = effect.clone();
        let before = state.requests.remove(&(server.clone(), uri.clone()));
        let request = task::spawn_supervised("subscriptions.ask", async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            send_request(&link, effect, waiter).await;
        });
        state.requests.insert((server, uri), request);
    }

    /// Notifies each agent of the resource under the URI that its view shows.
    fn notify(
        &self,
        server: &ServerId,
        uri: &str,
        params: &str,
        followers: impl Iterator<Item = ConnectionId>,
    ) {
        let (published, server) = (self.published.load(), &server.server());
        let may_follow = self.directory.follow_filter(server);
        for agent in followers.filter_map(|connection| self.directory.get(connection)) {
            let Some(caller) = agent.caller() else {
                continue;
            };
            let frame = match *server == kernel_owner() {
                true => rename_uri(params, uri),
                false if !may_follow(caller) => continue,
                false => rename_uri(
                    params,
                    &published.catalog.visible_uri(&caller.view, server, uri),
                ),
            };
            agent.send(frame, Delivery::Reliable);
        }
    }
}

/// Who waits for a server's answer.
#[derive(Debug)]
enum SubscriptionWaiter {
    /// The agent that subscribes.
    Agent(Reply<Result<(), Refusal>>),
    /// A replaced instance of the server, which ends once all subscriptions are renewed.
    Renewal(ResubscriptionGuard),
    Nobody,
}

impl SubscriptionWaiter {
    /// Answers at once: no request is sent.
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
            let accepted = link.follow(&uri);
            task::spawn_detached("subscriptions.listen", async move {
                let answer = accepted.await;
                report_result(&link, waiter, "subscriptions/listen", &uri, answer);
            });
        }
    }
}

/// A server without a listen gets one request for each resource.
async fn send_request(link: &Arc<Link>, effect: SubscriptionEffect, waiter: SubscriptionWaiter) {
    let (method, uri) = match effect {
        SubscriptionEffect::SubscribeUpstream { uri, .. } => ("resources/subscribe", uri),
        SubscriptionEffect::UnsubscribeUpstream { uri, .. } => ("resources/unsubscribe", uri),
    };
    let params = format!(r#"{{"uri":{}}}"#, quote(&uri));
    let answer = link.request(method, Some(&params)).await;
    report_result(link, waiter, method, &uri, answer.map(|_| ()));
}

/// The requesting agent gets the answer; otherwise errors go to the server's log.
fn report_result(
    link: &Link,
    waiter: SubscriptionWaiter,
    method: &str,
    uri: &str,
    answer: Result<(), Refusal>,
) {
    let guard = match waiter {
        SubscriptionWaiter::Agent(reply) => return reply.send(answer),
        SubscriptionWaiter::Renewal(guard) => Some(guard),
        SubscriptionWaiter::Nobody => None,
    };
    if let Err(error) = answer {
        link.log.push_note(&format!("{method} {uri}: {error}"));
    }
    // The previous instance may end now.
    drop(guard);
}

fn rename_uri(params: &str, uri: &str) -> Bytes {
    let mut splice = Splice::new(params);
    if let Some(raw) = member(params, "uri") {
        splice.replace(raw, quote(uri));
    }
    jsonrpc::notification("notifications/resources/updated", Some(&splice.finish())).into()
}
