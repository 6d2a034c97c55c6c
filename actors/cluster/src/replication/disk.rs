//! The logs on disk: all entries that this node holds, in the order in which they came, and what it owes. An
//! entry is said to be held only once it is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::node_key::{PublicKey, SignatureClaim, find_invalid_signature};
use mgp_engine::policy::grants::{
    CausalContext, ClusterId, LogTip, MemberChange, OperationId, Revoke, SignedOperation,
};
use mgp_engine::replication::local_log::PendingRevoke;
use mgp_protocol::ids::NodeId;
use mgp_runtime::task::{SupervisedTask, TaskError};
use mgp_runtime::{Mailbox, task};
use mgp_store::audit::{AuditHandle, AuditWriteError, state_damaged_event};
use mgp_store::backup::{RESTORED, RESTORED_LOGS};
use mgp_store::journal::{AppendError, Journal, JournalError, OpenedJournal};
use mgp_store::{Witness, atomic_file};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::ReplicationMsg;

/// The journal of entries; its first one says which cluster it is.
const LOGS_JOURNAL: (&str, &str) = ("logs", "logs of a cluster");
/// The journal of revocations that are not signed yet.
const OWED_JOURNAL: (&str, &str) = ("owed", "owed revocations");
/// The journal of nodes of which two lives were found.
const DUPLICATES_JOURNAL: (&str, &str) = ("twice", "nodes of which two lives were found");
/// The beginning of the names of witnesses: one says which cluster it is, one for each log where it ends, and two
/// are of the other files. A log is witnessed by its end, not by its file: other nodes bring entries in another order.
const WITNESS_PREFIX: &str = "cluster/logs/";
/// The witness of the cluster, called like the file.
pub(super) const LOGS_WITNESS: &str = "cluster/logs/logs";
/// The beginning of the names of the witnesses of ends.
const TIP_WITNESS_PREFIX: &str = "cluster/logs/tip ";
/// Signatures that are verified at a time.
const VERIFY_BATCH: usize = 1024;
/// Orders that share one sync.
const SYNC_BATCH: usize = 64;
/// The wait before a disk that failed is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Which cluster the entries behind it are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogsIdentity {
    pub(super) cluster: ClusterId,
    /// The key of the node that invited this one.
    pub(super) inviter: Option<[u8; 32]>,
}

#[derive(Serialize, Deserialize)]
struct OwedEntry {
    revoke: Revoke,
    author: String,
    told_at_ms: u64,
    /// Older builds write none.
    #[serde(default, skip_serializing_if = "CausalContext::is_empty")]
    context: CausalContext,
}

/// The logs as they were found.
#[derive(Debug)]
pub(super) struct OpenedLogs {
    pub(super) owner: LogsIdentity,
    pub(super) signed: Vec<SignedOperation>,
    pub(super) owed: Vec<PendingRevoke>,
    pub(super) duplicates: BTreeSet<NodeId>,
    pub(super) journals: LogJournals,
    torn_tails: Vec<String>,
    /// Where logs ended, by their witnesses.
    pub(super) tips: Vec<(NodeId, LogTip)>,
    /// What is lost that no other node has: in words.
    pub(super) lost: Vec<String>,
    /// The folder was restored from the backup of then, and other nodes have not confirmed the log since.
    pub(super) restored: Option<String>,
}

/// What was found of the logs.
#[derive(Debug)]
pub struct LoadedLogs {
    pub(super) opened: Option<OpenedLogs>,
    /// There are none, and a witness says that there were: in words.
    pub(super) missing: Option<String>,
}

/// The files.
#[derive(Clone, Debug)]
pub(super) struct LogJournals {
    logs: Journal,
    owed: Journal,
    duplicates: Journal,
    witness: Witness,
}

/// Why the logs cannot be used. The kernel does not start without them: a revocation in them may be known to
/// nobody else.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// A file.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An unfinished entry could not be cut off.
    #[error("{0}")]
    Truncate(#[from] AppendError),
    /// That was found could not be recorded.
    #[error(transparent)]
    Record(#[from] AuditWriteError),
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
    Start(String),
}

impl From<TaskError> for LogsError {
    fn from(broken: TaskError) -> Self {
        Self::Start(broken.to_string())
    }
}

/// The logs of the cluster that this node is in; None when it is in none. Reads and verifies all; blocks.
pub(super) fn open_existing(folder: &Path, witness: &Witness) -> Result<LoadedLogs, LogsError> {
    let path = folder.join(LOGS_JOURNAL.0);
    let opened = if path.exists() {
        open_logs(folder, witness)?
    } else {
        None
    };
    let was_there = witness.sibling(LOGS_WITNESS).contents();
    let missing = opened.is_none().then_some(was_there).flatten();
    let missing = missing.and_then(|it| it.settled).map(|cluster| {
        let path = path.display();
        format!(
            "{path} is missing or empty, and this node was in the cluster {cluster}: nothing of it is known here, and agents of other nodes may do nothing; put a copy of the file back and start the kernel again, or join the cluster anew with `mgp nodes join`, or run `mgp down`, then `mgp accept {LOGS_WITNESS}`"
        )
    });
    Ok(LoadedLogs { opened, missing })
}

/// Compares the files of the logs with their witnesses while no kernel has them open, and changes nothing; tells
/// what is lost. Blocks.
///
/// # Errors
/// [`LogsError`].
pub fn check_witnesses(folder: &Path, witness: &Witness) -> Result<Vec<String>, LogsError> {
    let mut lost = Vec::new();
    for (name, kind) in [OWED_JOURNAL, DUPLICATES_JOURNAL] {
        let other = witness.sibling(format!("{WITNESS_PREFIX}{name}"));
        let shortened = Journal::compare(&folder.join(name), kind, &other)?;
        lost.extend(shortened.map(|it| it.to_string()));
    }
    let path = folder.join(LOGS_JOURNAL.0);
    let was_there = witness.sibling(LOGS_WITNESS).contents().is_some();
    if was_there && std::fs::metadata(&path).map_or(0, |it| it.len()) == 0 {
        lost.push(format!("{} is missing or empty", path.display()));
        return Ok(lost);
    }
    if !was_there {
        return Ok(lost);
    }
    let entries = Journal::read(&path, LOGS_JOURNAL.1)?;
    let entries = entries
        .iter()
        .skip(1)
        .map(|entry| SignedOperation::from_bytes(entry));
    let known: BTreeSet<(NodeId, u64, OperationId)> = entries
        .filter_map(|signed| {
            let signed = signed.ok()?;
            let written = signed.encoded();
            Some((written.issuer(), written.position().sequence, written.id()))
        })
        .collect();
    let lacks = |(node, tip): &(NodeId, LogTip)| {
        let last = tip.next.checked_sub(1);
        last.is_some_and(|last| !known.contains(&(*node, last, tip.id)))
    };
    let tips = witnessed_tips(witness).into_iter();
    lost.extend(tips.filter(lacks).map(|(node, _)| {
        let path = path.display();
        format!(
            "{path} has been shortened: it held more of what {} wrote",
            node.short_id()
        )
    }));
    Ok(lost)
}

/// Where logs ended, by their witnesses.
fn witnessed_tips(witness: &Witness) -> Vec<(NodeId, LogTip)> {
    let all = witness.records_with_prefix(TIP_WITNESS_PREFIX).into_iter();
    let tips = all.filter_map(|(node, contents)| {
        let settled = contents.settled?;
        let (next, id) = settled.split_once(' ')?;
        let tip = LogTip {
            next: next.parse().ok()?,
            id: OperationId::parse(id)?,
        };
        Some((NodeId::parse(&node)?, tip))
    });
    tips.collect()
}

/// What the loss of a file besides the logs means.
fn describe_loss(journal: &OpenedJournal, name: &str, means: &str) -> Option<String> {
    let shortened = journal.truncated.as_ref()?;
    Some(format!(
        "{shortened}: {means}, so agents of other nodes may do nothing here; put a copy of the file back and start the kernel again, or, to go on without what is lost, run `mgp down`, then `mgp accept {WITNESS_PREFIX}{name}`"
    ))
}

/// Whether the logs hold that a node itself signed this key as its new one. Blocks; for a start, before they are used.
///
/// # Errors
/// [`LogsError`].
pub fn has_rekeyed(folder: &Path, node: NodeId, to: PublicKey) -> Result<bool, LogsError> {
    let found = open_existing(folder, &Witness::default())?;
    let signed = found.opened.iter().flat_map(|found| &found.signed);
    let mut own = signed.filter(|signed| signed.encoded().issuer() == node);
    Ok(own.any(
        |signed| match signed.encoded().operation().change.members() {
            Some(MemberChange::Rekey { node: of, key, .. }) => *of == node && *key == to,
            Some(_) | None => false,
        },
    ))
}

fn open_logs(folder: &Path, witness: &Witness) -> Result<Option<OpenedLogs>, LogsError> {
    let [logs, owed, twice] = open_all(folder, witness)?;
    let mut entries = logs.entries.into_iter();
    let Some(head) = entries.next() else {
        return Ok(None);
    };
    let owner = serde_json::from_slice(&head);
    let owner: LogsIdentity =
        owner.map_err(|error| entry_error(&logs.journal, 0, error.to_string()))?;
    let signed = verify_entries(&logs.journal, entries)?;
    let debts = parse_owed(&owed)?;
    let nodes = parse_duplicates(&twice)?;
    let cut = [&logs.torn_tail, &owed.torn_tail, &twice.torn_tail];
    let cut = cut.into_iter().flatten().cloned().collect();
    let lost = [
        describe_loss(
            &owed,
            OWED_JOURNAL.0,
            "revocations may be lost that were accepted",
        ),
        describe_loss(
            &twice,
            DUPLICATES_JOURNAL.0,
            "it is not known of which nodes two lives were found",
        ),
        describe_other_cluster(&logs.journal, &owner, witness),
    ];
    let lost = lost.into_iter().flatten().collect();
    let journals = LogJournals {
        logs: logs.journal,
        owed: owed.journal,
        duplicates: twice.journal,
        witness: witness.clone(),
    };
    Ok(Some(OpenedLogs {
        owner,
        signed,
        owed: debts,
        duplicates: nodes,
        journals,
        torn_tails: cut,
        tips: witnessed_tips(witness),
        lost,
        restored: witness
            .sibling(RESTORED_LOGS)
            .contents()
            .and_then(|it| it.settled),
    }))
}

/// The three files, in the order of their constants.
fn open_all(folder: &Path, witness: &Witness) -> Result<[OpenedJournal; 3], JournalError> {
    let other = |(name, kind)| {
        let witness = witness.sibling(format!("{WITNESS_PREFIX}{name}"));
        Journal::open_witnessed(&folder.join(name), kind, witness)
    };
    let logs = Journal::open(&folder.join(LOGS_JOURNAL.0), LOGS_JOURNAL.1)?;
    Ok([logs, other(OWED_JOURNAL)?, other(DUPLICATES_JOURNAL)?])
}

fn describe_other_cluster(
    logs: &Journal,
    owner: &LogsIdentity,
    witness: &Witness,
) -> Option<String> {
    let settled = witness.sibling(LOGS_WITNESS).contents()?.settled?;
    (settled != owner.cluster.to_string()).then(|| {
        let path = logs.path().display();
        format!(
            "{path} is of another cluster than this node was in, {settled}: agents of other nodes may do nothing here; put a copy of the file back and start the kernel again, or run `mgp down`, then `mgp accept {LOGS_WITNESS}`"
        )
    })
}

fn entry_error(journal: &Journal, entry: usize, why: String) -> LogsError {
    LogsError::Entry {
        path: journal.path().display().to_string(),
        entry: entry + 1,
        why,
    }
}

fn verify_entries(
    journal: &Journal,
    entries: impl Iterator<Item = Vec<u8>>,
) -> Result<Vec<SignedOperation>, LogsError> {
    // Each is let go of once it is read: a long log is not in memory twice.
    let read = (1..).zip(entries).map(|(at, entry)| {
        let signed = SignedOperation::from_bytes(&entry);
        signed.map_err(|error| entry_error(journal, at, format!("cannot be read: {error}")))
    });
    let signed: Vec<SignedOperation> = read.collect::<Result<_, _>>()?;
    for (part, first) in signed.chunks(VERIFY_BATCH).zip((1..).step_by(VERIFY_BATCH)) {
        let unsigned = |at| entry_error(journal, at, "is not signed by the node it names".into());
        let claims = part.iter().zip(first..);
        let claims =
            claims.map(|(signed, at)| signed.signature_claim().ok_or_else(|| unsigned(at)));
        let claims: Vec<SignatureClaim> = claims.collect::<Result<_, _>>()?;
        if let Some(at) = find_invalid_signature(&claims) {
            return Err(unsigned(first + at));
        }
    }
    Ok(signed)
}

fn parse_owed(owed: &OpenedJournal) -> Result<Vec<PendingRevoke>, LogsError> {
    let read = owed.entries.iter().enumerate().map(|(at, entry)| {
        let read: OwedEntry = serde_json::from_slice(entry)
            .map_err(|error| entry_error(&owed.journal, at, error.to_string()))?;
        Ok(PendingRevoke {
            revoke: read.revoke,
            author: read.author,
            requested_at_ms: read.told_at_ms,
            context: read.context,
        })
    });
    read.collect()
}

fn parse_duplicates(twice: &OpenedJournal) -> Result<BTreeSet<NodeId>, LogsError> {
    let read = twice.entries.iter().enumerate().map(|(at, entry)| {
        let node = std::str::from_utf8(entry).ok().and_then(NodeId::parse);
        node.ok_or_else(|| entry_error(&twice.journal, at, "is not the id of a node".into()))
    });
    read.collect()
}

impl OpenedLogs {
    /// Those of a stay that begins.
    pub(super) fn new(
        owner: LogsIdentity,
        journals: LogJournals,
        signed: Vec<SignedOperation>,
    ) -> Self {
        Self {
            owner,
            signed,
            owed: Vec::new(),
            duplicates: BTreeSet::new(),
            tips: witnessed_tips(&journals.witness),
            journals,
            torn_tails: Vec::new(),
            lost: Vec::new(),
            restored: None,
        }
    }

    /// Cuts off what was not finished.
    pub(super) async fn truncate_torn_tails(&self, audit: &AuditHandle) -> Result<(), LogsError> {
        for cut in &self.torn_tails {
            self.journals.logs.truncate_torn_tail().await?;
            self.journals.owed.truncate_torn_tail().await?;
            self.journals.duplicates.truncate_torn_tail().await?;
            audit.record_decision(state_damaged_event(cut)).await?;
        }
        Ok(())
    }
}

impl LogJournals {
    /// Begins the logs of a cluster, over whatever is left of another one.
    pub(super) async fn create(
        folder: PathBuf,
        owner: &LogsIdentity,
        signed: &[SignedOperation],
        witness: Witness,
    ) -> Result<Self, LogsError> {
        let cluster = owner.cluster.to_string();
        let opened = task::run_blocking("replication.open", move || -> Result<_, LogsError> {
            let made = atomic_file::create_folder(&folder);
            made.map_err(|error| LogsError::Start(error.to_string()))?;
            // Of the same cluster its logs may be refilled by what comes now.
            let before = witness.sibling(LOGS_WITNESS).contents();
            if before.is_none_or(|it| it.settled != Some(cluster)) {
                forget_witnesses(&witness)?;
            }
            for name in [OWED_JOURNAL.0, DUPLICATES_JOURNAL.0, RESTORED] {
                let other = witness.sibling(format!("{WITNESS_PREFIX}{name}"));
                other.forget().map_err(forget_error)?;
            }
            let [logs, owed, twice] = open_all(&folder, &witness)?.map(|it| it.journal);
            Ok(Self {
                logs,
                owed,
                duplicates: twice,
                witness,
            })
        });
        let journals = opened.await??;
        let head = serde_json::to_vec(owner);
        let head = head.map_err(|error| LogsError::Start(error.to_string()))?;
        let entries = signed.iter().map(SignedOperation::to_bytes);
        journals.owed.replace(Vec::new()).await?;
        journals.duplicates.replace(Vec::new()).await?;
        journals
            .logs
            .replace(std::iter::once(head).chain(entries).collect())
            .await?;
        journals.witness_cluster(owner);
        Ok(journals)
    }

    /// Where the logs are.
    pub(super) fn path(&self) -> &Path {
        self.logs.path()
    }

    /// The logs are of this cluster, and on disk.
    pub(super) fn witness_cluster(&self, owner: &LogsIdentity) {
        let witness = self.witness.sibling(LOGS_WITNESS);
        witness.settle(&owner.cluster.to_string());
    }

    /// Forgets them: from then on this node is in no cluster.
    pub(super) async fn forget_all(&self) -> Result<(), AppendError> {
        // Before the logs: no crash between leaves a witness of what is gone on purpose.
        let witness = self.witness.clone();
        let forgotten =
            task::run_blocking("replication.forget", move || forget_witnesses(&witness));
        let forgotten = forgotten.await.unwrap_or_else(|why| {
            let why = why.to_string();
            Err(LogsError::Start(why))
        });
        forgotten.map_err(|error| AppendError::Failed(error.to_string()))?;
        self.logs.replace(Vec::new()).await?;
        self.owed.replace(Vec::new()).await?;
        self.duplicates.replace(Vec::new()).await
    }
}

fn forget_witnesses(witness: &Witness) -> Result<(), LogsError> {
    for (node, _) in witness.records_with_prefix(TIP_WITNESS_PREFIX) {
        let tip = witness.sibling(format!("{TIP_WITNESS_PREFIX}{node}"));
        tip.forget().map_err(forget_error)?;
    }
    let cluster = witness.sibling(LOGS_WITNESS);
    cluster.forget().map_err(forget_error)
}

fn forget_error(error: std::io::Error) -> LogsError {
    LogsError::Start(format!("the witness of its files: {error}"))
}

/// Something to be put on disk.
#[derive(Default)]
struct StoreCommand {
    /// To be told then.
    ticket: Option<u64>,
    entries: Vec<Vec<u8>>,
    /// All of them, in the place of those before.
    owed: Option<Vec<Vec<u8>>>,
    duplicates: Option<Vec<Vec<u8>>>,
    /// Where logs end on disk: that is witnessed.
    tips: Vec<(NodeId, LogTip)>,
}

/// Writes what the replica wants stored, in its order, off the actor.
#[derive(Debug)]
pub(super) struct LogWriter {
    commands: mpsc::UnboundedSender<StoreCommand>,
    failure: watch::Receiver<Option<Arc<str>>>,
    _task: SupervisedTask<()>,
}

impl LogWriter {
    pub(super) fn start(journals: LogJournals, actor: Mailbox<ReplicationMsg>, stay: u64) -> Self {
        // Bounded by its owner, which takes nothing more while too much is on its way to the disk.
        let (commands, taken) = mpsc::unbounded_channel();
        let (told, failure) = watch::channel(None);
        let task = task::spawn_supervised(
            "replication.write",
            run_writer(journals, taken, told, actor, stay),
        );
        Self {
            commands,
            failure,
            _task: task,
        }
    }

    pub(super) fn store(&self, ticket: u64, entries: &[Arc<[u8]>], owed: Option<&[PendingRevoke]>) {
        let entries = entries.iter().map(|entry| entry.to_vec()).collect();
        let owed = owed.map(|owed| owed.iter().filter_map(encode_owed).collect());
        self.send_command(StoreCommand {
            ticket: Some(ticket),
            entries,
            owed,
            ..StoreCommand::default()
        });
    }

    /// Logs end there, on disk.
    pub(super) fn witness_tips(&self, tips: Vec<(NodeId, LogTip)>) {
        self.send_command(StoreCommand {
            tips,
            ..StoreCommand::default()
        });
    }

    /// The nodes of which two lives were found, all of them.
    pub(super) fn store_duplicates(&self, nodes: &BTreeSet<NodeId>) {
        let nodes = nodes.iter().map(|node| node.to_string().into_bytes());
        self.send_command(StoreCommand {
            duplicates: Some(nodes.collect()),
            ..StoreCommand::default()
        });
    }

    fn send_command(&self, order: StoreCommand) {
        // The task ends with its owner.
        let _ = self.commands.send(order);
    }

    /// Why nothing can be stored now.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.failure.borrow().clone()
    }
}

fn encode_owed(owed: &PendingRevoke) -> Option<Vec<u8>> {
    let entry = OwedEntry {
        revoke: owed.revoke.clone(),
        author: owed.author.clone(),
        told_at_ms: owed.requested_at_ms,
        context: owed.context.clone(),
    };
    // Plain words and numbers: it can always be written.
    serde_json::to_vec(&entry).ok()
}

async fn run_writer(
    journals: LogJournals,
    mut orders: mpsc::UnboundedReceiver<StoreCommand>,
    trouble: watch::Sender<Option<Arc<str>>>,
    actor: Mailbox<ReplicationMsg>,
    stay: u64,
) {
    let mut together = Vec::with_capacity(SYNC_BATCH);
    while orders.recv_many(&mut together, SYNC_BATCH).await > 0 {
        let ticket = together.iter().filter_map(|order| order.ticket).max();
        let entries = together.iter_mut();
        let entries: Vec<Vec<u8>> = entries
            .flat_map(|order| std::mem::take(&mut order.entries))
            .collect();
        let (mut owed, mut twice) = (None, None);
        for order in together.drain(..) {
            owed = order.owed.or(owed);
            twice = order.duplicates.or(twice);
            for (node, tip) in order.tips {
                let witness = journals
                    .witness
                    .sibling(format!("{TIP_WITNESS_PREFIX}{node}"));
                witness.settle(&format!("{} {}", tip.next, tip.id));
            }
        }
        // Until it is there, nothing is said of it; what a failed try left is cut off before the next.
        while !entries.is_empty() {
            match journals.logs.append_all(entries.clone()).await {
                Ok(()) => break,
                Err(error) => wait_for_disk(&trouble, &error, &journals.logs).await,
            }
        }
        for (journal, all) in [(&journals.owed, owed), (&journals.duplicates, twice)] {
            while let Some(all) = &all {
                match journal.replace(all.clone()).await {
                    Ok(()) => break,
                    Err(error) => wait_for_disk(&trouble, &error, journal).await,
                }
            }
        }
        trouble.send_if_modified(|why| why.take().is_some());
        let stored = ticket.map(|ticket| ReplicationMsg::Stored { stay, ticket });
        if stored.is_some_and(|stored| actor.send_to_self(stored).is_err()) {
            return;
        }
    }
}

async fn wait_for_disk(
    trouble: &watch::Sender<Option<Arc<str>>>,
    error: &AppendError,
    journal: &Journal,
) {
    let why: Arc<str> = format!("{}: {error}", journal.path().display()).into();
    tracing::error!(%why, "the logs of the cluster are not on disk");
    trouble.send_replace(Some(why));
    journal.health().wait_recovered().await;
    tokio::time::sleep(RETRY_DELAY).await;
}

impl LogsIdentity {
    pub(super) fn inviter(&self) -> Option<PublicKey> {
        self.inviter.map(PublicKey)
    }
}
