//! The host side of MCPL: sends requests and notifications to servers, and handles theirs.

mod grants;
mod set_approvals;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use mgp_mcpl_engine::feature_sets::FeatureSets;
use mgp_mcpl_engine::rules::McplRules;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::feature_sets::{Changed, is_valid_name};
use mgp_protocol::mcpl::scope::{Elevate, ElevateResult};
use mgp_protocol::mcpl::{ManifestChanged, McplError};
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::{EventSink, task};
use mgp_servers::ServerEvent;
use mgp_servers::link::{Link, McplAnswer, McplMessage};
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use serde_json::json;
use serde_json::value::RawValue;

use self::set_approvals::SetApprovals;
use crate::audit::{self, McplRecord};
use crate::feature_sets::FeatureSetStore;
use crate::scopes::{ScopeStore, ScopedAction};

/// Events of servers that use MCPL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// It is connected, and its sets are known.
    Connected(ServerId),
    /// One of its connections has ended: the last one, or a replaced one.
    Disconnected(ServerId),
    /// Its sets, or which of them are enabled, changed; it has been notified.
    SetsChanged(ServerId),
}

/// A server's MCPL message, and its connection.
#[derive(Debug)]
pub struct McplServerMessage {
    /// The server.
    pub server: ServerId,
    /// The number of the connection.
    pub(crate) link: u64,
    /// The message. A dropped request is answered with an internal error.
    pub message: McplMessage,
}

/// A part of MCPL that handles messages of servers. Sinks must not block, and are called in the order of a server's
/// messages.
#[derive(Debug)]
pub struct McplHandler {
    /// The handled methods.
    pub methods: &'static [&'static str],
    /// Receives their messages.
    pub messages: EventSink<McplServerMessage>,
    /// Receives events of servers.
    pub events: EventSink<HostEvent>,
}

/// The host of all MCPL servers.
#[derive(Debug)]
pub struct McplHost {
    sets: FeatureSetStore,
    scopes: ScopeStore,
    set_approvals: SetApprovals,
    audit: AuditHandle,
    handlers: OnceLock<Vec<McplHandler>>,
}

impl McplHost {
    /// A host without servers.
    #[must_use]
    pub fn new(sets: FeatureSetStore, scopes: ScopeStore, audit: AuditHandle) -> Arc<Self> {
        Arc::new(Self {
            sets,
            scopes,
            set_approvals: SetApprovals::default(),
            audit,
            handlers: OnceLock::new(),
        })
    }

    /// Sets the handlers; once, before the first server starts.
    pub fn set_handlers(&self, handlers: Vec<McplHandler>) {
        let _ = self.handlers.set(handlers);
    }

    /// Handles MCPL events of servers, and forwards all others.
    pub fn intercept(
        self: &Arc<Self>,
        next_sink: EventSink<ServerEvent>,
    ) -> EventSink<ServerEvent> {
        let host = self.clone();
        EventSink::new(move |event| match event {
            ServerEvent::McplReceived { server, message } => host.handle_message(server, message),
            ServerEvent::McplConnected { server, link } => host.handle_connected(server, &link),
            event @ (ServerEvent::Offered { .. }
            | ServerEvent::Restored(_)
            | ServerEvent::Withdrawn(_)
            | ServerEvent::Connected(..)
            | ServerEvent::Disconnected(_)
            | ServerEvent::Removed(_)
            | ServerEvent::Reported { .. }
            | ServerEvent::StateChanged(_)
            | ServerEvent::ResourceUpdated { .. }) => next_sink.send(event),
        })
    }

    /// The sets of the connected MCPL servers.
    #[must_use]
    pub fn sets(&self) -> &Arc<Snapshot<FeatureSets>> {
        self.sets.published()
    }

    /// The enabled sets, and the settings that decide it.
    #[must_use]
    pub fn set_keeper(&self) -> &FeatureSetStore {
        &self.sets
    }

    /// The approved scopes.
    #[must_use]
    pub fn scopes(&self) -> &ScopeStore {
        &self.scopes
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> &AuditHandle {
        &self.audit
    }

    /// Whether this server is connected with MCPL. Without any such server this only reads a flag.
    #[must_use]
    pub fn is_connected(&self, server: &ServerId) -> bool {
        self.sets.has_connections() && self.sets().load().get(server).is_some()
    }

    /// Sends a request to a server outside of any agent's call. Nothing is sent before the server's `featureSets/update`.
    ///
    /// # Errors
    /// [`Refusal::Disconnected`] without an MCPL connection, [`Refusal::TimedOut`] after `deadline`; the cause of a missing
    /// answer, or the server's own error.
    pub(crate) async fn request(
        &self,
        server: &ServerId,
        method: &'static str,
        params: &str,
        deadline: Duration,
    ) -> Result<Bytes, Refusal> {
        self.authorize(server, method)?;
        let link = self.link(server)?;
        Box::pin(link.request_mcpl(method, params, deadline)).await
    }

    /// As [`Self::request`], with the timeout for calls of this server's tools (`call_timeout_secs`), or `most` if that has no
    /// limit.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub(crate) async fn request_as_call(
        &self,
        server: &ServerId,
        method: &'static str,
        params: &str,
        most: Duration,
    ) -> Result<Bytes, Refusal> {
        self.authorize(server, method)?;
        let link = self.link(server)?;
        let call_timeout = link.limits.call_timeout;
        let deadline = if call_timeout.is_zero() {
            most
        } else {
            call_timeout
        };
        Box::pin(link.request_mcpl(method, params, deadline)).await
    }

    /// Sends a notification to a server.
    ///
    /// # Errors
    /// [`Refusal::Disconnected`] without an MCPL connection.
    pub(crate) fn notify(
        &self,
        server: &ServerId,
        method: &'static str,
        params: &str,
    ) -> Result<(), Refusal> {
        self.authorize(server, method)?;
        self.link(server)?.notify(method, Some(params));
        Ok(())
    }

    /// Whether a message of this method may pass between the kernel and this server now (0.5 §5.4).
    fn authorize(&self, server: &ServerId, method: &str) -> Result<(), McplError> {
        let sets = self.sets().load();
        sets.get(server)
            .map_or(Ok(()), |sets| sets.authorize(method))
    }

    fn link(&self, server: &ServerId) -> Result<Arc<Link>, Refusal> {
        self.sets.link(server).ok_or_else(|| {
            Refusal::UnknownId(format!(
                "server {server} is not spoken to in MCPL, or is not connected"
            ))
        })
    }

    /// Applies a changed configuration.
    pub fn configure(self: &Arc<Self>, rules: McplRules) {
        for server in self.sets.configure(rules) {
            self.dispatch(&HostEvent::SetsChanged(server));
        }
    }

    /// Notifies all event handlers, and requests approval of sets that declare more than was approved.
    pub fn dispatch(self: &Arc<Self>, event: &HostEvent) {
        let (HostEvent::Connected(server)
        | HostEvent::Disconnected(server)
        | HostEvent::SetsChanged(server)) = event;
        self.set_approvals
            .review(self, self.scopes.approvals(), server);
        let host = self.clone();
        task::spawn_detached("mcpl.sets.save", async move { host.sets.save().await });
        for handler in self.handlers.get().into_iter().flatten() {
            handler.events.send(event.clone());
        }
        self.send_grants(server);
    }

    fn handle_connected(self: &Arc<Self>, server: ServerId, link: &Arc<Link>) {
        self.sets.add_connection(&server, link);
        let (host, link, id) = (self.clone(), link.clone(), server.clone());
        task::spawn_detached("mcpl.link", async move {
            link.wait_until_closed().await;
            if host.sets.remove_connection(&id, link.number) {
                host.dispatch(&HostEvent::Disconnected(id));
            }
        });
        self.dispatch(&HostEvent::Connected(server));
    }

    fn handle_message(self: &Arc<Self>, server: ServerId, message: McplMessage) {
        let McplMessage { link, method, .. } = message;
        if !self.sets.has_connection(&server, link) {
            // The handshake is not complete, or the connection has ended.
            if let Some((_, reply)) = message.request {
                reply.send(Err(McplError::internal(
                    "only after `notifications/initialized`",
                )));
            }
            return;
        }
        if let Err(error) = self.authorize(&server, method) {
            self.reject_message(&server, message, error);
            return;
        }
        let server_message = McplServerMessage {
            server,
            link,
            message,
        };
        match method {
            ManifestChanged::METHOD => self.fetch_manifest(&server_message.server, link),
            Changed::METHOD => self.handle_sets_changed(&server_message),
            Elevate::METHOD => self.handle_elevate(server_message),
            _ => {
                let handlers = self.handlers.get().into_iter().flatten();
                let mut matching = handlers.filter(|handler| handler.methods.contains(&method));
                match matching.next() {
                    Some(handler) => handler.messages.send(server_message),
                    None => {
                        if let Some((_, reply)) = server_message.message.request {
                            reply.send(Err(McplError::method_not_found(method)));
                        }
                    }
                }
            }
        }
    }

    /// Rejects a message that the version or the grant of its server does not have. The set that it names decides
    /// nothing.
    fn reject_message(&self, server: &ServerId, message: McplMessage, error: McplError) {
        let record = McplRecord {
            outcome: audit::outcome_of_error(&error),
            reason: Some(&error.message),
            details: json!({"data": error.data}),
            ..McplRecord::from_server(server, message.method)
        };
        audit::record(&self.audit, &record);
        if let Some((_, reply)) = message.request {
            reply.send(Err(error));
        }
    }

    fn handle_sets_changed(self: &Arc<Self>, server_message: &McplServerMessage) {
        let (server, link) = (&server_message.server, server_message.link);
        if self
            .sets
            .change_sets(server, link, &server_message.message.params)
        {
            let record = McplRecord::from_server(server, Changed::METHOD);
            audit::record(&self.audit, &record);
            self.dispatch(&HostEvent::SetsChanged(server.clone()));
        }
    }

    /// `scope/elevate`: answered later, because the operator may be asked.
    fn handle_elevate(self: &Arc<Self>, server_message: McplServerMessage) {
        let Some((_, mut reply)) = server_message.message.request else {
            return;
        };
        let host = self.clone();
        task::spawn_detached("mcpl.elevate", async move {
            let answer = tokio::select! {
                answer = host.elevate(&server_message.server, &server_message.message.params) => answer,
                () = reply.closed() => return,
            };
            reply.send(answer);
        });
    }

    async fn elevate(&self, server: &ServerId, params: &str) -> McplAnswer {
        let elevate: Elevate<'_> =
            mcp::parse_params(Some(params)).map_err(McplError::bad_params)?;
        let set = elevate.feature_set.as_ref();
        let decided = self.decide_elevation(server, &elevate).await;
        let outcome = match &decided {
            Ok(elevated) if elevated.approved => Outcome::Success,
            Ok(_) => Outcome::Denied,
            Err(error) => audit::outcome_of_error(error),
        };
        let reason = decided.as_ref().ok().and_then(|it| it.reason.as_deref());
        let record = McplRecord {
            feature_set: Some(set),
            outcome,
            reason,
            details: json!({"label": elevate.scope.label.chars().take(256).collect::<String>()}),
            ..McplRecord::from_server(server, Elevate::METHOD)
        };
        audit::record(&self.audit, &record);
        let elevated = decided?;
        Ok(serde_json::to_string(&elevated).expect("an answer is always JSON"))
    }

    async fn decide_elevation(
        &self,
        server: &ServerId,
        elevate: &Elevate<'_>,
    ) -> Result<ElevateResult, McplError> {
        let set = elevate.feature_set.as_ref();
        let rules = {
            let sets = self.sets().load();
            let server_sets = sets
                .get(server)
                .ok_or_else(|| McplError::unknown_set(set))?;
            let held = server_sets.sets.get(set).filter(|_| is_valid_name(set));
            let held = held.ok_or_else(|| McplError::unknown_set(set))?;
            if !held.enabled {
                return Err(McplError::not_enabled(set, true));
            }
            if elevate.scope.label.is_empty() {
                return Err(McplError::bad_params("`scope.label` is empty"));
            }
            if !held.set.scoped {
                let words = format!("feature set {set} declares no scopes");
                return Err(McplError::bad_params(words));
            }
            held.scope.clone()
        };
        let payload = elevate.scope.payload.map(RawValue::get);
        let action = ScopedAction {
            server: server.clone(),
            set: set.to_owned(),
            label: elevate.scope.label.clone().into_owned(),
            payload: payload.map(str::to_owned),
            agent: None,
            tool: None,
        };
        let patience = self.sets.rules().scope_patience;
        let decided = self.scopes.decide(&action, &rules, patience).await;
        // The set may have been disabled while the operator decided.
        let current_sets = self.sets().load();
        let current_sets = current_sets.get(server).and_then(|sets| sets.sets.get(set));
        if !current_sets.is_some_and(|held| held.enabled) {
            return Err(McplError::not_enabled(set, current_sets.is_some()));
        }
        Ok(if decided.approved {
            ElevateResult {
                approved: true,
                payload: rules
                    .enrich(&action.label, payload)
                    .and_then(|payload| RawValue::from_string(payload).ok()),
                reason: None,
            }
        } else {
            ElevateResult {
                approved: false,
                payload: None,
                reason: Some(decided.reason),
            }
        })
    }
}
