//! What the engine says and hears, as it stands on the wire.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::node_key::first_bad;
use mgp_engine::policy::grants::{ISSUERS_MAX, LogTip, OperationId, Signed};
use mgp_engine::replication::exchange::BATCH_ENTRIES;
use mgp_engine::replication::lease::Nonce;
use mgp_engine::replication::logs::{BehindDigest, LogHead, LogHeads};
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::federation::logs::{
    HeadHeld, HeldReason, LogEntries, LogHash, LogNonce, LogsHeld,
};
use mgp_protocol::federation::tool_index::RecordBytes;

use mgp_engine::replication::replica::LogMessage;

/// What is said of the logs that are held, or entries of them.
pub(super) enum LogWords {
    Held(LogsHeld),
    Entries(LogEntries),
}

impl LogWords {
    pub(super) fn of(message: LogMessage) -> Self {
        match message {
            LogMessage::Ask {
                life,
                nonce,
                heads,
                lease,
            } => Self::Held(LogsHeld {
                lease_ms: lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)),
                ..held(HeldReason::Ask, life, Some(nonce), &heads)
            }),
            LogMessage::Answer { life, nonce, heads } => {
                Self::Held(held(HeldReason::Answer, life, Some(nonce), &heads))
            }
            LogMessage::Tell { life, heads } => {
                Self::Held(held(HeldReason::Tell, life, None, &heads))
            }
            LogMessage::Entries(entries) => Self::Entries(carried(&entries)),
        }
    }
}

fn held(reason: HeldReason, life: LifeId, nonce: Option<Nonce>, heads: &LogHeads) -> LogsHeld {
    let heads = heads.iter().map(|(issuer, head)| HeadHeld {
        issuer: *issuer,
        next: head.tip.next,
        last: LogHash(head.tip.id.0),
        behind: head.behind.map(|behind| LogHash(behind.0)),
    });
    LogsHeld {
        reason,
        life,
        nonce: nonce.map(|nonce| LogNonce(nonce.0)),
        lease_ms: None,
        heads: heads.collect(),
    }
}

/// What a peer has said; None when it says nothing that can be meant.
pub(super) fn message(held: LogsHeld) -> Option<LogMessage> {
    if held.heads.len() > ISSUERS_MAX {
        return None;
    }
    let heads = held.heads.into_iter().map(|head| {
        let tip = LogTip {
            next: head.next,
            id: OperationId(head.last.0),
        };
        let behind = head.behind.map(|behind| BehindDigest(behind.0));
        (head.issuer, LogHead { tip, behind })
    });
    let heads: Arc<LogHeads> = Arc::new(heads.collect());
    let life = held.life;
    let nonce = held.nonce.map(|nonce| Nonce(nonce.0));
    match (held.reason, nonce) {
        (HeldReason::Ask, Some(nonce)) => Some(LogMessage::Ask {
            life,
            nonce,
            heads,
            lease: held.lease_ms.map(Duration::from_millis),
        }),
        (HeldReason::Answer, Some(nonce)) => Some(LogMessage::Answer { life, nonce, heads }),
        (HeldReason::Tell, _) => Some(LogMessage::Tell { life, heads }),
        (HeldReason::Ask | HeldReason::Answer, None) => None,
    }
}

fn carried(entries: &[Arc<[u8]>]) -> LogEntries {
    let entries = entries.iter().map(|entry| RecordBytes(entry.to_vec()));
    LogEntries {
        entries: entries.collect(),
    }
}

/// The entries whose signatures hold; of a message of more than one holds, none.
pub(super) fn verified(entries: impl ExactSizeIterator<Item = impl AsRef<[u8]>>) -> Vec<Signed> {
    if entries.len() > BATCH_ENTRIES {
        return Vec::new();
    }
    let read = entries.filter_map(|entry| Signed::from_bytes(entry.as_ref()).ok());
    let mut signed: Vec<Signed> = read.filter(|signed| signed.claim().is_some()).collect();
    let claims: Vec<_> = signed.iter().filter_map(Signed::claim).collect();
    if first_bad(&claims).is_some() {
        signed.retain(|signed| {
            let claim = signed.claim();
            claim.is_some_and(|claim| first_bad(&[claim]).is_none())
        });
    }
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FED-038: each question says for how long its answer is believed; older versions say nothing.
    #[test]
    fn a_question_carries_the_lease_and_none_of_an_older_version() {
        let asked = |lease| LogMessage::Ask {
            life: LifeId([1; 16]),
            nonce: Nonce([2; 16]),
            heads: Arc::default(),
            lease,
        };
        for (lease, lease_ms) in [(None, None), (Some(Duration::from_secs(90)), Some(90_000))] {
            let LogWords::Held(held) = LogWords::of(asked(lease)) else {
                panic!("a question says what is held");
            };
            assert_eq!(held.lease_ms, lease_ms);
            assert_eq!(message(held), Some(asked(lease)));
        }
    }
}
