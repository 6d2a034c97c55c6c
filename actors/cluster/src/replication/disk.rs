//! The logs on disk: all entries of this node in the order of their arrival, and the unsigned revocations.
//! An entry is reported as held only once it is on disk.

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

/// The journal of entries; its first record identifies the cluster.
const LOGS_JOURNAL: (&str, &str) = ("logs", "logs of a cluster");
/// The journal of revocations that are not signed yet.
const OWED_JOURNAL: (&str, &str) = ("owed", "owed revocations");
/// The journal of nodes of which two live instances were found.
const DUPLICATES_JOURNAL: (&str, &str) = ("twice", "nodes of which two lives were found");
/// The prefix of the witness names: one witness identifies the cluster, one for each log records its end,
/// and two are of the other files. A log is witnessed by its end, not by its file, because replication
/// brings entries in another order.
const WITNESS_PREFIX: &str = "cluster/logs/";
/// The witness of the cluster, named like the file.
pub(super) const LOGS_WITNESS: &str = "cluster/logs/logs";
/// The prefix of the witness names of log ends.
const TIP_WITNESS_PREFIX: &str = "cluster/logs/tip ";
/// Signatures that are verified in one batch.
const VERIFY_BATCH: usize = 1024;
/// Writes that share one sync.
const SYNC_BATCH: usize = 64;
/// The retry delay after a disk failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The first record of the journal: identifies the cluster of the entries.
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
    /// Missing in records of older builds.
    #[serde(default, skip_serializing_if = "CausalContext::is_empty")]
    context: CausalContext,
}

/// The opened logs of a cluster.
#[derive(Debug)]
pub(super) struct OpenedLogs {
    pub(super) owner: LogsIdentity,
    pub(super) signed: Vec<SignedOperation>,
    pub(super) owed: Vec<PendingRevoke>,
    pub(super) duplicates: BTreeSet<NodeId>,
    pub(super) journals: LogJournals,
    torn_tails: Vec<String>,
    /// The ends of the logs according to their witnesses.
    pub(super) tips: Vec<(NodeId, LogTip)>,
    /// Descriptions of losses that no other node can repair.
    pub(super) lost: Vec<String>,
    /// The folder was restored from a backup of this time, and other nodes have not confirmed the log
    /// since.
    pub(super) restored: Option<String>,
}

/// The result of loading the logs.
#[derive(Debug)]
pub struct LoadedLogs {
    pub(super) opened: Option<OpenedLogs>,
    /// Set if a witness exists without logs; a description for people.
    pub(super) missing: Option<String>,
}

/// The journal files.
#[derive(Clone, Debug)]
pub(super) struct LogJournals {
    logs: Journal,
    owed: Journal,
    duplicates: Journal,
    witness: Witness,
}

/// Why the logs cannot be used. The kernel does not start without them, because no other node may know a
/// revocation in them.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// A journal file cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A torn entry could not be truncated.
    #[error("{0}")]
    Truncate(#[from] AppendError),
    /// The finding could not be recorded in the audit log.
    #[error(transparent)]
    Record(#[from] AuditWriteError),
    /// An entry is invalid.
    #[error("{path}: entry {entry} {why}; put a copy of this file back that is whole")]
    Entry {
        /// The file.
        path: String,
        /// The number of the entry, from 1.
        entry: usize,
        /// The problem.
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

/// Opens the logs of the cluster that this node is in; None when it is in none. Reads and verifies all
/// entries; blocks.
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

/// Compares the log files with their witnesses while no kernel has them open, without changes; returns
/// descriptions of losses. Blocks.
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
    let ids: BTreeSet<(NodeId, u64, OperationId)> = entries
        .filter_map(|signed| {
            let signed = signed.ok()?;
            let written = signed.encoded();
            Some((written.issuer(), written.position().sequence, written.id()))
        })
        .collect();
    let is_missing = |(node, tip): &(NodeId, LogTip)| {
        let last = tip.next.checked_sub(1);
        last.is_some_and(|last| !ids.contains(&(*node, last, tip.id)))
    };
    let tips = witnessed_tips(witness).into_iter();
    lost.extend(tips.filter(is_missing).map(|(node, _)| {
        let path = path.display();
        format!(
            "{path} has been shortened: it held more of what {} wrote",
            node.short_id()
        )
    }));
    Ok(lost)
}

/// The ends of the logs according to their witnesses.
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

/// Describes the consequences of the loss of another file than the logs.
fn describe_loss(journal: &OpenedJournal, name: &str, means: &str) -> Option<String> {
    let shortened = journal.truncated.as_ref()?;
    Some(format!(
        "{shortened}: {means}, so agents of other nodes may do nothing here; put a copy of the file back and start the kernel again, or, to go on without what is lost, run `mgp down`, then `mgp accept {WITNESS_PREFIX}{name}`"
    ))
}

/// True if the logs contain a rekey of the node to this key that the node itself signed. Blocks; for a
/// start, before the logs are used.
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

/// Opens the three files, in the order of their constants.
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
    // Each entry is dropped once it is parsed: a long log is not in memory twice.
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
    /// Creates the journals of a new cluster session.
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

    /// Truncates torn entries.
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
    /// Creates the logs of a cluster, replacing those of another one.
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
            // In the same cluster the logs may be refilled by the entries that arrive now.
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

    /// The path of the logs.
    pub(super) fn path(&self) -> &Path {
        self.logs.path()
    }

    /// Records the cluster in the witness, once the logs are on disk.
    pub(super) fn witness_cluster(&self, owner: &LogsIdentity) {
        let witness = self.witness.sibling(LOGS_WITNESS);
        witness.settle(&owner.cluster.to_string());
    }

    /// Deletes the logs: from then on this node is in no cluster.
    pub(super) async fn forget_all(&self) -> Result<(), AppendError> {
        // Before the logs: no crash in between leaves a witness of logs that were deleted on purpose.
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

/// A write for the disk task.
#[derive(Default)]
struct StoreCommand {
    /// The ticket to report afterwards.
    ticket: Option<u64>,
    entries: Vec<Vec<u8>>,
    /// All unsigned revocations, replacing the earlier ones.
    owed: Option<Vec<Vec<u8>>>,
    duplicates: Option<Vec<Vec<u8>>>,
    /// The ends of logs on disk, to be witnessed.
    tips: Vec<(NodeId, LogTip)>,
}

/// Writes the records of the replica to disk, in order, in a task of its own.
#[derive(Debug)]
pub(super) struct LogWriter {
    commands: mpsc::UnboundedSender<StoreCommand>,
    failure: watch::Receiver<Option<Arc<str>>>,
    _task: SupervisedTask<()>,
}

impl LogWriter {
    pub(super) fn start(
        journals: LogJournals,
        actor: Mailbox<ReplicationMsg>,
        session: u64,
    ) -> Self {
        // Bounded by its owner, which accepts nothing more while too many writes are queued.
        let (commands, receiver) = mpsc::unbounded_channel();
        let (failure_sender, failure) = watch::channel(None);
        let task = task::spawn_supervised(
            "replication.write",
            run_writer(journals, receiver, failure_sender, actor, session),
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

    /// Witnesses the ends of logs on disk.
    pub(super) fn witness_tips(&self, tips: Vec<(NodeId, LogTip)>) {
        self.send_command(StoreCommand {
            tips,
            ..StoreCommand::default()
        });
    }

    /// Stores all nodes of which two live instances were found.
    pub(super) fn store_duplicates(&self, nodes: &BTreeSet<NodeId>) {
        let nodes = nodes.iter().map(|node| node.to_string().into_bytes());
        self.send_command(StoreCommand {
            duplicates: Some(nodes.collect()),
            ..StoreCommand::default()
        });
    }

    fn send_command(&self, command: StoreCommand) {
        // The task ends with its owner.
        let _ = self.commands.send(command);
    }

    /// The current disk failure, if any.
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
    // Strings and numbers only: serialization cannot fail.
    serde_json::to_vec(&entry).ok()
}

async fn run_writer(
    journals: LogJournals,
    mut orders: mpsc::UnboundedReceiver<StoreCommand>,
    trouble: watch::Sender<Option<Arc<str>>>,
    actor: Mailbox<ReplicationMsg>,
    session: u64,
) {
    let mut together = Vec::with_capacity(SYNC_BATCH);
    while orders.recv_many(&mut together, SYNC_BATCH).await > 0 {
        let ticket = together.iter().filter_map(|command| command.ticket).max();
        let entries = together.iter_mut();
        let entries: Vec<Vec<u8>> = entries
            .flat_map(|command| std::mem::take(&mut command.entries))
            .collect();
        let (mut owed, mut twice) = (None, None);
        for command in together.drain(..) {
            owed = command.owed.or(owed);
            twice = command.duplicates.or(twice);
            for (node, tip) in command.tips {
                let witness = journals
                    .witness
                    .sibling(format!("{TIP_WITNESS_PREFIX}{node}"));
                witness.settle(&format!("{} {}", tip.next, tip.id));
            }
        }
        // Nothing is reported until the write succeeds; a failed attempt is truncated before the next one.
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
        let stored = ticket.map(|ticket| ReplicationMsg::Stored { session, ticket });
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
    tracing::error!(%why, "the logs of the cluster could not be written to disk");
    trouble.send_replace(Some(why));
    journal.health().wait_recovered().await;
    tokio::time::sleep(RETRY_DELAY).await;
}

impl LogsIdentity {
    pub(super) fn inviter(&self) -> Option<PublicKey> {
        self.inviter.map(PublicKey)
    }
}
