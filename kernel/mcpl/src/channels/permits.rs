//! Who may publish to a channel, and who may observe it (MCPL §14.5).
//!
//! No message of §14 names a feature set: a channel is open where an enabled set that uses it lets its id
//! through. A set without scopes lets through what its blacklist does not name.

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::feature_sets::Capability;

use crate::feature_sets::{AgentSets, HeldSet, ServerSets};
use crate::names;
use crate::scopes::{ScopeVerdict, narrowed};

/// The channel in which a model thinks: it is observed by who may, and nobody publishes there.
pub const THINKING: &str = "thinking";
/// The person's own screen: no server has it.
pub const UI: &str = "ui";
/// The set that observes [`THINKING`], by the last words of its name.
const THINKING_SET: &str = "channels.thinking";

/// True for the channels that belong to no server.
#[must_use]
pub fn is_pseudo(channel: &str) -> bool {
    channel == THINKING || channel == UI
}

/// The set of a server that lets this be done at a channel, by the server's own id of it; `None` where none does.
#[must_use]
pub fn permitted<'a>(sets: &'a ServerSets, uses: Capability, channel: &str) -> Option<&'a str> {
    if uses == Capability::ChannelsPublish && is_pseudo(channel) {
        return None;
    }
    let open = sets.using(uses).find(|(name, held)| {
        let thinks = *name == THINKING_SET || name.ends_with(".channels.thinking");
        // That set sees nothing else, and nobody else sees that.
        thinks == (channel == THINKING) && lets_through(held, channel)
    });
    open.map(|(name, _)| name)
}

fn lets_through(held: &HeldSet, channel: &str) -> bool {
    match held.scope.judge(channel) {
        ScopeVerdict::Approved(_) => true,
        ScopeVerdict::Denied(_) => false,
        ScopeVerdict::Undecided(_) => !held.set.scoped && held.scope.whitelist.is_empty(),
    }
}

/// What an agent lets through of that.
#[must_use]
pub fn wanted(agent: &AgentSets, server: &ServerId, set: &str, channel: &str) -> bool {
    let name = names::set(server, set);
    let scopes = agent.scopes(&name);
    agent.wants(&name) && scopes.is_none_or(|scopes| narrowed(channel, scopes))
}
