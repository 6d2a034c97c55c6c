//! The host: asks and tells MCPL servers, and takes what they ask and tell.

mod set_questions;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use mgp_mcpl_engine::feature_sets::FeatureSets;
use mgp_mcpl_engine::rules::McplRules;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::feature_sets::{Changed, is_name};
use mgp_protocol::mcpl::scope::{Elevate, Elevated};
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::task;
use mgp_servers::link::{Link, McplAnswer, McplMessage};
use mgp_servers::server::ServerEvent;
use mgp_store::audit::AuditHandle;
use mgp_sync::snapshot::Snapshot;
use serde_json::json;
use serde_json::value::RawValue;

use self::set_questions::SetQuestions;
use crate::audit::{self, McplRecord};
use crate::feature_sets::SetKeeper;
use crate::scopes::{ScopeKeeper, ScopedAction};

/// What happens to servers that speak MCPL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// It is connected, and knows its sets.
    Met(ServerId),
    /// One of its connections is over: the last one, or one that was replaced.
    Gone(ServerId),
    /// Its sets, or which of them are enabled, changed; it knows.
    SetsChanged(ServerId),
}

/// What a server says of MCPL, and over which connection.
#[derive(Debug)]
pub struct FromMcplServer {
    /// The server.
    pub server: ServerId,
    /// The number of the connection.
    pub link: u64,
    /// As sent. A request that is dropped is answered with an internal error.
    pub message: McplMessage,
}

/// A part of MCPL that takes what servers say of it. Sinks must not block, and are called in the order in which
/// a server speaks.
#[derive(Debug)]
pub struct McplNoun {
    /// The methods it takes.
    pub methods: &'static [&'static str],
    /// Takes them.
    pub takes: EventSink<FromMcplServer>,
    /// Hears of servers that come, go and change.
    pub hears: EventSink<HostEvent>,
}

/// The host of all MCPL servers.
#[derive(Debug)]
pub struct McplHost {
    sets: SetKeeper,
    scopes: ScopeKeeper,
    questions: SetQuestions,
    audit: AuditHandle,
    nouns: OnceLock<Vec<McplNoun>>,
}

impl McplHost {
    /// A host without servers.
    #[must_use]
    pub fn new(sets: SetKeeper, scopes: ScopeKeeper, audit: AuditHandle) -> Arc<Self> {
        Arc::new(Self {
            sets,
            scopes,
            questions: SetQuestions::default(),
            audit,
            nouns: OnceLock::new(),
        })
    }

    /// Names who takes what; once, before the first server starts.
    pub fn attend(&self, nouns: Vec<McplNoun>) {
        let _ = self.nouns.set(nouns);
    }

    /// Takes what of the events of servers is of MCPL, and passes on all others.
    pub fn taken_by(self: &Arc<Self>, below: EventSink<ServerEvent>) -> EventSink<ServerEvent> {
        let host = self.clone();
        EventSink::new(move |event| match event {
            ServerEvent::Mcpl { server, message } => host.said(server, message),
            ServerEvent::McplMet { server, link } => host.met(server, &link),
            event @ (ServerEvent::Offered { .. }
            | ServerEvent::Restored(_)
            | ServerEvent::Withdrawn(_)
            | ServerEvent::Connected(..)
            | ServerEvent::Disconnected(_)
            | ServerEvent::Removed(_)
            | ServerEvent::Told { .. }
            | ServerEvent::Stepped(_)
            | ServerEvent::Updated { .. }) => below.send(event),
        })
    }

    /// The sets of the servers that speak MCPL now.
    #[must_use]
    pub fn sets(&self) -> &Arc<Snapshot<FeatureSets>> {
        self.sets.published()
    }

    /// Which sets are enabled, and what decides it.
    #[must_use]
    pub fn set_keeper(&self) -> &SetKeeper {
        &self.sets
    }

    /// What was approved of scopes.
    #[must_use]
    pub fn scopes(&self) -> &ScopeKeeper {
        &self.scopes
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> &AuditHandle {
        &self.audit
    }

    /// Whether this server is spoken to in MCPL now. While none is, this costs one look at a flag.
    #[must_use]
    pub fn speaks(&self, server: &ServerId) -> bool {
        self.sets.any() && self.sets().load().of(server).is_some()
    }

    /// Asks a server outside of any agent's call. Nothing goes to it before its `featureSets/update` did.
    ///
    /// # Errors
    /// [`Refusal::Gone`] for one that is not spoken to in MCPL, [`Refusal::TimedOut`] after `deadline`; whatever
    /// kept the answer from coming, or the server's own error.
    pub async fn asks(
        &self,
        server: &ServerId,
        method: &'static str,
        params: &str,
        deadline: Duration,
    ) -> Result<Bytes, Refusal> {
        let link = self.link(server)?;
        Box::pin(link.ask_in_mcpl(method, params, deadline)).await
    }

    /// The same, with the time that a call of a tool of this server has (`call_timeout_secs`), or `most` where it has
    /// no limit.
    ///
    /// # Errors
    /// As [`Self::asks`].
    pub async fn ask_as_call(
        &self,
        server: &ServerId,
        method: &'static str,
        params: &str,
        most: Duration,
    ) -> Result<Bytes, Refusal> {
        let link = self.link(server)?;
        let own = link.limits.call_timeout;
        let deadline = if own.is_zero() { most } else { own };
        Box::pin(link.ask_in_mcpl(method, params, deadline)).await
    }

    /// Tells a server something.
    ///
    /// # Errors
    /// [`Refusal::Gone`] for one that is not spoken to in MCPL.
    pub fn tells(
        &self,
        server: &ServerId,
        method: &'static str,
        params: &str,
    ) -> Result<(), Refusal> {
        self.link(server)?.notify(method, Some(params));
        Ok(())
    }

    fn link(&self, server: &ServerId) -> Result<Arc<Link>, Refusal> {
        self.sets.link(server).ok_or_else(|| {
            Refusal::Gone(format!(
                "server {server} is not spoken to in MCPL, or is not connected"
            ))
        })
    }

    /// The configuration says something else.
    pub fn configure(self: &Arc<Self>, rules: McplRules) {
        for server in self.sets.configure(rules) {
            self.happened(&HostEvent::SetsChanged(server));
        }
    }

    /// Tells all nouns, and asks about sets that declare more than was approved.
    pub fn happened(self: &Arc<Self>, event: &HostEvent) {
        let (HostEvent::Met(server) | HostEvent::Gone(server) | HostEvent::SetsChanged(server)) =
            event;
        self.questions.review(self, self.scopes.approvals(), server);
        let host = self.clone();
        task::detached("mcpl.sets.save", async move { host.sets.save().await });
        for noun in self.nouns.get().into_iter().flatten() {
            noun.hears.send(event.clone());
        }
    }

    fn met(self: &Arc<Self>, server: ServerId, link: &Arc<Link>) {
        self.sets.met(&server, link);
        let (host, link, id) = (self.clone(), link.clone(), server.clone());
        task::detached("mcpl.link", async move {
            link.over().await;
            if host.sets.gone(&id, link.number) {
                host.happened(&HostEvent::Gone(id));
            }
        });
        self.happened(&HostEvent::Met(server));
    }

    fn said(self: &Arc<Self>, server: ServerId, message: McplMessage) {
        let McplMessage { link, method, .. } = message;
        if !self.sets.knows(&server, link) {
            // Its handshake is not done, or the connection is over.
            if let Some((_, reply)) = message.asked {
                reply.send(Err(McplError::internal(
                    "only after `notifications/initialized`",
                )));
            }
            return;
        }
        let said = FromMcplServer {
            server,
            link,
            message,
        };
        match method {
            Changed::METHOD => self.sets_changed(&said),
            Elevate::METHOD => self.elevates(said),
            _ => {
                let nouns = self.nouns.get().into_iter().flatten();
                let mut takers = nouns.filter(|noun| noun.methods.contains(&method));
                match takers.next() {
                    Some(noun) => noun.takes.send(said),
                    None => {
                        if let Some((_, reply)) = said.message.asked {
                            reply.send(Err(McplError::method_not_found(method)));
                        }
                    }
                }
            }
        }
    }

    fn sets_changed(self: &Arc<Self>, said: &FromMcplServer) {
        let (server, link) = (&said.server, said.link);
        if self.sets.changed(server, link, &said.message.params) {
            let record = McplRecord::of_server(server, Changed::METHOD);
            audit::record(&self.audit, &record);
            self.happened(&HostEvent::SetsChanged(server.clone()));
        }
    }

    /// `scope/elevate`: a person may be asked, so it is answered later.
    fn elevates(self: &Arc<Self>, said: FromMcplServer) {
        let Some((_, mut reply)) = said.message.asked else {
            return;
        };
        let host = self.clone();
        task::detached("mcpl.elevate", async move {
            let answer = tokio::select! {
                answer = host.elevated(&said.server, &said.message.params) => answer,
                () = reply.closed() => return,
            };
            reply.send(answer);
        });
    }

    async fn elevated(&self, server: &ServerId, params: &str) -> McplAnswer {
        let asked: Elevate<'_> = mcp::read(Some(params)).map_err(McplError::bad_params)?;
        let set = asked.feature_set.as_ref();
        let decided = self.judged(server, &asked).await;
        let outcome = match &decided {
            Ok(elevated) if elevated.approved => Outcome::Success,
            Ok(_) => Outcome::Denied,
            Err(error) => audit::of_error(error),
        };
        let reason = decided.as_ref().ok().and_then(|it| it.reason.as_deref());
        let record = McplRecord {
            feature_set: Some(set),
            outcome,
            reason,
            more: json!({"label": asked.scope.label.chars().take(256).collect::<String>()}),
            ..McplRecord::of_server(server, Elevate::METHOD)
        };
        audit::record(&self.audit, &record);
        let elevated = decided?;
        Ok(serde_json::to_string(&elevated).expect("an answer is always JSON"))
    }

    async fn judged(&self, server: &ServerId, asked: &Elevate<'_>) -> Result<Elevated, McplError> {
        let set = asked.feature_set.as_ref();
        let rules = {
            let sets = self.sets().load();
            let of_server = sets.of(server).ok_or_else(|| McplError::unknown_set(set))?;
            let held = of_server.sets.get(set).filter(|_| is_name(set));
            let held = held.ok_or_else(|| McplError::unknown_set(set))?;
            if !held.enabled {
                return Err(McplError::not_enabled(set, true));
            }
            if asked.scope.label.is_empty() {
                return Err(McplError::bad_params("`scope.label` is empty"));
            }
            if !held.set.scoped {
                let words = format!("feature set {set} declares no scopes");
                return Err(McplError::bad_params(words));
            }
            held.scope.clone()
        };
        let payload = asked.scope.payload.map(RawValue::get);
        let action = ScopedAction {
            server: server.clone(),
            set: set.to_owned(),
            label: asked.scope.label.clone().into_owned(),
            payload: payload.map(str::to_owned),
            agent: None,
            tool: None,
        };
        let patience = self.sets.rules().scope_patience;
        let decided = self.scopes.decide(&action, &rules, patience).await;
        // Switched off while a person thought about it.
        let still = self.sets().load();
        let still = still.of(server).and_then(|sets| sets.sets.get(set));
        if !still.is_some_and(|held| held.enabled) {
            return Err(McplError::not_enabled(set, still.is_some()));
        }
        Ok(match decided.approved {
            true => Elevated {
                approved: true,
                payload: rules
                    .enriched(&action.label, payload)
                    .and_then(|payload| RawValue::from_string(payload).ok()),
                reason: None,
            },
            false => Elevated {
                approved: false,
                payload: None,
                reason: Some(decided.why),
            },
        })
    }
}
