//! The wire format of the engine's messages.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::node_key::find_invalid_signature;
use mgp_engine::policy::grants::{ISSUERS_MAX, LogTip, OperationId, SignedOperation};
use mgp_engine::replication::lease::Nonce;
use mgp_engine::replication::log_batch::BATCH_ENTRIES;
use mgp_engine::replication::logs::{BehindDigest, LogHead, LogHeads};
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::federation::logs::{
    LogDigest, LogEntries, LogHash, LogNonce, LogsDigest, LogsDigestReason,
};
use mgp_protocol::federation::tool_index::RecordBytes;

use mgp_engine::replication::replica::LogMessage;

/// A log message on the wire: a digest of held logs, or entries.
pub(super) enum WireMessage {
    Held(LogsDigest),
    Entries(LogEntries),
}

impl WireMessage {
    pub(super) fn from_message(message: LogMessage) -> Self {
        match message {
            LogMessage::Request {
                instance: life,
                nonce,
                heads,
                lease,
            } => Self::Held(LogsDigest {
                lease_ms: lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)),
                ..to_logs_digest(LogsDigestReason::Ask, life, Some(nonce), &heads)
            }),
            LogMessage::Response {
                instance: life,
                nonce,
                heads,
            } => Self::Held(to_logs_digest(
                LogsDigestReason::Answer,
                life,
                Some(nonce),
                &heads,
            )),
            LogMessage::Announce {
                instance: life,
                heads,
            } => Self::Held(to_logs_digest(LogsDigestReason::Tell, life, None, &heads)),
            LogMessage::Entries(entries) => Self::Entries(to_entries(&entries)),
        }
    }
}

fn to_logs_digest(
    reason: LogsDigestReason,
    life: LifeId,
    nonce: Option<Nonce>,
    heads: &LogHeads,
) -> LogsDigest {
    let heads = heads.iter().map(|(issuer, head)| LogDigest {
        issuer: *issuer,
        next: head.tip.next,
        last: LogHash(head.tip.id.0),
        behind: head.behind.map(|behind| LogHash(behind.0)),
    });
    LogsDigest {
        reason,
        life,
        nonce: nonce.map(|nonce| LogNonce(nonce.0)),
        lease_ms: None,
        heads: heads.collect(),
    }
}

/// Parses a peer's digest; None if it is invalid.
pub(super) fn parse_digest(held: LogsDigest) -> Option<LogMessage> {
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
        (LogsDigestReason::Ask, Some(nonce)) => Some(LogMessage::Request {
            instance: life,
            nonce,
            heads,
            lease: held.lease_ms.map(Duration::from_millis),
        }),
        (LogsDigestReason::Answer, Some(nonce)) => Some(LogMessage::Response {
            instance: life,
            nonce,
            heads,
        }),
        (LogsDigestReason::Tell, _) => Some(LogMessage::Announce {
            instance: life,
            heads,
        }),
        (LogsDigestReason::Ask | LogsDigestReason::Answer, None) => None,
    }
}

fn to_entries(entries: &[Arc<[u8]>]) -> LogEntries {
    let entries = entries.iter().map(|entry| RecordBytes(entry.to_vec()));
    LogEntries {
        entries: entries.collect(),
    }
}

/// Verifies the entries of a message; all are rejected if one signature is invalid.
pub(super) fn verify_entries(
    entries: impl ExactSizeIterator<Item = impl AsRef<[u8]>>,
) -> Vec<SignedOperation> {
    if entries.len() > BATCH_ENTRIES {
        return Vec::new();
    }
    let read = entries.filter_map(|entry| SignedOperation::from_bytes(entry.as_ref()).ok());
    let mut signed: Vec<SignedOperation> = read
        .filter(|signed| signed.signature_claim().is_some())
        .collect();
    let claims: Vec<_> = signed
        .iter()
        .filter_map(SignedOperation::signature_claim)
        .collect();
    if find_invalid_signature(&claims).is_some() {
        signed.retain(|signed| {
            let claim = signed.signature_claim();
            claim.is_some_and(|claim| find_invalid_signature(&[claim]).is_none())
        });
    }
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FED-038: each request carries the duration of its lease; older versions carry none.
    #[test]
    fn digest_carries_the_lease_except_in_older_versions() {
        let asked = |lease| LogMessage::Request {
            instance: LifeId([1; 16]),
            nonce: Nonce([2; 16]),
            heads: Arc::default(),
            lease,
        };
        for (lease, lease_ms) in [(None, None), (Some(Duration::from_secs(90)), Some(90_000))] {
            let WireMessage::Held(held) = WireMessage::from_message(asked(lease)) else {
                panic!("a question says what is held");
            };
            assert_eq!(held.lease_ms, lease_ms);
            assert_eq!(parse_digest(held), Some(asked(lease)));
        }
    }
}
