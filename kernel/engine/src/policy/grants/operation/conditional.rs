//! Conditions of grants, as logged.
//!
//! An entry with a condition has a kind of its own (`conditional_grant`), whether or not it has a pattern as well: a
//! build that does not know it denies what its issuer allowed.

use mgp_protocol::mgp::access::Permission;
use mgp_screening::conditions::CONDITION_MAX;

use super::{BadOperation, Grant, GrantResource, Subject};

/// The kind of an entry with a condition.
pub(in crate::policy::grants) const CONDITIONAL_KIND: &str = "conditional_grant";

impl Grant {
    /// True when it allows only on a condition.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        self.when.is_some()
    }

    /// True when an entry with it is of a kind that the first builds do not know.
    #[must_use]
    pub(crate) fn has_own_kind(&self) -> bool {
        self.is_conditional() || self.is_pattern() || self.has_group()
    }

    /// Checks where a condition stands, not what it says: later builds read more conditions than this one.
    pub(super) fn check_condition(&self) -> Result<(), BadOperation> {
        let Some(when) = &self.when else {
            return Ok(());
        };
        if !(1..=CONDITION_MAX).contains(&when.len()) {
            return Err(BadOperation::ConditionLength);
        }
        match (&self.subject, &self.resource, self.permission) {
            (Subject::Server(_), ..)
            | (_, GrantResource::Permission(_) | GrantResource::Group(_), _)
            | (.., Permission::Deny) => Err(BadOperation::ConditionOnDenial),
            (
                Subject::Agent(_) | Subject::AgentsAt(_) | Subject::AgentEverywhere(_),
                GrantResource::Server(_) | GrantResource::Tool(..) | GrantResource::Tools(..),
                Permission::Allow,
            ) => Ok(()),
        }
    }
}
