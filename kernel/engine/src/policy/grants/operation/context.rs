//! What the issuer of an operation knew of the other logs.

use std::collections::BTreeMap;

use mgp_protocol::ids::NodeId;
use serde::{Deserialize, Serialize};

use super::{ISSUERS_MAX, LogPosition, OperationId};

/// Most operations that a context names individually. They come after the fork of a log or a gap in it, and each
/// revokes something in the scope of one grant: a person makes them one at a time.
pub(in crate::policy::grants) const BRANCHES_NAMED_MAX: usize = 64;

/// What the issuer of an operation knew of the other logs, as far as conflicts depend on it. It knew its own log up
/// to that operation. Without a context, as in operations of older builds, it knew its own log alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CausalContext {
    /// How many operations of each log, from the first one on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub logs: BTreeMap<NodeId, u64>,
    /// Single operations beyond these, in logs that are forked or have gaps: a number is not enough for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) branches: Vec<OperationId>,
}

impl CausalContext {
    /// True when it names nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.branches.is_empty()
    }

    /// Whether it names no more than possible: each log that it names takes space in an index.
    pub(in crate::policy::grants) fn is_bounded(&self) -> bool {
        self.logs.len() <= ISSUERS_MAX && self.branches.len() <= BRANCHES_NAMED_MAX
    }

    /// How many operations of a log were known to the issuer of the operation at `place`.
    pub(in crate::policy::grants) fn known_len(&self, log: NodeId, place: LogPosition) -> u64 {
        let named = self.logs.get(&log).copied();
        if log == place.issuer {
            named.map_or(place.sequence, |named| named.min(place.sequence))
        } else {
            named.unwrap_or(0)
        }
    }
}
