//! Policies: access control, permissions of servers, pins of tools, and approvals.

mod access;
mod approvals;
mod permissions;
mod pins;

// Access control: holds the grants and records decisions about them.
pub use self::access::{AccessActor, AccessHandle, AccessMsg, GrantQuery, GrantStore};

// Entries that wait for the operator.
pub use self::approvals::{
    ApprovalsHandle, Decider, OperatorAnswer, PendingEntryGuard, escape_for_display, kernel_owner,
    render_resource,
};

// The permission gates of servers (MGP §3): what each server may do, and what is undecided.
pub use self::permissions::{GateLease, GateListener, GateMessage, PermissionsHandle};

// Pins of tool definitions on disk: one file for each server, read when the server first lists its tools.
pub use self::pins::{EarlierSet, LastLists, PinsHandle};
