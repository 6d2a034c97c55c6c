//! What names an agent or a server of another node is decided in the logs of the cluster.

use mgp_cluster::replication::{AskedBy, ClusterRecords};
use mgp_engine::policy::access;
use mgp_engine::policy::grants::{GrantChange, GrantResource, LogChange, Subject};
use mgp_protocol::ids::{AgentId, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{Entry, Explanation, Grant, List, Revoke, Source};
use mgp_protocol::mgp::kernel::nodes::Confirmations;
use mgp_protocol::refusal::Refusal;

use super::{GrantTarget, refused};
use crate::Context;
use crate::confirmations::confirmations;

/// Said of a revocation that counts here already.
const OWED: &str =
    "it counts here; other nodes hear of it once one of them has confirmed this node's log";

/// What was decided.
pub(super) struct DecidedInCluster {
    pub(super) changes: Vec<GrantChange>,
    pub(super) confirmed: Option<Confirmations>,
    pub(super) notes: Vec<String>,
}

/// Whether an entry about these belongs to the cluster.
pub(super) fn is_about_others(agent: &AgentId, server: &ServerId) -> bool {
    agent.foreign().is_some() || server.is_of_node()
}

pub(super) async fn grant(
    cx: &Context,
    by: AskedBy,
    grant: Grant,
) -> Result<DecidedInCluster, Refusal> {
    let (names, who) = (cx.name_sources.nodes.others(), by.principal.clone());
    decide(cx, by, move |records| {
        let logs = records.replica.logs();
        let (grants, authority) = (logs.grants(), logs.authority());
        let (id, now_ms) = (records.fresh, records.now_ms);
        let made = access::grant(&grant, &who, &names, grants, authority, id, now_ms);
        made.map(|change| vec![change]).map_err(refused)
    })
    .await
}

pub(super) async fn revoke(
    cx: &Context,
    by: AskedBy,
    revoke: Revoke,
) -> Result<DecidedInCluster, Refusal> {
    let (names, who) = (cx.name_sources.nodes.others(), by.principal.clone());
    decide(cx, by, move |records| {
        let logs = records.replica.logs();
        let (grants, authority) = (logs.grants(), logs.authority());
        access::revoke(&revoke, &who, &names, grants, authority).map_err(refused)
    })
    .await
}

async fn decide(
    cx: &Context,
    by: AskedBy,
    decide: impl FnOnce(&ClusterRecords<'_>) -> Result<Vec<GrantChange>, Refusal> + Send + 'static,
) -> Result<DecidedInCluster, Refusal> {
    let decide = move |records: &ClusterRecords<'_>| {
        let changes = decide(records)?;
        Ok(changes.into_iter().map(LogChange::Grants).collect())
    };
    let proposed = cx.replication.propose(by, decide).await?;
    let changes: Vec<GrantChange> = proposed
        .changes
        .iter()
        .filter_map(LogChange::grants)
        .cloned()
        .collect();
    if changes.is_empty() {
        return Ok(DecidedInCluster {
            changes,
            confirmed: None,
            notes: Vec::new(),
        });
    }
    let name = |node| name_of(cx, node);
    let confirmed = confirmations(&cx.replication, &proposed, name).await?;
    let notes = match confirmed {
        Some(_) => Vec::new(),
        None => vec![OWED.to_owned()],
    };
    Ok(DecidedInCluster {
        changes,
        confirmed,
        notes,
    })
}

/// The entries of the cluster's logs that a list is asked for.
pub(super) async fn entries(cx: &Context, list: &List) -> Result<Vec<Entry>, Refusal> {
    let names = cx.name_sources.nodes.others();
    let name = move |node: NodeId| {
        let name = names.of(node).map(ToString::to_string);
        name.unwrap_or_else(|| node.short())
    };
    let mut entries = cx.replication.list(name).await?;
    let agent = list.agent_id.as_deref().map(|agent| shown(cx, agent));
    entries.retain(|entry| {
        agent.as_ref().is_none_or(|agent| *agent == entry.agent_id)
            && list
                .server_id
                .as_ref()
                .is_none_or(|server| *server == entry.server_id)
    });
    Ok(entries)
}

/// An agent's id, with the name of its node.
fn shown(cx: &Context, agent: &str) -> String {
    match AgentId::new(agent).foreign() {
        Some(foreign) => format!("{}@{}", foreign.agent, name_of(cx, foreign.node)),
        None => agent.to_owned(),
    }
}

fn name_of(cx: &Context, node: NodeId) -> String {
    let names = cx.name_sources.nodes.others();
    let name = names.of(node).map(ToString::to_string);
    name.unwrap_or_else(|| node.short())
}

/// What is decided on an agent of another node here, or will be on one of this node there.
pub(super) async fn explain(cx: &Context, target: GrantTarget) -> Result<Explanation, Refusal> {
    let GrantTarget {
        agent,
        place,
        mut notes,
    } = target;
    if let Some(owner) = owner(cx, &place.server)? {
        notes.extend(there(cx, agent.clone(), owner, place.tool.clone()).await?);
        let explanation = super::explained(cx, agent, place).await?;
        return Ok(Explanation {
            notes,
            ..explanation
        });
    }
    let Some(caller) = agent.foreign() else {
        return super::explained(cx, agent, place).await;
    };
    let explained = cx.replication.explain(caller, place.server, place.tool);
    Ok(Explanation {
        notes,
        ..explained.await?
    })
}

/// The node that has a server, where it is another one.
fn owner(cx: &Context, server: &ServerId) -> Result<Option<NodeServer>, Refusal> {
    let Some((node, server)) = server.at_node() else {
        return Ok(None);
    };
    let names = cx.name_sources.nodes.others();
    let node = names.read(node);
    let node = node.map_err(|why| Refusal::BadParams(why.to_string()))?;
    Ok(Some(node.server(server)))
}

/// What the logs say of a local agent at the server of another node, which decides by them.
async fn there(
    cx: &Context,
    agent: AgentId,
    on: NodeServer,
    tool: Option<String>,
) -> Result<Vec<String>, Refusal> {
    let name = name_of(cx, on.node);
    let look = move |records: Option<&ClusterRecords<'_>>| {
        let records = records?;
        let here = records.replica.logs().here();
        let subject = Subject::Agent(here.agent(agent));
        let of_tool = tool.map(|tool| GrantResource::Tool(on.clone(), tool));
        let levels = [
            (Source::ToolGrant, of_tool),
            (Source::ServerGrant, Some(GrantResource::Server(on))),
        ];
        let all = records.replica.logs().grants_for(&subject);
        let levels = levels.into_iter().filter_map(|(source, resource)| {
            let resource = resource?;
            let found = all.iter();
            let found = found.filter(|granted| granted.grant.resource == resource);
            let judged = |granted| (granted, records.replica.force(granted, records.now_ms));
            let found = found.map(judged).collect();
            Some((source, resource, found))
        });
        Some(access::explain_foreign(levels, None).considered)
    };
    let found = cx.replication.look(look).await?.unwrap_or_default();
    let decides = format!("{name} decides, by the grants of the cluster:");
    Ok([vec![decides], found].concat())
}
