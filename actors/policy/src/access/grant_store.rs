//! The grants on disk: read, verified and combined at startup.

use std::path::Path;

use mgp_engine::node_key::{NodeKey, SignatureClaim, find_invalid_signature};
use mgp_engine::policy::grants::{
    ApplyOutcome, Authority, Grants, Operation, SignedOperation, rekey,
};
use mgp_protocol::ids::NodeId;

use mgp_store::journal::{Journal, TruncatedJournal};
use mgp_store::{DiskHealth, Witness, journal};

/// The kind of journal, in its first entry.
const JOURNAL_KIND: &str = "grants";

/// All decisions and their journal.
#[derive(Debug)]
pub struct GrantStore {
    pub(super) journal: Journal,
    pub(super) grants: Grants,
    pub(super) key: NodeKey,
    pub(super) authority: Authority,
    /// All operations of the journal, in order.
    operations: Vec<Operation>,
    torn_tail: Option<String>,
    shortened: Option<TruncatedJournal>,
}

/// Why the grants cannot be used. The kernel does not start without them: a lost denial would allow access.
#[derive(Debug, thiserror::Error)]
pub enum GrantStoreError {
    /// The journal itself.
    #[error(transparent)]
    Journal(#[from] journal::JournalError),
    /// Entries are missing.
    #[error(
        "{0}. The missing entries were acknowledged and may include denials: restore an intact copy of the file; or, to continue without them, run `mgp accept grants.journal`"
    )]
    Shortened(#[from] TruncatedJournal),
    /// Writing it under another key failed.
    #[error(transparent)]
    RekeyFailed(#[from] journal::AppendError),
    /// An entry that no kernel writes.
    #[error("{path}: entry {entry} {why}; restore an intact copy of this file")]
    Entry {
        /// The file.
        path: String,
        /// Counted from 1.
        entry: usize,
        /// The defect.
        why: String,
    },
    /// This node's key is not the one that signed the journal.
    #[error(
        "{path} was signed by node {signer}, and node.key next to it is the key of node {here}: put the right node.key back; or, to start without grants and denials, move both files away"
    )]
    Foreign {
        /// The file.
        path: String,
        /// The node that signed it.
        signer: NodeId,
        /// The node of the current key.
        here: NodeId,
    },
}

impl GrantStore {
    /// Opens the grants of this node: reads and verifies all of them; blocks.
    ///
    /// # Errors
    /// [`GrantStoreError`], for the person who starts the kernel.
    pub fn open(path: &Path, key: NodeKey) -> Result<Self, GrantStoreError> {
        Self::open_witnessed(path, key, Witness::default())
    }

    /// Opens the grants and compares them with their witness.
    ///
    /// # Errors
    /// [`GrantStoreError`].
    pub fn open_witnessed(
        path: &Path,
        key: NodeKey,
        witness: Witness,
    ) -> Result<Self, GrantStoreError> {
        let opened = Journal::open_witnessed(path, JOURNAL_KIND, witness)?;
        let (grants, operations) = replay_entries(path, &opened.entries, &key)?;
        let here = key.node_id();
        Ok(Self {
            journal: opened.journal,
            grants,
            authority: Authority::with_local_issuer(here),
            key,
            operations,
            torn_tail: opened.torn_tail,
            shortened: opened.truncated,
        })
    }

    /// The grants on disk while a kernel runs. Verifies all of them; blocks.
    ///
    /// # Errors
    /// [`GrantStoreError`].
    pub(super) fn read_current(path: &Path, key: &NodeKey) -> Result<Grants, GrantStoreError> {
        let entries = Journal::read(path, JOURNAL_KIND)?;
        replay_entries(path, &entries, key).map(|(grants, _)| grants)
    }

    /// Reads and validates a journal without changing it; returns its number of entries. Blocks.
    ///
    /// # Errors
    /// The defect, as text.
    pub fn examine(path: &Path) -> Result<usize, String> {
        let entries = Journal::read(path, JOURNAL_KIND).map_err(|e| e.to_string())?;
        Ok(entries.len())
    }

    /// Signs the journal again with another key of the node. Does nothing if that key already signed it.
    ///
    /// # Errors
    /// [`GrantStoreError`]; the journal is unchanged then.
    pub async fn rekey(
        path: &Path,
        before: &NodeKey,
        key: &NodeKey,
        witness: Witness,
    ) -> Result<(), GrantStoreError> {
        let opened = Journal::open_witnessed(path, JOURNAL_KIND, witness)?;
        if let Some(shortened) = opened.truncated {
            return Err(shortened.into());
        }
        let last = opened.entries.last();
        let last = last.and_then(|entry| SignedOperation::from_bytes(entry).ok());
        if last.is_none_or(|signed| signed.encoded().issuer() == key.node_id()) {
            return Ok(());
        }
        let (_, operations) = replay_entries(path, &opened.entries, before)?;
        let signed = rekey(operations, before.node_id(), key);
        let entries = signed.iter().map(SignedOperation::to_bytes).collect();
        Ok(opened.journal.replace(entries).await?)
    }

    /// The error if entries of the journal are missing: the kernel does not start then.
    #[must_use]
    pub fn shortened_error(&self) -> Option<GrantStoreError> {
        self.shortened.clone().map(GrantStoreError::Shortened)
    }

    /// Compares the journal with its witness while no kernel has it open, and changes neither; blocks.
    ///
    /// # Errors
    /// [`GrantStoreError`], also when entries are missing.
    pub fn compare(path: &Path, witness: &Witness) -> Result<(), GrantStoreError> {
        match Journal::compare(path, JOURNAL_KIND, witness)? {
            Some(shortened) => Err(shortened.into()),
            None => Ok(()),
        }
    }

    /// Whether the journal can be written.
    #[must_use]
    pub fn disk_health(&self) -> DiskHealth {
        self.journal.health()
    }

    /// Describes the incomplete last entry, which startup truncates.
    #[must_use]
    pub fn torn_tail(&self) -> Option<&str> {
        self.torn_tail.as_deref()
    }

    /// All decisions.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// The keys whose operations count.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The operations from this sequence number on. Drops all of them, because only startup needs them.
    #[must_use]
    pub(crate) fn take_operations(&mut self, from: u64) -> Vec<Operation> {
        let mut all = std::mem::take(&mut self.operations);
        all.retain(|operation| operation.place.sequence >= from);
        all
    }
}

/// Combines the entries of a journal into grants.
fn replay_entries(
    path: &Path,
    entries: &[Vec<u8>],
    key: &NodeKey,
) -> Result<(Grants, Vec<Operation>), GrantStoreError> {
    let path_text = path.display().to_string();
    let bad = |index: usize, why: String| GrantStoreError::Entry {
        path: path_text.clone(),
        entry: index + 1,
        why,
    };
    let signed = entries.iter().enumerate().map(|(index, entry)| {
        let signed = SignedOperation::from_bytes(entry);
        signed.map_err(|error| bad(index, format!("cannot be read: {error}")))
    });
    let signed: Vec<SignedOperation> = signed.collect::<Result<_, _>>()?;
    verify_signatures(&signed)
        .map_err(|index| bad(index, "is not signed by the node it names".into()))?;
    let here = key.node_id();
    let mut grants = Grants::default();
    for (index, written) in signed.iter().map(SignedOperation::encoded).enumerate() {
        let signer = written.issuer();
        if signer != here {
            let path = path_text.clone();
            return Err(GrantStoreError::Foreign { path, signer, here });
        }
        let operation = written.operation();
        if operation.cluster.is_some() || operation.change.grants().is_none() {
            return Err(bad(
                index,
                "is of a kind that this kernel does not know".into(),
            ));
        }
        match grants.apply(written) {
            Ok(ApplyOutcome::Appended) => {}
            Ok(other) => return Err(bad(index, format!("is not the next one ({other:?})"))),
            Err(error) => return Err(bad(index, format!("cannot be applied: {error}"))),
        }
    }
    let operations = signed.into_iter();
    let operations = operations.map(|signed| signed.into_encoded().into_operation());
    Ok((grants, operations.collect()))
}

/// The index of the first entry with an invalid signature.
fn verify_signatures(signed: &[SignedOperation]) -> Result<(), usize> {
    let mut claims: Vec<SignatureClaim> = Vec::with_capacity(signed.len());
    for (index, signed) in signed.iter().enumerate() {
        claims.push(signed.signature_claim().ok_or(index)?);
    }
    find_invalid_signature(&claims).map_or(Ok(()), Err)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use mgp_engine::policy::grants::{
        CausalContext, GrantChange, GrantId, LogChange, LogPosition, OperationId, Revoke,
    };

    use super::*;

    fn operation(key: &NodeKey, sequence: u64, previous: OperationId) -> Operation {
        Operation {
            cluster: None,
            place: LogPosition {
                issuer: key.node_id(),
                sequence,
            },
            previous,
            author: "operator".into(),
            told_at_ms: 1,
            change: LogChange::Grants(GrantChange::Revoke(Revoke::Ids(vec![GrantId([1; 16])]))),
            context: CausalContext::default(),
        }
    }

    async fn journal(path: &Path, entries: &[SignedOperation]) {
        let opened = Journal::open(path, JOURNAL_KIND).unwrap();
        let entries = entries.iter().map(SignedOperation::to_bytes).collect();
        opened.journal.append_all(entries).await.unwrap();
    }

    /// An intact entry that the node's key did not sign.
    #[tokio::test]
    async fn entry_not_signed_by_the_nodes_key_prevents_startup() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grants.journal");
        let (key, other) = (NodeKey::new(&[1; 32]), NodeKey::new(&[2; 32]));
        let first = SignedOperation::new(operation(&key, 0, OperationId::START), &key);
        let second = operation(&key, 1, first.encoded().id());
        // Signed by another key, but with this node's key as the issuer.
        let forged =
            SignedOperation::with_signature(second, key.public_key(), |bytes| other.sign(bytes));
        journal(&path, &[first, forged]).await;
        let why = GrantStore::open(&path, key).unwrap_err().to_string();
        assert!(why.contains("entry 2 is not signed by the node"), "{why}");

        let path = dir.path().join("other.journal");
        let foreign = operation(&other, 0, OperationId::START);
        journal(&path, &[SignedOperation::new(foreign, &other)]).await;
        let why = GrantStore::open(&path, NodeKey::new(&[1; 32])).unwrap_err();
        assert!(matches!(why, GrantStoreError::Foreign { .. }), "{why}");
        let mut store = GrantStore::open(&path, other).unwrap();
        assert_eq!(store.take_operations(0).len(), 1);
    }

    /// FEDERATION, keys: rekeying keeps a node's own grants, also when it is repeated.
    #[tokio::test]
    async fn rekeying_keeps_the_operations() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grants.journal");
        let (before, key) = (NodeKey::new(&[1; 32]), NodeKey::new(&[2; 32]));
        let first = SignedOperation::new(operation(&before, 0, OperationId::START), &before);
        let second = operation(&before, 1, first.encoded().id());
        journal(&path, &[first, SignedOperation::new(second, &before)]).await;
        for _ in 0..2 {
            let witness = Witness::default();
            GrantStore::rekey(&path, &before, &key, witness)
                .await
                .unwrap();
            let mut store = GrantStore::open(&path, key.clone()).unwrap();
            let operations = store.take_operations(0);
            let places: Vec<_> = operations.iter().map(|it| it.place).collect();
            let issuer = key.node_id();
            let place = |sequence| LogPosition { issuer, sequence };
            assert_eq!(places, [place(0), place(1)]);
        }
        let why = GrantStore::open(&path, before.clone()).unwrap_err();
        assert!(matches!(why, GrantStoreError::Foreign { .. }), "{why}");
        let stranger = NodeKey::new(&[3; 32]);
        let rekeyed = GrantStore::rekey(&path, &before, &stranger, Witness::default());
        assert!(rekeyed.await.is_err());
    }
}
