//! What names an agent or a server of another node is decided in the logs of the cluster.

use mgp_cluster::replication::{AskedBy, ClusterRecords};
use mgp_engine::policy::access;
use mgp_engine::policy::grants::{Force, GrantChange, Granted, LogChange};
use mgp_engine::replication::rules;
use mgp_policy::access::GrantRecords;
use mgp_protocol::ids::{AgentId, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{Entry, Explanation, Grant, List, Permission, Revoke};
use mgp_protocol::mgp::kernel::nodes::Confirmations;
use mgp_protocol::refusal::Refusal;

use super::{GrantTarget, refused};
use crate::Context;
use crate::confirmations::confirmations;

/// Said of a revocation that counts here already.
const OWED: &str = "it counts here; other nodes hear of it once one of them has confirmed this node's log, and may go on allowing until then";

/// What was decided.
pub(super) struct DecidedInCluster {
    pub(super) changes: Vec<GrantChange>,
    pub(super) confirmed: Option<Confirmations>,
    pub(super) notes: Vec<String>,
}

/// Whether an entry about these belongs to the cluster.
pub(super) fn is_about_others(agent: &AgentId, server: &ServerId) -> bool {
    agent.is_foreign() || server.is_of_node()
}

/// Said of what a node denies its own agents.
pub(super) const DENIED_HERE: &str = "this node denies it before a call leaves it, whatever the cluster grants: no admin is needed, and `mgp grants remove` ends it";
/// Said of its end.
pub(super) const DENIED_NO_MORE: &str = "this node itself denies it no more; what the cluster grants counts again, and `mgp explain` shows it";

/// Whether an entry is about an agent of this node at a server of another one: this node may deny that by itself.
pub(super) fn may_deny_itself(agent: &AgentId, server: &ServerId) -> bool {
    !agent.is_foreign() && !agent.is_pattern() && server.is_of_node()
}

/// What ends the entries about the same.
///
/// # Errors
/// None at present: the members of both are the same.
pub(super) fn revoke_of(grant: &Grant) -> Result<Revoke, Refusal> {
    let revoke = serde_json::json!({
        "entry_type": grant.entry_type,
        "agent_id": grant.agent_id,
        "server_id": grant.server_id,
        "tool_name": grant.tool_name,
    });
    serde_json::from_value(revoke).map_err(|why| Refusal::Broken(why.to_string()))
}

pub(super) async fn grant(
    cx: &Context,
    by: AskedBy,
    grant: Grant,
) -> Result<DecidedInCluster, Refusal> {
    let (names, who) = (cx.name_sources.nodes.others(), by.principal.clone());
    let older = cx.name_sources.nodes.without_patterns();
    decide(cx, by, move |records| {
        let logs = records.replica.logs();
        let (grants, authority) = (logs.grants(), logs.authority());
        let (id, now_ms) = (records.fresh, records.now_ms);
        let made = access::grant(&grant, &who, &names, grants, authority, id, now_ms);
        let made = made.map_err(refused)?;
        let pattern = |it: &GrantChange| matches!(it, GrantChange::Grant(grant) if grant.is_pattern());
        match older.is_empty() || !made.iter().any(pattern) {
            true => Ok(made),
            false => Err(Refusal::BadParams(format!(
                "{} of an older version does not read grants with patterns, and would close all that this node has granted: update it first, or grant each agent and tool by its name",
                older.join(", ")
            ))),
        }
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
        let wider = access::allowed_by_patterns(&revoke, &names, grants, authority);
        let wider = wider.map_err(refused)?.into_iter();
        let in_force =
            |granted: &&Granted| records.replica.force(granted, records.now_ms) == Force::InForce;
        let wider = wider.filter(in_force).map(|granted| (granted, None));
        let name = |node| {
            names
                .of(node)
                .map_or_else(|| node.short(), ToString::to_string)
        };
        if let Some(entry) = access::list_cluster(wider, logs.here(), name).first() {
            return Err(goes_on(entry));
        }
        access::revoke(&revoke, &who, &names, grants, authority).map_err(refused)
    })
    .await
}

/// Why a revoke would not close what it names, and what does.
fn goes_on(entry: &Entry) -> Refusal {
    let (agent, server) = (&entry.agent_id, &entry.server_id);
    let place = match &entry.tool_name {
        Some(tool) => format!("{server}:{tool}"),
        None => server.clone(),
    };
    Refusal::BadParams(format!(
        "nothing is taken back: the grant of {place} to {agent} ({}) allows it as well; revoke that one with `mgp grants remove '{agent}' '{place}'`, or close this alone with `mgp grants add … --deny`",
        entry.grant_id
    ))
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
        agent.as_ref().is_none_or(|agent| is_for(entry, agent))
            && list
                .server_id
                .as_ref()
                .is_none_or(|server| *server == entry.server_id)
    });
    Ok(entries)
}

/// Whether an entry is about an agent, by its name or by a pattern.
fn is_for(entry: &Entry, agent: &str) -> bool {
    let (name, node) = match agent.split_once('@') {
        Some((name, node)) => (name, format!("@{node}")),
        None => (agent, String::new()),
    };
    entry.agent_id == agent
        || entry.agent_id == format!("{}{node}", AgentId::ALL)
        || entry.agent_id == format!("{name}@{}", AgentId::ALL)
}

/// An agent's id, with the name of its node.
fn shown(cx: &Context, agent: &str) -> String {
    match AgentId::new(agent).foreign() {
        Some(foreign) => format!("{}@{}", foreign.agent, name_of(cx, foreign.node)),
        None => agent.to_owned(),
    }
}

fn name_of(cx: &Context, node: NodeId) -> String {
    cx.name_sources.nodes.name(node)
}

/// What is decided on an agent of another node here, or will be on one of this node there.
pub(super) async fn explain(cx: &Context, target: GrantTarget) -> Result<Explanation, Refusal> {
    let GrantTarget {
        agent,
        place,
        notes,
    } = target;
    if let Some(owner) = owner(cx, &place.server)? {
        let own = denied_here(cx, agent.clone(), owner.clone(), place.tool.clone());
        let own = own.await?;
        let name = name_of(cx, owner.node);
        let there = there(cx, agent.clone(), owner, place.tool.clone()).await?;
        let here = match own {
            Some(denied) => denied,
            None => super::explained(cx, agent, place).await?,
        };
        return Ok(both(here, there, &name, notes));
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

/// What this node itself denies one of its agents of the server of another node.
async fn denied_here(
    cx: &Context,
    agent: AgentId,
    on: NodeServer,
    tool: Option<String>,
) -> Result<Option<Explanation>, Refusal> {
    let names = cx.name_sources.nodes.others();
    let look = move |ledger: &GrantRecords<'_>| {
        let name = |node: NodeId| {
            names
                .of(node)
                .map_or_else(|| node.short(), ToString::to_string)
        };
        access::explain_own_denial(
            ledger.grants,
            ledger.authority,
            &agent,
            (&on, tool.as_deref()),
            ledger.now_ms,
            &name,
        )
    };
    cx.policies.access.look(look).await
}

/// What this node says of its agent at the server of another node, and what that node will say: both have to allow it.
fn both(
    here: Explanation,
    there: Option<Explanation>,
    name: &str,
    notes: Vec<String>,
) -> Explanation {
    let Some(there) = there else {
        return Explanation { notes, ..here };
    };
    let decides = format!("{name} decides, by the grants of the cluster:");
    let considered = [here.considered, vec![decides], there.considered].concat();
    let (decided, rule) = match here.permission {
        Permission::Deny => ((here.permission, here.source), here.rule),
        Permission::Allow => {
            let rule = format!("{name} decides: {}", there.rule);
            ((there.permission, there.source), rule)
        }
    };
    let (permission, source) = decided;
    Explanation {
        permission,
        source,
        rule,
        considered,
        notes,
        waits: None,
    }
}

/// What the logs say of a local agent at the server of another node, which decides by them.
async fn there(
    cx: &Context,
    agent: AgentId,
    on: NodeServer,
    tool: Option<String>,
) -> Result<Option<Explanation>, Refusal> {
    let look = move |records: Option<&ClusterRecords<'_>>| {
        let records = records?;
        let (replica, now_ms) = (records.replica, records.now_ms);
        let caller = replica.logs().here().agent(agent);
        let tool = tool.as_deref();
        Some(rules::explain_elsewhere(
            replica, &caller, &on, tool, now_ms,
        ))
    };
    cx.replication.look(look).await
}
