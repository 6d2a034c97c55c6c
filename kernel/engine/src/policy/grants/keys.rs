//! Keys of operations, and ranges of them.

use std::ops::RangeInclusive;

use mgp_protocol::ids::NodeId;

use super::{GrantId, LogPosition, OperationId};

/// The operation that contains a grant: a forked log has two for one position.
pub(crate) type GrantKey = (GrantId, LogPosition, OperationId);

/// The position and id of an operation: a forked log has two in one position.
pub(super) type OperationKey = (LogPosition, OperationId);

/// The lowest position, and the highest.
const FIRST: LogPosition = LogPosition {
    issuer: NodeId([0; 32]),
    sequence: 0,
};
const LAST: LogPosition = LogPosition {
    issuer: NodeId([0xff; 32]),
    sequence: u64::MAX,
};

/// All operations that contain a grant with this id.
pub(super) fn grant_keys(id: GrantId) -> RangeInclusive<GrantKey> {
    (id, FIRST, OperationId::START)..=(id, LAST, OperationId([0xff; 32]))
}

/// All revocations that name it.
pub(super) fn revoke_keys(id: GrantId) -> RangeInclusive<(GrantId, OperationKey)> {
    let last = OperationId([0xff; 32]);
    (id, (FIRST, OperationId::START))..=(id, (LAST, last))
}
