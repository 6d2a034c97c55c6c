//! Who may do what: holds the grants, and carries out what is decided about them.
//! Asked by: calls, operator, approvals, tree. Asks: journal, audit.
//!
//! A decision is signed, appended to the journal, on disk, written to the audit log, in force for the
//! next call, and only then acknowledged. Those that come while the disk is busy share the next sync.

mod books;
mod events;
mod recovery;
mod state;
mod writing;

use std::sync::Arc;

use mgp_engine::policy::access::{Defaults, GrantTable, Principal};
use mgp_engine::policy::grants::{Authority, GrantChange, GrantId, Grants, Operation};
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::refusal::Refusal;
use mgp_sync::snapshot::Snapshot;
use ractor::{Actor, ActorProcessingErr, ActorRef};

pub use self::books::{Books, UnusableGrants};
pub use self::state::AccessState;
pub use self::writing::Restored;
use mgp_callers::directory::Directory;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Letter, Mailbox, Reply};
use mgp_runtime::randomness;
use mgp_store::audit::{AuditHandle, state_damaged};

/// What a decision is made on.
#[derive(Debug)]
pub struct GrantRecords<'a> {
    /// All there is.
    pub grants: &'a Grants,
    /// Whose operations count.
    pub authority: &'a Authority,
    /// What holds without any.
    pub defaults: &'a Defaults,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// A name for a new grant.
    pub fresh: GrantId,
}

/// Makes a decision: what is to be recorded, nothing perhaps. Each change is one entry of the journal,
/// which is on disk whole or not at all: what must not hold by half is one change.
pub type Decide = Box<dyn FnOnce(&GrantRecords<'_>) -> Result<Vec<GrantChange>, Refusal> + Send>;
/// Looks something up.
pub type Look = Box<dyn FnOnce(&GrantRecords<'_>) + Send>;

/// The way in for everyone else.
#[derive(Debug, Clone)]
pub struct AccessHandle {
    mailbox: Mailbox<AccessMsg>,
    table: Arc<Snapshot<GrantTable>>,
    reveal: bool,
}

impl AccessHandle {
    /// The handle of a running actor; `reveal` tells callers of denied tools that they are denied.
    #[must_use]
    pub fn new(
        mailbox: Mailbox<AccessMsg>,
        table: Arc<Snapshot<GrantTable>>,
        reveal: bool,
    ) -> Self {
        Self {
            mailbox,
            table,
            reveal,
        }
    }

    /// What calls are decided by right now.
    #[must_use]
    pub fn table(&self) -> Arc<GrantTable> {
        self.table.load()
    }

    /// Whether callers of denied tools that agreed to `access_control` are told that they are denied.
    #[must_use]
    pub fn reveals(&self) -> bool {
        self.reveal
    }

    /// Decides on what is known, and records what was decided. Answers the changes once they are on
    /// disk and in force; none when there was nothing to change.
    ///
    /// # Errors
    /// What `decide` refuses; [`Refusal::Overloaded`] where too many wait; [`Refusal::Broken`] when
    /// the disk failed, and nothing is known of the outcome.
    pub async fn record(
        &self,
        by: Principal,
        trace: TraceId,
        decide: impl FnOnce(&GrantRecords<'_>) -> Result<Vec<GrantChange>, Refusal> + Send + 'static,
    ) -> Result<Vec<GrantChange>, Refusal> {
        let ask = |reply| AccessMsg::Record {
            decide: Box::new(decide),
            by,
            trace,
            reply,
        };
        self.mailbox.ask(ask).await.map_err(unreachable)?
    }

    /// Looks something up that the table does not hold.
    ///
    /// # Errors
    /// [`Refusal::Broken`] when the actor is not reachable.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&GrantRecords<'_>) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let ask = |reply: Reply<T>| {
            AccessMsg::Look(Box::new(move |ledger: &GrantRecords<'_>| {
                reply.send(look(ledger))
            }))
        };
        self.mailbox.ask(ask).await.map_err(unreachable)
    }

    /// Other default policies; in force when this resolves.
    ///
    /// # Errors
    /// [`Refusal::Broken`] when the actor is not reachable.
    pub async fn set_defaults(&self, defaults: Defaults) -> Result<(), Refusal> {
        let ask = |reply| AccessMsg::Defaults(defaults, reply);
        self.mailbox.ask(ask).await.map_err(unreachable)
    }
}

fn unreachable(error: mgp_runtime::mailbox::AskError) -> Refusal {
    Refusal::Broken(format!("access control: {error}"))
}

/// What the actor is told and asked.
pub enum AccessMsg {
    /// Decide, and record what was decided.
    Record {
        /// How.
        decide: Decide,
        /// Who asks.
        by: Principal,
        /// In which request.
        trace: TraceId,
        /// Answered when it is in force.
        reply: Reply<Result<Vec<GrantChange>, Refusal>>,
    },
    /// Look something up.
    Look(Look),
    /// Other default policies.
    Defaults(Defaults, Reply<()>),
    /// What was decided is on disk, or why it is not known to be.
    Committed(Result<(), String>),
    /// What holds is known again, after it was not.
    Restored(Restored),
    /// An entry may have ended.
    Ended,
    /// Nobody can say any more what is on disk of a decision: only a new start of the kernel can.
    Broken(String),
}

impl std::fmt::Debug for AccessMsg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Record { .. } => "Record",
            Self::Look(_) => "Look",
            Self::Defaults(..) => "Defaults",
            Self::Committed(_) => "Committed",
            Self::Restored(_) => "Restored",
            Self::Ended => "Ended",
            Self::Broken(_) => "Broken",
        })
    }
}

/// What never changes.
#[derive(Debug)]
pub struct AccessActor {
    /// Where the table is published.
    pub table: Arc<Snapshot<GrantTable>>,
    /// Who is told when what they see changes.
    pub directory: Arc<Directory>,
    /// Hears that other things are open to agents from now on.
    pub changed: EventSink<()>,
    /// Where decisions are written down.
    pub audit: AuditHandle,
}

impl Actor for AccessActor {
    type Msg = Letter<AccessMsg>;
    type State = AccessState;
    /// What was decided, and what of it is not in the audit log.
    type Arguments = (Books, Vec<Operation>);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (books, unaudited): Self::Arguments,
    ) -> Result<AccessState, ActorProcessingErr> {
        if let Some(cut) = books.cut() {
            // Not before: the audit log knows of nothing that would be lost.
            books.journal.mend().await?;
            self.audit.decided(state_damaged(cut)).await?;
        }
        for operation in unaudited {
            tracing::warn!(
                sequence = operation.place.sequence,
                "a decision was not in the audit log, and is now"
            );
            let trace = TraceId::mint(randomness::bytes());
            let event = events::recovered(&operation, books.grants(), &trace);
            self.audit.decided(event).await?;
        }
        Ok(AccessState::new(
            books,
            Mailbox::new(myself),
            self.table.load(),
        ))
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        letter: Self::Msg,
        state: &mut AccessState,
    ) -> Result<(), ActorProcessingErr> {
        match letter.message {
            AccessMsg::Record {
                decide,
                by,
                trace,
                reply,
            } => state.record(self, decide, by, trace, reply),
            AccessMsg::Look(look) => state.look(self, look),
            AccessMsg::Defaults(defaults, reply) => {
                state.set_defaults(self, defaults);
                reply.send(());
            }
            AccessMsg::Committed(outcome) => state.committed(self, outcome),
            AccessMsg::Restored(restored) => state.restored(self, restored),
            AccessMsg::Ended => state.ended(self),
            AccessMsg::Broken(why) => return Err(why.into()),
        }
        Ok(())
    }
}
