//! Queries about the grants that the published table cannot answer.

use std::collections::BTreeMap;

use mgp_engine::node_names::NodeNames;
use mgp_engine::policy::access::{self, GrantRecords, Principal};
use mgp_engine::policy::permissions::{self, RecordedDecision};
use mgp_protocol::ids::{AgentId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{Entry, Explanation, List};
use mgp_protocol::mgp::permission::PermissionType;
use mgp_runtime::Reply;

/// A query with its reply channel.
#[derive(Debug)]
pub enum GrantQuery {
    /// The entries in force.
    List(List, NodeNames, Reply<Vec<Entry>>),
    /// The rule that decides about an agent at a server or one of its tools.
    Explain(Principal, ServerId, Option<String>, Reply<Explanation>),
    /// How this node denies one of its agents the server of another node, or one of its tools.
    ExplainLocalDenial {
        /// The agent.
        agent: AgentId,
        /// The server.
        server: NodeServer,
        /// The tool.
        tool: Option<String>,
        /// The names of other nodes.
        names: NodeNames,
        /// `None` if it denies nothing.
        reply: Reply<Option<Explanation>>,
    },
    /// Replied to when all earlier messages are in force.
    Barrier(Reply<()>),
    /// The operator's decisions in force about the permissions of a server.
    Permissions(ServerId, Reply<BTreeMap<PermissionType, RecordedDecision>>),
}

impl GrantQuery {
    pub(super) fn answer(self, records: &GrantRecords<'_>) {
        let (grants, authority, now_ms) = (records.grants, records.authority, records.now_ms);
        match self {
            Self::List(request, names, reply) => {
                let name = |node| names.render(node);
                reply.send(access::list(grants, authority, &request, now_ms, name));
            }
            Self::Explain(principal, server, tool, reply) => {
                let tool = tool.as_deref();
                let defaults = records.defaults;
                reply.send(access::explain(
                    grants, authority, defaults, &principal, &server, tool, now_ms,
                ));
            }
            Self::ExplainLocalDenial {
                agent,
                server,
                tool,
                names,
                reply,
            } => {
                let (resource, name) = ((&server, tool.as_deref()), |node| names.render(node));
                reply.send(access::explain_local_denial(
                    grants,
                    authority,
                    records.defaults,
                    &agent,
                    resource,
                    now_ms,
                    &name,
                ));
            }
            Self::Barrier(reply) => reply.send(()),
            Self::Permissions(server, reply) => {
                reply.send(permissions::decisions_in_force(
                    grants, authority, &server, now_ms,
                ));
            }
        }
    }
}
