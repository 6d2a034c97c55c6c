//! `mgp/names/*`: resolves typed names for the command line, and lists the known ones.

use std::sync::Arc;

use mgp_callers::request::{Outcome, Request};
use mgp_calls::name_sources;
use mgp_cluster::replication::ClusterSnapshot;
use mgp_engine::doors::name_resolver::{
    NameError, NameResolver, ResolvedName as Read, ServerOrTool, UnknownName,
};
use mgp_engine::policy::access::Principal;
use mgp_protocol::ids::{AgentId, NodeServer, ServerId};
use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::names::{self, ResolvedNames, ToolNames};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::{Operator, read};
use crate::config::Mention;

impl Operator {
    /// `mgp/names/read`.
    ///
    /// # Errors
    /// Invalid or ambiguous names.
    pub(crate) fn resolve_names(&self, request: &Request) -> Outcome {
        let params: names::Read = read(request)?;
        let known = self.name_sources.name_resolver();
        let mut resolved_names = ResolvedNames::default();
        if let Some(agent) = &params.agent {
            let agent = name_sources::require_name(known.resolve_grantee(agent), false)?;
            add_unknown(&mut resolved_names, agent.unknown);
            resolved_names.agent_id = Some(agent.value.to_string());
        }
        if let Some(target) = resolve_target(&known, &params)? {
            let target = name_sources::require_name(target, false)?;
            add_unknown(&mut resolved_names, target.unknown);
            resolved_names.server_id = Some(target.value.server.to_string());
            resolved_names.tool_name = target.value.tool;
        }
        super::json(&resolved_names)
    }

    /// Reports names in the configuration that are unknown.
    pub(super) fn unknown_mentions(&self, mentions: &[Mention]) -> Vec<String> {
        if mentions.is_empty() {
            return Vec::new();
        }
        let known = self.name_sources.name_resolver();
        let unknown = mentions
            .iter()
            .filter_map(|mention| mention.unknown_name(&known));
        unknown.collect()
    }

    /// `mgp/names/list`.
    ///
    /// # Errors
    /// An invalid agent name; logs that are not reachable.
    pub(crate) async fn list_names(&self, request: &Request) -> Outcome {
        let params: names::List = read(request)?;
        let published = self.catalog.load();
        let offered = published.catalog.offers().flat_map(|offer| offer.tools());
        let mut tools_elsewhere = Vec::new();
        let mut tools = Vec::new();
        for tool in offered {
            tools_elsewhere.push((tool.server.clone(), tool.own_name.clone()));
            tools.push(ToolNames {
                shown: tool.merged_name.to_string(),
                tool_id: tool.canonical_name.to_string(),
                server_id: tool.server.to_string(),
                granted: None,
            });
        }
        if let Some(agent) = &params.agent {
            let agent = name_sources::require_name(
                self.name_sources.name_resolver().resolve_agent(agent),
                false,
            )?;
            let (table, now) = (self.name_sources.access.table(), unix_ms());
            let principal = Principal::Agent(agent.value.clone());
            let allowed_here: Vec<bool> = tools_elsewhere
                .iter()
                .map(|(server, tool)| table.is_allowed(&principal, server, Some(tool), now))
                .collect();
            let elsewhere = self.remote_grants(agent.value, tools_elsewhere).await?;
            for (tool, (allowed_here, elsewhere)) in tools
                .iter_mut()
                .zip(allowed_here.into_iter().zip(elsewhere))
            {
                tool.granted = Some(elsewhere.unwrap_or(allowed_here));
            }
        }
        super::json(&json!({ "tools": tools }))
    }

    /// For each tool of another node, whether the cluster's logs allow it to an agent of this one.
    async fn remote_grants(
        &self,
        agent: AgentId,
        tools_elsewhere: Vec<(ServerId, Arc<str>)>,
    ) -> Result<Vec<Option<bool>>, Refusal> {
        let names = self.name_sources.nodes.others();
        let owned = tools_elsewhere.into_iter().map(|(server, tool)| {
            let (node, own) = server.remote_parts()?;
            Some((names.get(node)?.server(own), tool))
        });
        let owned: Vec<Option<(NodeServer, Arc<str>)>> = owned.collect();
        let find_grants = move |records: Option<&ClusterSnapshot<'_>>| {
            let judge = |(on, tool): &(NodeServer, Arc<str>)| {
                records.is_some_and(|records| {
                    let caller = records.replica.logs().local_node().agent(agent.clone());
                    let (replica, now_ms) = (records.replica, records.now_ms);
                    let decisive = replica.decisive_grant(&caller, on, Some(&**tool), now_ms);
                    decisive.is_some_and(|it| it.grant.permission == Permission::Allow)
                })
            };
            owned
                .iter()
                .map(|owned| owned.as_ref().map(&judge))
                .collect()
        };
        self.cluster.replication.read_logs(find_grants).await
    }
}

fn add_unknown(resolved_names: &mut ResolvedNames, unknown: Option<UnknownName>) {
    let Some(unknown) = unknown else { return };
    let uncertain = if unknown.is_uncertain() {
        &mut resolved_names.doubts
    } else {
        &mut resolved_names.unknown
    };
    uncertain.push(unknown.to_string());
}

/// The server or tool in the request, if any.
fn resolve_target(
    known: &NameResolver,
    params: &names::Read,
) -> Result<Option<Result<Read<ServerOrTool>, NameError>>, Refusal> {
    Ok(match (&params.server, &params.place, &params.tool) {
        (None, None, None) => None,
        (Some(server), None, None) => Some(known.resolve_parts(server, None)),
        (None, Some(target), None) => Some(known.resolve_server_or_tool(target)),
        (None, None, Some(tool)) => Some(known.resolve_tool(tool)),
        _ => {
            let several = "one of `server`, `place` and `tool` is read at a time";
            return Err(Refusal::BadParams(several.into()));
        }
    })
}
