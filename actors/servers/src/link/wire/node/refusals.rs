//! Refusals of requests that failed at the other node, or on the way to it.

use std::time::Duration;

use mgp_cluster::CALLS_PER_AGENT;
use mgp_cluster::links::PeerLink;
use mgp_protocol::federation::call::CallRejection;
use mgp_protocol::federation::hello::WireFeatures;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::refusal::owner_refusal::{OwnerRefusal, OwnerRefusalCause};
use mgp_protocol::refusal::{CallOutcome, Refusal};
use serde_json::value::RawValue;

use super::{NodeRequest, NodeWire};
use crate::link::Link;

impl NodeWire {
    /// The refusal if nothing of the request was sent.
    pub(super) fn unavailable_refusal(&self, link: &Link) -> Refusal {
        let links = self.links.load();
        let why = if links.shut_down.contains_key(&self.server.node) {
            format!("{} was shut down", self.node)
        } else {
            format!("{} is away: it is not linked now", self.node)
        };
        not_sent_refusal(link, why)
    }

    /// The refusal if the agent's calls at the node are at their limit, and none ended before the deadline.
    /// Nothing was sent.
    pub(super) fn overloaded_refusal(&self, request: &NodeRequest<'_>) -> Refusal {
        let agent = request.agent.as_ref().map(ToString::to_string);
        Refusal::Overloaded {
            what: format!(
                "the list of {CALLS_PER_AGENT} calls that {} has under way at {}",
                agent.unwrap_or_default(),
                self.node
            ),
        }
    }

    pub(super) fn timeout_refusal(&self, link: &Link, limit: Duration) -> Refusal {
        Refusal::TimedOut {
            server: link.server.clone(),
            after_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            remote: true,
        }
    }

    /// The refusal for the owner's rejection. Each states the outcome of the call as the node reported it
    /// ([`CallRejection::outcome`]).
    pub(super) fn refusal_from_owner(&self, link: &Link, refused: &CallRejection) -> Refusal {
        let node = &self.node;
        match refused {
            CallRejection::AnswerTooLarge { limit, .. } => Refusal::TooLarge {
                server: link.server.clone(),
                limit: *limit,
            },
            CallRejection::CallTooLarge { .. } => Refusal::BadRequest(refused.to_string()),
            CallRejection::Busy => Refusal::Overloaded {
                what: format!("the list of calls under way at {node}"),
            },
            CallRejection::Late | CallRejection::ShuttingDown => {
                not_sent_refusal(link, refused.to_string())
            }
            CallRejection::UnknownAssertion
            | CallRejection::BadAssertion { .. }
            | CallRejection::TooManyHops
            | CallRejection::Malformed { .. } => Refusal::Forbidden(format!("{node}: {refused}")),
            CallRejection::Unknown => link.lost_refusal(&refused.to_string()),
        }
    }

    /// The refusal for an error frame: the server's own error, unchanged. A node of an older version also sends
    /// its kernel's refusals this way; they cannot be told apart.
    pub(super) fn refusal_from_error_frame(
        &self,
        link: &Link,
        peer: &PeerLink,
        error: &[u8],
    ) -> Refusal {
        let raw = std::str::from_utf8(error).ok();
        let raw = raw.and_then(|text| RawValue::from_string(text.to_owned()).ok());
        match (raw, has_refusal_frames(peer)) {
            (None, _) => link.invalid_answer_refusal("its error cannot be read"),
            (Some(raw), true) => Refusal::Peer(raw),
            (Some(raw), false) => Refusal::Unattributed(raw),
        }
    }

    /// Translates a refusal of the owner's kernel. A tool that is shared but unknown to the agent there lacks a
    /// grant; agents that see the tool here may know that.
    pub(super) fn translate_owner_refusal(
        &self,
        link: &Link,
        peer: &PeerLink,
        request: &NodeRequest<'_>,
        refusal: OwnerRefusal,
    ) -> Refusal {
        if !has_refusal_frames(peer) {
            return link.invalid_answer_refusal("its node sent a frame that was not negotiated");
        }
        let unknown = refusal.cause == OwnerRefusalCause::NotFound
            && refusal.outcome == CallOutcome::NotExecuted;
        let tool = request.tool.as_deref().filter(|_| unknown);
        match (tool, &request.agent) {
            (Some(tool), Some(agent)) if self.lists_tool(tool) => Refusal::ClosedByOwner(format!(
                "{agent} may not call tool {tool} of server {}: no grant allows it at {}, which decides; a grant opens \
                  it, {}",
                link.server,
                self.node,
                self.grant_command(agent),
            )),
            _ => Refusal::Owner(Box::new(refusal)),
        }
    }

    /// The full command that grants this agent access, and where to run it: only admins sign grants.
    fn grant_command(&self, agent: &AgentId) -> String {
        let links = self.links.load();
        let here = links.local_name.as_ref().map(ToString::to_string);
        let here = here.unwrap_or_else(|| "THIS-NODE".to_owned());
        let signs = match (
            links.admins.contains(&self.server.node),
            links.admins.is_empty(),
        ) {
            (true, _) => Signer::Owner,
            (false, false) => Signer::OtherNode,
            (false, true) => Signer::Nobody,
        };
        grant_command(signs, (&*self.node, &self.server.server), agent, &here)
    }

    fn lists_tool(&self, tool: &str) -> bool {
        self.peer_server()
            .is_some_and(|shared| shared.tools.contains_key(tool))
    }
}

/// Who signs grants, according to this node's logs.
#[derive(Clone, Copy)]
enum Signer {
    Owner,
    OtherNode,
    Nobody,
}

fn grant_command(
    signs: Signer,
    (node, server): (&str, &ServerId),
    agent: &AgentId,
    here: &str,
) -> String {
    let agent = agent.as_str();
    let agent = agent.strip_prefix(AgentId::PREFIX).unwrap_or(agent);
    match signs {
        Signer::Owner => format!("on {node}: mgp grants add {agent}@{here} {server}"),
        Signer::OtherNode => {
            format!("on an admin of the cluster: mgp grants add {agent}@{here} {node}/{server}")
        }
        Signer::Nobody => format!(
            "on an admin of the cluster, and this node knows of none (`mgp cluster status` says what makes one): mgp \
             grants add {agent}@{here} {node}/{server}"
        ),
    }
}

/// True if the node sends its kernel's refusals in separate frames.
fn has_refusal_frames(peer: &PeerLink) -> bool {
    let features = peer.link.negotiated().features;
    features.contains(WireFeatures::REFUSALS)
}

/// The refusal of a request that did not reach the server.
fn not_sent_refusal(link: &Link, why: String) -> Refusal {
    Refusal::NotReady {
        server: link.server.clone(),
        state: "disconnected",
        reason: Some(why),
        retry_after_ms: None,
        unreachable: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The printed command works when run on the named node.
    #[test]
    fn refusal_shows_full_grant_command_and_node() {
        let (agent, demo) = (AgentId::new("agent.local"), ServerId::new("demo"));
        let command = |signs| grant_command(signs, ("nas", &demo), &agent, "desk");
        assert_eq!(
            command(Signer::Owner),
            "on nas: mgp grants add local@desk demo"
        );
        assert_eq!(
            command(Signer::OtherNode),
            "on an admin of the cluster: mgp grants add local@desk nas/demo"
        );
        assert!(command(Signer::Nobody).contains("`mgp cluster status`"));
    }
}
