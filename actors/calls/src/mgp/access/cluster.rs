//! What names an agent or a server of another node is decided in the logs of the cluster.

use mgp_cluster::replication::{ClusterSnapshot, RequestedBy};
use mgp_engine::policy::access::{self, GrantRequestError};
use mgp_engine::policy::grants::{GrantChange, GrantStatus, LogChange, LoggedGrant};
use mgp_engine::replication::remote_rules;
use mgp_protocol::ids::{AgentId, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{Entry, EntryType, Explanation, Grant, List, Permission, Revoke};
use mgp_protocol::mgp::kernel::nodes::Confirmations;
use mgp_protocol::refusal::Refusal;

use super::GrantTarget;
use crate::Context;
use crate::confirmations::wait_for_confirmations;

/// Said of a revocation that counts here already.
const UNCONFIRMED_REVOKE_NOTE: &str = "it counts here; other nodes hear of it once one of them has confirmed this node's log, and may go on allowing until then";

/// What was decided.
pub(super) struct ClusterDecision {
    pub(super) changes: Vec<GrantChange>,
    pub(super) confirmations: Option<Confirmations>,
    pub(super) notes: Vec<String>,
}

/// Whether an entry about these belongs to the cluster.
pub(super) fn is_cluster_entry(agent: &AgentId, server: &ServerId) -> bool {
    agent.is_remote() || server.is_remote() || server.as_str().ends_with(CLUSTER_GROUP)
}

/// After the name of a group: that of the cluster.
pub(super) const CLUSTER_GROUP: &str = "@*";

/// A group of this node, as the logs of the cluster name it: grants for servers of other nodes are there.
pub(super) fn group_at(agent: AgentId, server: &ServerId) -> AgentId {
    if server.is_remote() && agent.is_group() && !agent.is_pattern() {
        agent.pattern_for_all_nodes()
    } else {
        agent
    }
}

/// Said of what a node denies its own agents.
pub(super) const LOCAL_DENIAL_NOTE: &str = "this node denies it before a call leaves it, whatever the cluster grants: no admin is needed, and `mgp grants remove` ends it";
/// Said of its end.
pub(super) const LOCAL_DENIAL_ENDED_NOTE: &str = "this node itself denies it no more; what the cluster grants counts again, and `mgp explain` shows it";

/// Whether an entry is about an agent of this node at a server of another one: this node may deny that by itself.
pub(super) fn can_deny_locally(agent: &AgentId, server: &ServerId) -> bool {
    !agent.is_remote() && !agent.is_pattern() && server.is_remote()
}

/// What ends the entries about the same.
///
/// # Errors
/// None at present: the members of both are the same.
pub(super) fn to_revoke(grant: &Grant) -> Result<Revoke, Refusal> {
    let revoke = serde_json::json!({
        "entry_type": grant.entry_type,
        "agent_id": grant.agent_id,
        "server_id": grant.server_id,
        "tool_name": grant.tool_name,
    });
    serde_json::from_value(revoke).map_err(|why| Refusal::Internal(why.to_string()))
}

pub(super) async fn grant(
    cx: &Context,
    by: RequestedBy,
    grant: Grant,
) -> Result<ClusterDecision, Refusal> {
    let (names, who) = (cx.name_sources.nodes.others(), by.principal.clone());
    let older = cx.name_sources.nodes.without_patterns();
    let unconditional = cx.name_sources.nodes.without_conditions();
    let ungrouped = cx.name_sources.nodes.without_groups();
    decide(cx, by, move |records| {
        let logs = records.replica.logs();
        let (grants, authority) = (logs.grants(), logs.authority());
        let (id, now_ms) = (records.new_grant_id, records.now_ms);
        let made = access::grant(&grant, &who, &names, grants, authority, id, now_ms);
        let made = made.map_err(GrantRequestError::into_refusal)?;
        let pattern = |it: &GrantChange| matches!(it, GrantChange::Grant(grant) if grant.is_pattern());
        let conditional =
            |it: &GrantChange| matches!(it, GrantChange::Grant(grant) if grant.is_conditional());
        let grouped = |it: &GrantChange| matches!(it, GrantChange::Grant(grant) if grant.has_group());
        if !ungrouped.is_empty() && made.iter().any(grouped) {
            return Err(Refusal::BadParams(format!(
                "{} of an older version does not read grants with groups, and would close all that this node has granted: update it first",
                ungrouped.join(", ")
            )));
        }
        if !unconditional.is_empty() && made.iter().any(conditional) {
            return Err(Refusal::BadParams(format!(
                "{} of an older version does not read grants with conditions, and would close all that this node has granted: update it first",
                unconditional.join(", ")
            )));
        }
        if older.is_empty() || !made.iter().any(pattern) {
            Ok(made)
        } else {
            Err(Refusal::BadParams(format!(
                "{} of an older version does not read grants with patterns, and would close all that this node has granted: update it first, or grant each agent and tool by its name",
                older.join(", ")
            )))
        }
    })
    .await
}

pub(super) async fn revoke(
    cx: &Context,
    by: RequestedBy,
    revoke: Revoke,
) -> Result<ClusterDecision, Refusal> {
    let (names, who) = (cx.name_sources.nodes.others(), by.principal.clone());
    decide(cx, by, move |records| {
        let logs = records.replica.logs();
        let (grants, authority) = (logs.grants(), logs.authority());
        let wider = access::remaining_pattern_grants(&revoke, &names, grants, authority);
        let wider = wider.map_err(GrantRequestError::into_refusal)?.into_iter();
        let in_force = |granted: &&LoggedGrant| {
            records.replica.grant_status(granted, records.now_ms) == GrantStatus::InForce
        };
        let wider = wider.filter(in_force).map(|granted| (granted, None));
        let name = |node| names.render(node);
        if let Some(entry) = access::list_cluster(wider, logs.local_node(), name).first() {
            return Err(still_allowed_refusal(entry));
        }
        access::revoke(&revoke, &who, &names, grants, authority)
            .map_err(GrantRequestError::into_refusal)
    })
    .await
}

/// Why a revoke would not close what it names, and what does.
fn still_allowed_refusal(entry: &Entry) -> Refusal {
    let (agent, server) = (&entry.agent_id, &entry.server_id);
    if entry.entry_type == EntryType::GroupMember {
        let group = server.trim_end_matches(CLUSTER_GROUP);
        return Refusal::BadParams(format!(
            "nothing is taken back: {agent} is in {group} ({}); take all of it out with `mgp groups remove {group} '{agent}'`",
            entry.grant_id
        ));
    }
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
    by: RequestedBy,
    decide: impl FnOnce(&ClusterSnapshot<'_>) -> Result<Vec<GrantChange>, Refusal> + Send + 'static,
) -> Result<ClusterDecision, Refusal> {
    let decide = move |records: &ClusterSnapshot<'_>| {
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
        return Ok(ClusterDecision {
            changes,
            confirmations: None,
            notes: Vec::new(),
        });
    }
    let name = |node| node_name(cx, node);
    let confirmed = wait_for_confirmations(&cx.replication, &proposed, name).await?;
    let notes = match confirmed {
        Some(_) => Vec::new(),
        None => vec![UNCONFIRMED_REVOKE_NOTE.to_owned()],
    };
    Ok(ClusterDecision {
        changes,
        confirmations: confirmed,
        notes,
    })
}

/// The entries of the cluster's logs that a list is asked for.
pub(super) async fn list_entries(cx: &Context, list: &List) -> Result<Vec<Entry>, Refusal> {
    let names = cx.name_sources.nodes.others();
    let name = move |node: NodeId| names.render(node);
    let mut entries = cx.replication.list_entries(name).await?;
    let agent = list
        .agent_id
        .as_deref()
        .map(|agent| render_agent(cx, agent));
    entries.retain(|entry| {
        agent
            .as_ref()
            .is_none_or(|agent| is_about_agent(entry, agent))
            && list.lists(entry.entry_type)
            && list
                .server_id
                .as_ref()
                .is_none_or(|server| *server == entry.server_id)
    });
    Ok(entries)
}

/// Whether an entry is about an agent, by its name or by a pattern.
fn is_about_agent(entry: &Entry, agent: &str) -> bool {
    let (name, node) = match agent.split_once('@') {
        Some((name, node)) => (name, format!("@{node}")),
        None => (agent, String::new()),
    };
    entry.agent_id == agent
        || entry.agent_id == format!("{}{node}", AgentId::ALL)
        || entry.agent_id == format!("{name}@{}", AgentId::ALL)
}

/// An agent's id, with the name of its node.
fn render_agent(cx: &Context, agent: &str) -> String {
    match AgentId::new(agent).as_remote() {
        Some(foreign) => format!("{}@{}", foreign.agent, node_name(cx, foreign.node)),
        None => agent.to_owned(),
    }
}

fn node_name(cx: &Context, node: NodeId) -> String {
    cx.name_sources.nodes.name(node)
}

/// What is decided on an agent of another node here, or will be on one of this node there.
pub(super) async fn explain(cx: &Context, target: GrantTarget) -> Result<Explanation, Refusal> {
    let GrantTarget {
        agent,
        place,
        notes,
    } = target;
    if let Some(owner) = owning_node(cx, &place.server)? {
        let names = cx.name_sources.nodes.others();
        let access = &cx.policies.access;
        let own =
            access.explain_local_denial(agent.clone(), owner.clone(), place.tool.clone(), names);
        let own = own.await?;
        let name = node_name(cx, owner.node);
        let there = explain_remote(cx, agent.clone(), owner, place.tool.clone()).await?;
        let here = match own {
            Some(denied) => denied,
            None => super::explain_locally(cx, agent, place).await?,
        };
        return Ok(combine_explanations(here, there, &name, notes));
    }
    let Some(caller) = agent.as_remote() else {
        return super::explain_locally(cx, agent, place).await;
    };
    let explained = cx.replication.explain(caller, place.server, place.tool);
    Ok(Explanation {
        notes,
        ..explained.await?
    })
}

/// The node that has a server, where it is another one.
fn owning_node(cx: &Context, server: &ServerId) -> Result<Option<NodeServer>, Refusal> {
    let Some((node, server)) = server.remote_parts() else {
        return Ok(None);
    };
    let names = cx.name_sources.nodes.others();
    let node = names.resolve(node);
    let node = node.map_err(|why| Refusal::BadParams(why.to_string()))?;
    Ok(Some(node.server(server)))
}

/// What this node says of its agent at the server of another node, and what that node will say: both have to allow it.
fn combine_explanations(
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
    let (decided, rule, conditions) = match here.permission {
        Permission::Deny => ((here.permission, here.source), here.rule, Vec::new()),
        Permission::Allow => {
            let rule = format!("{name} decides: {}", there.rule);
            ((there.permission, there.source), rule, there.conditions)
        }
    };
    let (permission, source) = decided;
    Explanation {
        permission,
        source,
        rule,
        considered,
        conditions,
        notes,
        waits: None,
    }
}

/// What the logs say of a local agent at the server of another node, which decides by them.
async fn explain_remote(
    cx: &Context,
    agent: AgentId,
    on: NodeServer,
    tool: Option<String>,
) -> Result<Option<Explanation>, Refusal> {
    let look = move |records: Option<&ClusterSnapshot<'_>>| {
        let records = records?;
        let (replica, now_ms) = (records.replica, records.now_ms);
        let caller = replica.logs().local_node().agent(agent);
        let tool = tool.as_deref();
        Some(remote_rules::explain_remote(
            replica, &caller, &on, tool, now_ms,
        ))
    };
    cx.replication.read_logs(look).await
}
