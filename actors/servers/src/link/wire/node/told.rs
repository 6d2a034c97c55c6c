//! What a caller is told where the other node, or the way to it, is why its request was not done.

use std::time::Duration;

use mgp_protocol::federation::call::CallRefused;
use mgp_protocol::jsonrpc::INVALID_PARAMS;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::refusal::mgp::Code;
use serde_json::value::RawValue;

use super::{NodeRequest, NodeWire};
use crate::link::{Link, code};

impl NodeWire {
    /// Nothing of the request was sent.
    pub(super) fn away(&self, link: &Link) -> Refusal {
        not_done(link, format!("{} is away: it is not linked now", self.node))
    }

    pub(super) fn overdue(&self, link: &Link, limit: Duration) -> Refusal {
        Refusal::TimedOut {
            server: link.server.clone(),
            after_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            remote: true,
        }
    }

    /// The owner's own answer. Each says as much of whether the call took effect as the node does
    /// ([`CallRefused::outcome`]).
    pub(super) fn refused(&self, link: &Link, refused: &CallRefused) -> Refusal {
        let node = &self.node;
        match refused {
            CallRefused::AnswerTooLarge { limit, .. } => Refusal::TooLarge {
                server: link.server.clone(),
                limit: *limit,
            },
            CallRefused::CallTooLarge { .. } => Refusal::BadRequest(refused.to_string()),
            CallRefused::Busy => Refusal::Overloaded {
                what: format!("the list of calls under way at {node}"),
            },
            CallRefused::Late => not_done(link, refused.to_string()),
            CallRefused::UnknownAssertion
            | CallRefused::BadAssertion { .. }
            | CallRefused::TooManyHops
            | CallRefused::Malformed { .. } => Refusal::Forbidden(format!("{node}: {refused}")),
            CallRefused::Unknown => link.lost(&refused.to_string()),
        }
    }

    /// The error of the server, or of its owner. A tool that the owner shares and says not to know is one that
    /// is not open to the agent: who is shown it here may know that.
    pub(super) fn of_owner(&self, link: &Link, request: &NodeRequest<'_>, error: &[u8]) -> Refusal {
        let raw = std::str::from_utf8(error).ok();
        let raw = raw.and_then(|text| RawValue::from_string(text.to_owned()).ok());
        let Some(raw) = raw else {
            return link.faulty("its error cannot be read");
        };
        let codes = [INVALID_PARAMS, Code::ToolNotFound.number()];
        let unknown = code(raw.get()).is_some_and(|code| codes.contains(&code))
            && raw.get().contains("Unknown tool");
        let tool = request.tool.as_deref().filter(|_| unknown);
        match (tool, &request.agent) {
            (Some(tool), Some(agent)) if self.holds(tool) => Refusal::Closed(format!(
                "{agent} may not call tool {tool} of server {}: no grant allows it at {}, which decides; a grant \
                 for this agent opens it (`mgp grant`)",
                link.server, self.node
            )),
            _ => Refusal::Peer(raw),
        }
    }

    fn holds(&self, tool: &str) -> bool {
        self.held()
            .is_some_and(|held| held.tools.contains_key(tool))
    }
}

/// The request did not reach the server.
fn not_done(link: &Link, why: String) -> Refusal {
    Refusal::NotReady {
        server: link.server.clone(),
        state: "disconnected",
        reason: Some(why),
        retry_after_ms: None,
        unreachable: true,
    }
}
