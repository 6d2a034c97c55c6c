//! `mgp/names/*`: tells the command line what a name that a person typed means, and which names there are.

use std::sync::Arc;

use mgp_callers::request::{Outcome, Request};
use mgp_calls::known_names;
use mgp_cluster::replication::ClusterRecords;
use mgp_engine::doors::known_names::{
    KnownNames, Meant as Read, NotRead, ServerOrTool, UnknownName,
};
use mgp_engine::policy::access::Principal;
use mgp_protocol::ids::{AgentId, NodeServer, ServerId};
use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::names::{self, Meant, Named};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::{Operator, read};
use crate::config::Mention;

impl Operator {
    /// `mgp/names/read`.
    ///
    /// # Errors
    /// What cannot be read, or could be two things.
    pub fn read_names(&self, request: &Request) -> Outcome {
        let asked: names::Read = read(request)?;
        let known = self.name_sources.known();
        let mut meant = Meant::default();
        if let Some(agent) = &asked.agent {
            let agent = known_names::read(known.grantee(agent), false)?;
            tell(&mut meant, agent.unknown);
            meant.agent_id = Some(agent.it.to_string());
        }
        if let Some(place) = place(&known, &asked)? {
            let place = known_names::read(place, false)?;
            tell(&mut meant, place.unknown);
            meant.server_id = Some(place.it.server.to_string());
            meant.tool_name = place.it.tool;
        }
        super::json(&meant)
    }

    /// Names in the configuration that mean nothing, in words.
    pub(super) fn misspelt(&self, mentions: &[Mention]) -> Vec<String> {
        if mentions.is_empty() {
            return Vec::new();
        }
        let known = self.name_sources.known();
        let unknown = mentions
            .iter()
            .filter_map(|mention| mention.unknown(&known));
        unknown.collect()
    }

    /// `mgp/names/list`.
    ///
    /// # Errors
    /// A name that no agent can have; logs that are not reachable.
    pub async fn list_names(&self, request: &Request) -> Outcome {
        let asked: names::List = read(request)?;
        let shown = self.shown.load();
        let offered = shown.catalog.offers().flat_map(|offer| offer.tools());
        let mut places = Vec::new();
        let mut tools = Vec::new();
        for tool in offered {
            places.push((tool.server.clone(), tool.own_name.clone()));
            tools.push(Named {
                shown: tool.shown.to_string(),
                tool_id: tool.canonical.to_string(),
                server_id: tool.server.to_string(),
                granted: None,
            });
        }
        if let Some(agent) = &asked.agent {
            let agent = known_names::read(self.name_sources.known().agent(agent), false)?;
            let (table, now) = (self.name_sources.access.table(), unix_ms());
            let who = Principal::Agent(agent.it.clone());
            let here: Vec<bool> = places
                .iter()
                .map(|(server, tool)| table.admits(&who, server, Some(tool), now))
                .collect();
            let elsewhere = self.granted_elsewhere(agent.it, places).await?;
            for (tool, (here, elsewhere)) in tools.iter_mut().zip(here.into_iter().zip(elsewhere)) {
                tool.granted = Some(elsewhere.unwrap_or(here));
            }
        }
        super::json(&json!({ "tools": tools }))
    }

    /// Of each tool of another node, whether the logs of the cluster allow it to an agent of this one.
    async fn granted_elsewhere(
        &self,
        agent: AgentId,
        places: Vec<(ServerId, Arc<str>)>,
    ) -> Result<Vec<Option<bool>>, Refusal> {
        let names = self.name_sources.nodes.others();
        let owned = places.into_iter().map(|(server, tool)| {
            let (node, own) = server.at_node()?;
            Some((names.get(node)?.server(own), tool))
        });
        let owned: Vec<Option<(NodeServer, Arc<str>)>> = owned.collect();
        let look = move |records: Option<&ClusterRecords<'_>>| {
            let judge = |(on, tool): &(NodeServer, Arc<str>)| {
                records.is_some_and(|records| {
                    let caller = records.replica.logs().here().agent(agent.clone());
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
        self.cluster.replication.look(look).await
    }
}

fn tell(meant: &mut Meant, unknown: Option<UnknownName>) {
    let Some(unknown) = unknown else { return };
    let told = match unknown.is_doubt() {
        true => &mut meant.doubts,
        false => &mut meant.unknown,
    };
    told.push(unknown.to_string());
}

/// The server or tool that is asked about, where one is.
fn place(
    known: &KnownNames,
    asked: &names::Read,
) -> Result<Option<Result<Read<ServerOrTool>, NotRead>>, Refusal> {
    Ok(match (&asked.server, &asked.place, &asked.tool) {
        (None, None, None) => None,
        (Some(server), None, None) => Some(known.place(server, None)),
        (None, Some(place), None) => Some(known.typed(place)),
        (None, None, Some(tool)) => Some(known.tool(tool)),
        _ => {
            let several = "one of `server`, `place` and `tool` is read at a time";
            return Err(Refusal::BadParams(several.into()));
        }
    })
}
