//! What this node shares with others, persisted and published. The operator changes it; the index of this
//! node and the rules for agents of other nodes follow it.
//!
//! A change is in the audit log and on disk before it is published, and published before it is
//! acknowledged.

mod shares_file;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use mgp_engine::cluster::shares::{
    Share, ShareAudience, ShareChange, ShareRequest, ShareRequestError, Shares,
};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_protocol::mgp::audit::{Actor as AuditActor, EventType, Outcome, Target, TraceId};
use mgp_runtime::{AskError, EventSink, Mailbox, Queued, Reply, randomness, task};
use mgp_store::Witness;
use mgp_store::audit::{AuditHandle, AuditWriteError, new_event};
use mgp_sync::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use serde_json::json;

/// What the actor needs.
#[derive(Clone, Debug)]
pub struct SharesStart {
    /// The file; created with the first share.
    pub file: PathBuf,
    /// Its witness.
    pub witness: Witness,
    /// Receives the rules after each change.
    pub changed: EventSink<Arc<Shares>>,
    /// The audit log.
    pub audit: AuditHandle,
}

/// Handle of the actor.
#[derive(Clone, Debug)]
pub struct SharesHandle {
    mailbox: Mailbox<SharesMsg>,
    published: Arc<Snapshot<Shares>>,
}

/// A requested share.
#[derive(Clone, Debug)]
pub struct ShareSpec {
    /// A server of this node.
    pub server: ServerId,
    /// The audience.
    pub to: ShareAudience,
    /// The pattern as typed; `None` for all tools.
    pub tools: Option<String>,
    /// The server's own names for its tools; `None` when it has listed none yet.
    pub listed: Option<BTreeSet<Arc<str>>>,
    /// The rule may match tools that do not exist yet.
    pub allow_missing: bool,
}

/// Errors of a change of the shares.
#[derive(Debug, thiserror::Error)]
pub enum ShareChangeError {
    /// The requested change is not possible.
    #[error(transparent)]
    Refused(#[from] ShareRequestError),
    /// The audit log rejected the event.
    #[error(transparent)]
    NotRecorded(#[from] AuditWriteError),
    /// The disk failed.
    #[error("the share could not be stored on disk ({0}), so it was not added")]
    Save(String),
    /// The actor is not reachable.
    #[error("what is shared cannot be changed: {0}")]
    Unreachable(#[from] AskError),
}

/// Computes the changes to the current rules.
type Change = Box<dyn FnOnce(&Shares) -> Result<Vec<ShareChange>, ShareRequestError> + Send>;

impl SharesHandle {
    /// Loads the rules and starts the actor.
    ///
    /// # Errors
    /// The actor cannot be started; the file cannot be read, as a text for the person who starts the kernel.
    pub async fn start(start: SharesStart) -> Result<(Self, ActorCell), SpawnErr> {
        let file = start.file.clone();
        let reading = task::run_blocking("shares.read", move || shares_file::read(&file));
        let failed = |error| SpawnErr::StartupFailed(error);
        let shares = reading.await.map_err(|error| failed(error.into()))?;
        let shares = shares.map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Snapshot::new(shares));
        let actor = SharesActor {
            published: Arc::clone(&shared),
            start,
        };
        let (actor, _) = Actor::spawn(None, actor, ()).await?;
        let cell = actor.get_cell();
        let mailbox = Mailbox::new(actor);
        Ok((
            Self {
                mailbox,
                published: shared,
            },
            cell,
        ))
    }

    /// The current rules.
    #[must_use]
    pub fn current(&self) -> Arc<Shares> {
        self.published.load()
    }

    /// Adds a share. Returns the rule; `None` when it exists already.
    ///
    /// # Errors
    /// [`ShareChangeError`]; then nothing has changed.
    pub async fn add(
        &self,
        spec: ShareSpec,
        by: AuditActor,
    ) -> Result<Option<Share>, ShareChangeError> {
        let share = move |shares: &Shares| {
            let request = ShareRequest {
                server: spec.server,
                to: spec.to,
                tools: spec.tools.as_deref(),
                listed_tools: spec.listed.as_ref(),
                allow_unmatched: spec.allow_missing,
            };
            Ok(shares.share(&request)?.into_iter().collect())
        };
        let changes = self.change(share, by).await?;
        Ok(changes.into_iter().find_map(|change| match change {
            ShareChange::Share(share) => Some(share),
            ShareChange::Unshare(_) | ShareChange::Forget(_) | ShareChange::Vacate(_) => None,
        }))
    }

    /// Removes shares of a server: with everybody or one audience, by one pattern or all of them. Returns
    /// the removed rules.
    ///
    /// # Errors
    /// [`ShareChangeError`]; then nothing has changed.
    pub async fn remove(
        &self,
        server: ServerId,
        to: Option<ShareAudience>,
        tools: Option<String>,
        by: AuditActor,
    ) -> Result<Vec<Share>, ShareChangeError> {
        let unshare = move |shares: &Shares| shares.unshare(&server, to, tools.as_deref());
        let changes = self.change(unshare, by).await?;
        let ended = changes.into_iter().filter_map(|change| match change {
            ShareChange::Unshare(share) => Some(share),
            ShareChange::Share(_) | ShareChange::Forget(_) | ShareChange::Vacate(_) => None,
        });
        Ok(ended.collect())
    }

    /// Removes the shares with a node that left the cluster: a new node of its name starts without.
    ///
    /// # Errors
    /// [`ShareChangeError`].
    pub async fn remove_node(&self, node: NodeId, by: AuditActor) -> Result<(), ShareChangeError> {
        let forget = move |_: &Shares| Ok(vec![ShareChange::Forget(node)]);
        self.change(forget, by).await.map(drop)
    }

    /// Removes the shares of a server that was removed: a new server of its name starts unshared.
    ///
    /// # Errors
    /// [`ShareChangeError`].
    #[cfg(test)]
    pub(crate) async fn remove_server(
        &self,
        server: ServerId,
        by: AuditActor,
    ) -> Result<(), ShareChangeError> {
        let vacate = move |_: &Shares| Ok(vec![ShareChange::Vacate(server)]);
        self.change(vacate, by).await.map(drop)
    }

    /// Applies a change and returns the changes that were made.
    async fn change(
        &self,
        change: impl FnOnce(&Shares) -> Result<Vec<ShareChange>, ShareRequestError> + Send + 'static,
        by: AuditActor,
    ) -> Result<Vec<ShareChange>, ShareChangeError> {
        let change: Change = Box::new(change);
        let ask = |reply| SharesMsg {
            change,
            actor: by,
            reply,
        };
        self.mailbox.ask(ask).await?
    }
}

/// A requested change.
pub struct SharesMsg {
    change: Change,
    actor: AuditActor,
    reply: Reply<Result<Vec<ShareChange>, ShareChangeError>>,
}

impl std::fmt::Debug for SharesMsg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharesMsg")
    }
}

#[derive(Debug)]
struct SharesActor {
    published: Arc<Snapshot<Shares>>,
    start: SharesStart,
}

impl Actor for SharesActor {
    type Msg = Queued<SharesMsg>;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let SharesMsg {
            change,
            actor: by,
            reply,
        } = queued.into_message();
        let outcome = self.change(change, &by).await;
        reply.send(outcome);
        Ok(())
    }
}

impl SharesActor {
    async fn change(
        &self,
        change: Change,
        by: &AuditActor,
    ) -> Result<Vec<ShareChange>, ShareChangeError> {
        let before = self.published.load();
        let mut shares = Shares::clone(&before);
        let mut changes = change(&before)?;
        changes.retain(|change| shares.apply(change));
        if changes.is_empty() {
            return Ok(changes);
        }
        let trace = TraceId::from_random(randomness::random_bytes());
        for change in &changes {
            let event = share_event(change, by, &trace, Outcome::Success);
            self.start.audit.record_decision(event).await?;
        }
        let (file, rules) = (self.start.file.clone(), shares.clone());
        let writing = task::run_blocking("shares.keep", move || shares_file::write(&file, &rules));
        let written = match writing.await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(broken) => Err(broken.to_string()),
        };
        if let Err(why) = written {
            for change in &changes {
                let event = share_event(change, by, &trace, Outcome::Failure);
                self.start.audit.record(event);
            }
            return Err(ShareChangeError::Save(why));
        }
        self.start.witness.settle_presence();
        let shares = Arc::new(shares);
        self.published.store(Arc::clone(&shares));
        self.start.changed.send(shares);
        Ok(changes)
    }
}

fn share_event(
    change: &ShareChange,
    by: &AuditActor,
    trace: &TraceId,
    outcome: Outcome,
) -> mgp_protocol::mgp::audit::Event {
    let (kind, server, details) = match change {
        ShareChange::Share(share) => (
            EventType::SERVER_SHARED,
            Some(&share.server),
            json!({"to": share.to.to_string(), "tools": share.tools}),
        ),
        ShareChange::Unshare(share) => (
            EventType::SERVER_UNSHARED,
            Some(&share.server),
            json!({"to": share.to.to_string(), "tools": share.tools}),
        ),
        ShareChange::Forget(node) => (
            EventType::SERVER_UNSHARED,
            None,
            json!({"to": ShareAudience::Node(*node).to_string(), "reason": "the node left"}),
        ),
        ShareChange::Vacate(server) => (
            EventType::SERVER_UNSHARED,
            Some(server),
            json!({"reason": "the server was removed"}),
        ),
    };
    let target = Target {
        server_id: server.map(ToString::to_string),
        ..Target::default()
    };
    new_event(kind, by.clone(), target, trace, outcome, details)
}
