//! `[mcpl]` of the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_protocol::ids::ServerId;

use crate::channels::rules::ChannelRules;
use crate::hooks::HookPolicy;
use crate::inference::InferenceRules;
use crate::policy::McplServerRules;
use crate::push::PushPolicy;
use crate::state::rules::StateRules;

/// Default time for a person to decide about a scope.
const SCOPE_PATIENCE: Duration = Duration::from_secs(120);

/// `[mcpl]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McplRules {
    /// `[mcpl.servers.*]`, by the server's id.
    pub servers: BTreeMap<ServerId, McplServerRules>,
    /// Time for a person to decide about a scope; then it is denied.
    pub scope_patience: Duration,
    /// `[mcpl.inference]` and `[mcpl.providers.*]`.
    pub inference: InferenceRules,
    /// `[mcpl.state]`.
    pub state: StateRules,
    /// `[mcpl.channels]`.
    pub channels: ChannelRules,
    /// `[mcpl.push]`.
    pub push: PushPolicy,
    /// `[mcpl.hooks]`.
    pub hooks: HookPolicy,
}

impl Default for McplRules {
    fn default() -> Self {
        Self {
            servers: BTreeMap::new(),
            scope_patience: SCOPE_PATIENCE,
            inference: InferenceRules::default(),
            state: StateRules::default(),
            channels: ChannelRules::default(),
            push: PushPolicy::default(),
            hooks: HookPolicy::default(),
        }
    }
}
