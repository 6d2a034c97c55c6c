//! The condition of a logged grant, compiled at most once, however many tables are made.

use std::sync::{Arc, OnceLock};

use mgp_screening::conditions::Condition;

use super::{Grant, LoggedGrant};

/// A place for the compiled condition. All copies of a grant share it.
#[derive(Clone, Debug, Default)]
pub(super) struct CompiledCondition(Option<Arc<OnceLock<Condition>>>);

impl CompiledCondition {
    pub(super) fn for_grant(grant: &Grant) -> Self {
        Self(grant.when.is_some().then(Arc::default))
    }
}

/// It follows from the grant.
impl PartialEq for CompiledCondition {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CompiledCondition {}

impl LoggedGrant {
    /// Its condition, if it has one. One that this build cannot read never holds.
    #[must_use]
    pub(crate) fn condition(&self) -> Option<Condition> {
        let text = self.grant.when.as_deref()?;
        let compile = || Condition::compile_or_closed(text);
        match &self.condition.0 {
            Some(compiled) => Some(compiled.get_or_init(compile).clone()),
            None => Some(compile()),
        }
    }
}
