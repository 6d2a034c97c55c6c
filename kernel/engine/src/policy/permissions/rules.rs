//! How the permissions of a server are decided, as its operator configured it.

use std::collections::BTreeSet;

use mgp_protocol::mgp::permission::{PermissionType, Policy};

/// How a server's permissions are decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionRules {
    /// The policy for permissions without a decision (§3.3).
    pub policy: Policy,
    /// Permissions the configuration approves, under each policy.
    pub configured: BTreeSet<PermissionType>,
    /// Permissions that are requested even under `auto_approve` (later drafts, §3.3).
    pub exceptions: BTreeSet<PermissionType>,
    /// Whether a server with a denied permission is not run at all (§8.1); otherwise it runs without it.
    pub all_or_nothing: bool,
}

impl Default for PermissionRules {
    /// The operator is asked, and a denial does not stop the server.
    fn default() -> Self {
        Self {
            policy: Policy::Interactive,
            configured: BTreeSet::new(),
            exceptions: BTreeSet::new(),
            all_or_nothing: false,
        }
    }
}
