//! Keys of operations, and ranges of them.

use std::ops::RangeInclusive;

use mgp_protocol::ids::NodeId;

use super::{GrantId, LogPosition, OperationId};

/// The operation that a grant stands in: a forked log has two for one place.
pub type GrantKey = (GrantId, LogPosition, OperationId);

/// Where an operation stands: a forked log has two in one place.
pub(super) type OperationKey = (LogPosition, OperationId);

/// Before every place, and behind.
const FIRST: LogPosition = LogPosition {
    issuer: NodeId([0; 32]),
    sequence: 0,
};
const LAST: LogPosition = LogPosition {
    issuer: NodeId([0xff; 32]),
    sequence: u64::MAX,
};

/// All operations in which a grant of this name stands.
pub(super) fn grant_keys(id: GrantId) -> RangeInclusive<GrantKey> {
    (id, FIRST, OperationId::START)..=(id, LAST, OperationId([0xff; 32]))
}

/// All revocations that name it.
pub(super) fn revoke_keys(id: GrantId) -> RangeInclusive<(GrantId, OperationKey)> {
    let last = OperationId([0xff; 32]);
    (id, (FIRST, OperationId::START))..=(id, (LAST, last))
}
