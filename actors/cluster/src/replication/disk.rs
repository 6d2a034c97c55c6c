//! The logs on disk: all entries that this node holds, in the order in which they came, and what it owes. An
//! entry is said to be held only once it is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::node_key::{PublicKey, SignatureClaim, first_bad};
use mgp_engine::policy::grants::{ClusterId, MemberChange, Revoke, Signed};
use mgp_engine::replication::own_log::OwedRevoke;
use mgp_protocol::ids::NodeId;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task::{self, SupervisedTask, TaskBroken};
use mgp_store::audit::{AuditHandle, NotWritten, state_damaged};
use mgp_store::journal::{Journal, NotAppended, OpenedJournal, UnusableJournal};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::ReplicationMsg;

/// The journal of entries; its first one says which cluster it is.
const LOGS: (&str, &str) = ("logs", "logs of a cluster");
/// The journal of revocations that are not signed yet.
const OWED: (&str, &str) = ("owed", "owed revocations");
/// The journal of nodes of which two lives were found.
const TWICE: (&str, &str) = ("twice", "nodes of which two lives were found");
/// Signatures that are verified at a time.
const CHECKED: usize = 1024;
/// Orders that share one sync.
const TOGETHER: usize = 64;
/// The wait before a disk that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Which cluster the entries behind it are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogsOwner {
    pub(super) cluster: ClusterId,
    /// The key of the node that invited this one.
    pub(super) inviter: Option<[u8; 32]>,
}

#[derive(Serialize, Deserialize)]
struct OwedEntry {
    revoke: Revoke,
    author: String,
    told_at_ms: u64,
}

/// The logs as they were found.
#[derive(Debug)]
pub struct OpenedLogs {
    pub(super) owner: LogsOwner,
    pub(super) signed: Vec<Signed>,
    pub(super) owed: Vec<OwedRevoke>,
    pub(super) twice: BTreeSet<NodeId>,
    pub(super) journals: LogJournals,
    cut: Vec<String>,
}

/// The files.
#[derive(Clone, Debug)]
pub(super) struct LogJournals {
    logs: Journal,
    owed: Journal,
    twice: Journal,
}

/// Why the logs cannot be used. The kernel does not start without them: a revocation in them may be known to
/// nobody else.
#[derive(Debug, thiserror::Error)]
pub enum UnusableLogs {
    /// A file.
    #[error(transparent)]
    Journal(#[from] UnusableJournal),
    /// An unfinished entry could not be cut off.
    #[error("{0}")]
    NotMended(#[from] NotAppended),
    /// That was found could not be recorded.
    #[error(transparent)]
    NotRecorded(#[from] NotWritten),
    /// An entry that no node wrote like this.
    #[error("{path}: entry {entry} {why}; put a copy of this file back that is whole")]
    Entry {
        /// Which file.
        path: String,
        /// Which entry, from 1.
        entry: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The actor did not start.
    #[error("the logs of the cluster: {0}")]
    NotStarted(String),
}

impl From<TaskBroken> for UnusableLogs {
    fn from(broken: TaskBroken) -> Self {
        Self::NotStarted(broken.to_string())
    }
}

/// The logs of the cluster that this node is in; None when it is in none. Reads and verifies all; blocks.
pub(super) fn open_existing(folder: &Path) -> Result<Option<OpenedLogs>, UnusableLogs> {
    let path = folder.join(LOGS.0);
    match path.exists() {
        true => read(folder),
        false => Ok(None),
    }
}

/// Whether the logs hold that a node itself signed this key as its new one. Blocks; for a start, before they are used.
///
/// # Errors
/// [`UnusableLogs`].
pub fn has_rekeyed(folder: &Path, node: NodeId, to: PublicKey) -> Result<bool, UnusableLogs> {
    let found = open_existing(folder)?;
    let signed = found.iter().flat_map(|found| &found.signed);
    let mut own = signed.filter(|signed| signed.written().issuer() == node);
    Ok(own.any(
        |signed| match signed.written().operation().change.members() {
            Some(MemberChange::Rekey { node: of, key, .. }) => *of == node && *key == to,
            Some(_) | None => false,
        },
    ))
}

fn read(folder: &Path) -> Result<Option<OpenedLogs>, UnusableLogs> {
    let logs = Journal::open(&folder.join(LOGS.0), LOGS.1)?;
    let owed = Journal::open(&folder.join(OWED.0), OWED.1)?;
    let twice = Journal::open(&folder.join(TWICE.0), TWICE.1)?;
    let mut entries = logs.entries.into_iter();
    let Some(head) = entries.next() else {
        return Ok(None);
    };
    let owner = serde_json::from_slice(&head);
    let owner = owner.map_err(|error| bad(&logs.journal, 0, error.to_string()))?;
    let signed = verified(&logs.journal, entries)?;
    let debts = debts(&owed)?;
    let nodes = nodes(&twice)?;
    let cut = [logs.cut, owed.cut, twice.cut];
    let cut = cut.into_iter().flatten().collect();
    let journals = LogJournals {
        logs: logs.journal,
        owed: owed.journal,
        twice: twice.journal,
    };
    Ok(Some(OpenedLogs {
        owner,
        signed,
        owed: debts,
        twice: nodes,
        journals,
        cut,
    }))
}

fn bad(journal: &Journal, entry: usize, why: String) -> UnusableLogs {
    UnusableLogs::Entry {
        path: journal.path().display().to_string(),
        entry: entry + 1,
        why,
    }
}

fn verified(
    journal: &Journal,
    entries: impl Iterator<Item = Vec<u8>>,
) -> Result<Vec<Signed>, UnusableLogs> {
    // Each is let go of once it is read: a long log is not in memory twice.
    let read = (1..).zip(entries).map(|(at, entry)| {
        let signed = Signed::from_bytes(&entry);
        signed.map_err(|error| bad(journal, at, format!("cannot be read: {error}")))
    });
    let signed: Vec<Signed> = read.collect::<Result<_, _>>()?;
    for (part, first) in signed.chunks(CHECKED).zip((1..).step_by(CHECKED)) {
        let unsigned = |at| bad(journal, at, "is not signed by the node it names".into());
        let claims = part.iter().zip(first..);
        let claims = claims.map(|(signed, at)| signed.claim().ok_or_else(|| unsigned(at)));
        let claims: Vec<SignatureClaim> = claims.collect::<Result<_, _>>()?;
        if let Some(at) = first_bad(&claims) {
            return Err(unsigned(first + at));
        }
    }
    Ok(signed)
}

fn debts(owed: &OpenedJournal) -> Result<Vec<OwedRevoke>, UnusableLogs> {
    let read = owed.entries.iter().enumerate().map(|(at, entry)| {
        let read: OwedEntry = serde_json::from_slice(entry)
            .map_err(|error| bad(&owed.journal, at, error.to_string()))?;
        Ok(OwedRevoke {
            revoke: read.revoke,
            author: read.author,
            told_at_ms: read.told_at_ms,
        })
    });
    read.collect()
}

fn nodes(twice: &OpenedJournal) -> Result<BTreeSet<NodeId>, UnusableLogs> {
    let read = twice.entries.iter().enumerate().map(|(at, entry)| {
        let node = std::str::from_utf8(entry).ok().and_then(NodeId::parse);
        node.ok_or_else(|| bad(&twice.journal, at, "is not the id of a node".into()))
    });
    read.collect()
}

impl OpenedLogs {
    /// Those of a stay that begins.
    pub(super) fn begun(owner: LogsOwner, journals: LogJournals, signed: Vec<Signed>) -> Self {
        Self {
            owner,
            signed,
            owed: Vec::new(),
            twice: BTreeSet::new(),
            journals,
            cut: Vec::new(),
        }
    }

    /// Cuts off what was not finished.
    pub(super) async fn mend(&self, audit: &AuditHandle) -> Result<(), UnusableLogs> {
        for cut in &self.cut {
            self.journals.logs.mend().await?;
            self.journals.owed.mend().await?;
            self.journals.twice.mend().await?;
            audit.decided(state_damaged(cut)).await?;
        }
        Ok(())
    }
}

impl LogJournals {
    /// Begins the logs of a cluster, over whatever is left of another one.
    pub(super) async fn begin(
        folder: PathBuf,
        owner: &LogsOwner,
        signed: &[Signed],
    ) -> Result<Self, UnusableLogs> {
        let opened = task::blocking("replication.open", move || -> Result<_, UnusableLogs> {
            let made = std::fs::create_dir_all(&folder);
            made.map_err(|error| UnusableLogs::NotStarted(error.to_string()))?;
            let logs = Journal::open(&folder.join(LOGS.0), LOGS.1)?.journal;
            let owed = Journal::open(&folder.join(OWED.0), OWED.1)?.journal;
            let twice = Journal::open(&folder.join(TWICE.0), TWICE.1)?.journal;
            Ok(Self { logs, owed, twice })
        });
        let journals = opened.await??;
        let head = serde_json::to_vec(owner);
        let head = head.map_err(|error| UnusableLogs::NotStarted(error.to_string()))?;
        let entries = signed.iter().map(Signed::to_bytes);
        journals.owed.replace(Vec::new()).await?;
        journals.twice.replace(Vec::new()).await?;
        journals
            .logs
            .replace(std::iter::once(head).chain(entries).collect())
            .await?;
        Ok(journals)
    }

    /// Forgets them: from then on this node is in no cluster.
    pub(super) async fn end(&self) -> Result<(), NotAppended> {
        self.logs.replace(Vec::new()).await?;
        self.owed.replace(Vec::new()).await?;
        self.twice.replace(Vec::new()).await
    }
}

/// Something to be put on disk.
#[derive(Default)]
struct StoreOrder {
    /// To be told then.
    ticket: Option<u64>,
    entries: Vec<Vec<u8>>,
    /// All of them, in the place of those before.
    owed: Option<Vec<Vec<u8>>>,
    twice: Option<Vec<Vec<u8>>>,
}

/// Writes what the replica wants stored, in its order, off the actor.
#[derive(Debug)]
pub(super) struct LogWriter {
    orders: mpsc::UnboundedSender<StoreOrder>,
    trouble: watch::Receiver<Option<Arc<str>>>,
    _task: SupervisedTask<()>,
}

impl LogWriter {
    pub(super) fn start(journals: LogJournals, actor: Mailbox<ReplicationMsg>, stay: u64) -> Self {
        // Bounded by its owner, which takes nothing more while too much is on its way to the disk.
        let (orders, taken) = mpsc::unbounded_channel();
        let (told, trouble) = watch::channel(None);
        let task = task::supervised(
            "replication.write",
            write(journals, taken, told, actor, stay),
        );
        Self {
            orders,
            trouble,
            _task: task,
        }
    }

    pub(super) fn store(&self, ticket: u64, entries: &[Arc<[u8]>], owed: Option<&[OwedRevoke]>) {
        let entries = entries.iter().map(|entry| entry.to_vec()).collect();
        let owed = owed.map(|owed| owed.iter().filter_map(owed_bytes).collect());
        self.order(StoreOrder {
            ticket: Some(ticket),
            entries,
            owed,
            twice: None,
        });
    }

    /// The nodes of which two lives were found, all of them.
    pub(super) fn store_twice(&self, nodes: &BTreeSet<NodeId>) {
        let nodes = nodes.iter().map(|node| node.to_string().into_bytes());
        self.order(StoreOrder {
            twice: Some(nodes.collect()),
            ..StoreOrder::default()
        });
    }

    fn order(&self, order: StoreOrder) {
        // The task ends with its owner.
        let _ = self.orders.send(order);
    }

    /// Why nothing can be stored now.
    pub(super) fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.borrow().clone()
    }
}

fn owed_bytes(owed: &OwedRevoke) -> Option<Vec<u8>> {
    let entry = OwedEntry {
        revoke: owed.revoke.clone(),
        author: owed.author.clone(),
        told_at_ms: owed.told_at_ms,
    };
    // Plain words and numbers: it can always be written.
    serde_json::to_vec(&entry).ok()
}

async fn write(
    journals: LogJournals,
    mut orders: mpsc::UnboundedReceiver<StoreOrder>,
    trouble: watch::Sender<Option<Arc<str>>>,
    actor: Mailbox<ReplicationMsg>,
    stay: u64,
) {
    let mut together = Vec::with_capacity(TOGETHER);
    while orders.recv_many(&mut together, TOGETHER).await > 0 {
        let ticket = together.iter().filter_map(|order| order.ticket).max();
        let entries = together.iter_mut();
        let entries: Vec<Vec<u8>> = entries
            .flat_map(|order| std::mem::take(&mut order.entries))
            .collect();
        let (mut owed, mut twice) = (None, None);
        for order in together.drain(..) {
            owed = order.owed.or(owed);
            twice = order.twice.or(twice);
        }
        // Until it is there, nothing is said of it; what a failed try left is cut off before the next.
        while !entries.is_empty() {
            match journals.logs.append_all(entries.clone()).await {
                Ok(()) => break,
                Err(error) => wait(&trouble, &error, &journals.logs).await,
            }
        }
        for (journal, all) in [(&journals.owed, owed), (&journals.twice, twice)] {
            while let Some(all) = &all {
                match journal.replace(all.clone()).await {
                    Ok(()) => break,
                    Err(error) => wait(&trouble, &error, journal).await,
                }
            }
        }
        trouble.send_if_modified(|why| why.take().is_some());
        let stored = ticket.map(|ticket| ReplicationMsg::Stored { stay, ticket });
        if stored.is_some_and(|stored| actor.remind(stored).is_err()) {
            return;
        }
    }
}

async fn wait(trouble: &watch::Sender<Option<Arc<str>>>, error: &NotAppended, journal: &Journal) {
    let why: Arc<str> = format!("{}: {error}", journal.path().display()).into();
    tracing::error!(%why, "the logs of the cluster are not on disk");
    trouble.send_replace(Some(why));
    journal.trouble().over().await;
    tokio::time::sleep(AGAIN).await;
}

impl LogsOwner {
    pub(super) fn inviter(&self) -> Option<PublicKey> {
        self.inviter.map(PublicKey)
    }
}
