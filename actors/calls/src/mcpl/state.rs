//! `state/rollback`, of agents that are MCPL hosts (MCPL §8.5), as a tool for others who may, and what the operator
//! asks of states.

use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_mcpl::state::RollbackRequest;
use mgp_mcpl_engine::names;
use mgp_mcpl_engine::state::checkpoint_tree::StateTree;
use mgp_mcpl_engine::state::record::TreeKey;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::state::Rollback;
use mgp_protocol::mgp;
use mgp_protocol::mgp::kernel::state::{self, CheckpointEntry, StateHistory, StateHistoryList};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json_outcome;
use crate::checks::access;
use mgp_callers::request::{Caller, Outcome, Request};

/// `state/rollback`.
///
/// # Errors
/// Those of MCPL §8.7 and §6.6.
pub async fn rollback(cx: &Context, request: &Request) -> Outcome {
    let said: Rollback = mcp::parse_params(request.params.as_deref())?;
    roll_back(cx, &request.caller, &said.feature_set, &said.checkpoint).await
}

/// The same as a tool of the kernel.
pub(crate) async fn rollback_as_tool(
    cx: &Context,
    request: &Request,
    params: Option<&str>,
) -> Outcome {
    let said: mgp::state::Rollback = mcp::parse_params(params)?;
    roll_back(cx, &request.caller, &said.feature_set, &said.checkpoint).await
}

/// The tool is there for the agents that the operator gave it to.
pub(crate) fn tool_definition(cx: &Context, caller: &Caller) -> Option<&'static str> {
    let has = cx.states.rules().has_tool(&caller.agent);
    has.then_some(mgp::state::Rollback::METHOD)
}

/// True when this tool is `mgp.state.rollback`, for who has it.
pub(crate) fn is_tool(cx: &Context, caller: &Caller, name: &str) -> bool {
    mgp::matches_method(mgp::state::Rollback::METHOD, name) && tool_definition(cx, caller).is_some()
}

/// Rolls the caller's own state back.
async fn roll_back(cx: &Context, caller: &Caller, name: &str, checkpoint: &str) -> Outcome {
    cx.policies.count_call(caller)?;
    let unknown = || McplError::unknown_set(name);
    let (server, set) = names::parse_set(name).ok_or_else(unknown)?;
    // One that it may not know of is not there.
    if !caller.view.includes(&server) || !access::can_see_server(cx, caller, &server) {
        return Err(unknown().into());
    }
    if !cx.mcpl_agents.allows_set(caller, &server, set) {
        return Err(McplError::not_enabled(name, false).into());
    }
    let lost = || McplError::checkpoint_not_found(checkpoint);
    let key = cx.states.key(&server, set, caller).ok_or_else(lost)?;
    // A grant of one tool leads to the caller's own state, and not to the one that all share.
    if key.agent.is_none() && !access::is_server_open(cx, caller, &server) {
        return Err(unknown().into());
    }
    let rolling = RollbackRequest {
        server: &server,
        key: &key,
        checkpoint,
        agent: Some(&caller.agent),
    };
    json_outcome(&cx.states.roll_back(&cx.mcpl, rolling).await?)
}

/// `mgp/kernel/state/log`, for the operator.
///
/// # Errors
/// [`Refusal::BadParams`]; [`Refusal::Internal`] when what is kept cannot be read.
pub async fn state_log(cx: &Context, request: &Request) -> Outcome {
    let asked: state::Log = mcp::parse_params(request.params.as_deref())?;
    let server = parse_server(&asked.server)?;
    let agent = asked.agent.as_deref().map(parse_agent).transpose()?;
    let trees = cx.states.trees(&server).await?;
    let wanted = trees.iter().filter(|(key, _)| {
        let set = asked.set.as_deref().is_none_or(|set| *key.set == *set);
        set && (agent.is_none() || key.agent == agent)
    });
    json_outcome(&StateHistoryList {
        server_id: server.to_string(),
        states: wanted
            .map(|(key, tree)| to_protocol_state(key, tree))
            .collect(),
    })
}

/// `mgp/kernel/state/rollback`, for the operator.
///
/// # Errors
/// As [`rollback`]; [`Refusal::BadParams`] where several states have the checkpoint.
pub async fn roll_back_for_operator(cx: &Context, request: &Request) -> Outcome {
    let asked: state::Rollback = mcp::parse_params(request.params.as_deref())?;
    let server = parse_server(&asked.server)?;
    let agent = asked.agent.as_deref().map(parse_agent).transpose()?;
    let trees = cx.states.trees(&server).await?;
    let meant = trees.iter().filter(|(key, tree)| {
        let set = asked.set.as_deref().is_none_or(|set| *key.set == *set);
        let session = key.session.as_deref().unwrap_or_default();
        let session = asked
            .session
            .as_deref()
            .is_none_or(|typed| session.starts_with(typed));
        set && session
            && (agent.is_none() || key.agent == agent)
            && tree.contains(&asked.checkpoint)
    });
    let meant: Vec<&TreeKey> = meant.map(|(key, _)| key).collect();
    let key = match meant.as_slice() {
        [] => return Err(McplError::checkpoint_not_found(&asked.checkpoint).into()),
        [one] => *one,
        several => {
            let told: Vec<String> = several.iter().take(8).map(|key| render_key(key)).collect();
            return Err(Refusal::BadParams(format!(
                "{} states of {server} have checkpoint {:?}: {}; say which one with --set, --agent and --session",
                several.len(),
                asked.checkpoint,
                told.join("; ")
            )));
        }
    };
    let rolling = RollbackRequest {
        server: &server,
        key,
        checkpoint: &asked.checkpoint,
        agent: None,
    };
    json_outcome(&cx.states.roll_back(&cx.mcpl, rolling).await?)
}

fn render_key(key: &TreeKey) -> String {
    let agent = key.agent.as_ref().map_or("everyone", AgentId::as_str);
    let session = key.session.as_deref().map(|id| format!(", session {id}"));
    format!("{}, {agent}{}", key.set, session.unwrap_or_default())
}

fn parse_server(typed: &str) -> Result<ServerId, Refusal> {
    let server = ServerId::parse(typed);
    server.map_err(|why| Refusal::BadParams(format!("`server`: {why}")))
}

fn parse_agent(typed: &str) -> Result<AgentId, Refusal> {
    let agent = AgentId::parse(typed);
    agent.map_err(|why| Refusal::BadParams(format!("`agent`: {why}")))
}

fn to_protocol_state(key: &TreeKey, tree: &StateTree) -> StateHistory {
    let current = tree.current().map(|current| current.id.clone());
    let checkpoints = tree.lineage().map(|(one, parent_at)| CheckpointEntry {
        checkpoint: one.id.to_string(),
        parent: one.parent.as_deref().map(str::to_owned),
        parent_at,
        at: render_rfc3339_ms(one.saved_at_ms),
        bytes: one.data.as_ref().map(|data| data.len() as u64),
        current: current.as_ref() == Some(&one.id),
    });
    StateHistory {
        feature_set: key.set.to_string(),
        agent_id: key.agent.as_ref().map(ToString::to_string),
        session: key.session.as_deref().map(str::to_owned),
        ended_at: tree.ended_at_ms.map(render_rfc3339_ms),
        checkpoints: checkpoints.collect(),
        pruned: tree.pruned(),
        bytes: tree.bytes() as u64,
    }
}
