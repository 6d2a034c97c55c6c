//! What MCPL adds to a call of a tool: its scope and its state (MCPL §7.7, §8.4).

use std::borrow::Cow;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_json::lookalike::are_alike;
use mgp_json::{can_contain_string, members, quote, remove_members};
use mgp_mcpl::audit::{self, McplRecord};
use mgp_mcpl::scopes::ScopedAction;
use mgp_mcpl::state::{self, TreeLock};
use mgp_mcpl_engine::feature_sets::{DeclaredSet, ToolSet};
use mgp_mcpl_engine::names;
use mgp_mcpl_engine::scopes::ScopeRules;
use mgp_mcpl_engine::state::checkpoint_tree::CarriedState;
use mgp_policy::EarlierSet;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::feature_sets::{Capability, tool_feature_set};
use mgp_protocol::mcpl::state::StateMeta;
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::refusal::Refusal;
use mgp_servers::link::FinalCheck;
use mgp_servers::upstream::McplMembers;
use serde_json::value::RawValue;

use crate::Context;
use crate::audit::PendingCallRecord;
use crate::checks::ToolCallChecks;
use mgp_callers::request::{Caller, Request};

/// The params of a call without what a caller says under the names of what the kernel says there itself: of one
/// that holds such members alone. Only servers that speak MCPL would follow them.
pub(crate) fn strip_mcpl_members<'p>(
    cx: &Context,
    server: &ServerId,
    params: &'p str,
) -> Option<Cow<'p, str>> {
    if !cx.mcpl.is_connected(server) {
        return None;
    }
    let all = members(params)?;
    let said = all.iter().map(|(name, _)| name.as_ref());
    let said = said.filter(|name| McplMembers::NAMES.iter().any(|own| are_alike(name, own)));
    let said: Vec<&str> = said.collect();
    (!said.is_empty()).then(|| remove_members(params, &said))
}

/// What MCPL has to do with a call.
#[derive(Debug, Default)]
pub(crate) struct McplCall {
    /// What goes with it.
    pub(crate) members: McplMembers,
    /// The set that its tool belongs to, and whose it is.
    set: Option<(ServerId, String)>,
    /// Its turn among the calls of one state, where its set has one.
    state_permit: Option<TreeLock>,
    /// The scope it is in, where its set has scopes.
    scope: Option<ScopedAction>,
}

/// The checks of a call, with that of its scope.
#[derive(Debug)]
pub(crate) struct CheckedCall<'a> {
    pub(crate) cx: &'a Context,
    pub(crate) checks: &'a ToolCallChecks<'a>,
    pub(crate) request: &'a Request,
    pub(crate) mcpl: Option<&'a McplCall>,
}

impl FinalCheck for CheckedCall<'_> {
    fn recheck(&self) -> Result<(), Refusal> {
        self.checks.recheck()?;
        match self.mcpl {
            Some(call) => call.recheck(self.cx, &self.request.caller),
            None => Ok(()),
        }
    }

    fn recheck_arguments<'a>(
        &'a self,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let passed = self.checks.run(self.request, Some(arguments)).await;
            passed.map_err(|(_, refusal)| refusal)
        })
    }
}

impl McplCall {
    /// Asked again when the call has waited: its set may be off by now, or its scope closed.
    fn recheck(&self, cx: &Context, caller: &Caller) -> Result<(), Refusal> {
        let Some((server, set)) = &self.set else {
            return Ok(());
        };
        let sets = cx.mcpl.sets().load();
        let held = sets.get(server).and_then(|sets| sets.sets.get(set));
        let Some(held) = held.filter(|held| held.enabled) else {
            return Err(disabled_refusal(server, set));
        };
        let Some(scope) = &self.scope else {
            return Ok(());
        };
        let open = cx.mcpl.scopes().known_decision(scope, &held.scope);
        let agents = cx
            .mcpl_agents
            .allows_scope(caller, &scope.server, set, &scope.label);
        if open.is_some_and(|decided| decided.approved) && agents {
            Ok(())
        } else {
            Err(closed_scope_refusal(scope, "it was taken back"))
        }
    }
}

/// What goes with a call, after its checks and before it leaves; `None` for a tool of a server that does not
/// speak MCPL.
///
/// # Errors
/// [`Refusal::Forbidden`] with what to write where, for a tool whose set is not enabled or not clear, and for a
/// scope that is closed.
pub(crate) async fn prepare_call(
    cx: &Context,
    request: &Request,
    facts: &PendingCallRecord,
    tool: &CatalogTool,
    arguments: &str,
) -> Result<Option<McplCall>, Refusal> {
    if !cx.mcpl.is_connected(&tool.server) {
        return Ok(None);
    }
    let Some((set, held)) = enabled_set(cx, &request.caller, tool)? else {
        return Ok(Some(McplCall::default()));
    };
    let rolls_back = held.set.rollback;
    let mut call = McplCall {
        set: Some((tool.server.clone(), set.clone())),
        ..McplCall::default()
    };
    if held.set.scoped {
        let rules = (set.clone(), held.scope);
        call = Box::pin(check_scope(cx, request, facts, tool, rules, arguments)).await?;
    }
    // Last, so that nobody waits for the turn of a call that a person thinks about.
    Box::pin(add_state(cx, request, tool, &set, rolls_back, &mut call)).await?;
    Ok(Some(call))
}

/// Waits for the turn of a call whose set has a state, and puts the state into it (MCPL §8.4).
async fn add_state(
    cx: &Context,
    request: &Request,
    tool: &CatalogTool,
    set: &str,
    rolls_back: bool,
    call: &mut McplCall,
) -> Result<(), Refusal> {
    let Some(key) = cx.states.key(&tool.server, set, &request.caller) else {
        return Ok(());
    };
    if !rolls_back && !cx.states.has_tree(&tool.server, &key).await {
        return Ok(());
    }
    let turn = tokio::select! {
        turn = cx.states.lock_tree(&tool.server, key) => turn?,
        () = request.call.wait_until_cancelled() => return Err(Refusal::Cancelled),
    };
    match &turn.carried {
        CarriedState::Nothing => {}
        CarriedState::State(data) => call.members.state = Some(data.to_string()),
        CarriedState::Checkpoint(id) => call.members.checkpoint = Some(quote(id)),
    }
    call.state_permit = Some(turn);
    Ok(())
}

/// The result as its caller reads it: without the state in it, which is kept (MCPL §8.2).
///
/// # Errors
/// [`Refusal::Internal`] when the disk does not take the state.
pub(crate) async fn finish_result(
    cx: &Context,
    request: &Request,
    call: McplCall,
    result: Bytes,
) -> Result<Bytes, Refusal> {
    let text = std::str::from_utf8(&result).unwrap_or_default();
    let state = can_contain_string(&result, "state")
        .then(|| state::split_state(text))
        .flatten();
    let Some((shown, said)) = state else {
        return Ok(result);
    };
    let Some((server, set)) = call.set else {
        tracing::warn!("a tool that belongs to no feature set answered a state; it is not kept");
        return Ok(shown.into());
    };
    let turn = match call.state_permit {
        Some(turn) => turn,
        None => match cx.states.key(&server, &set, &request.caller) {
            Some(key) => cx.states.lock_tree(&server, key).await?,
            None => return Ok(shown.into()),
        },
    };
    let standing = turn.settle(said).await?;
    if let Some(why) = &standing.rejection {
        let record = McplRecord {
            feature_set: Some(&set),
            agent: Some(&request.caller.agent),
            outcome: Outcome::Failure,
            reason: Some(why),
            ..McplRecord::from_server(&server, "tools/call")
        };
        audit::record(cx.mcpl.audit(), &record);
    }
    let shown = match (request.caller.mcpl.is_some(), &standing.rejection) {
        (true, _) => state::with_note(
            &shown,
            &StateMeta {
                feature_set: names::set_name(&server, &set),
                checkpoint: standing.checkpoint.as_deref().map(str::to_owned),
                refused: standing.rejection.clone(),
            },
        ),
        (false, Some(why)) => state::with_text(&shown, why),
        (false, None) => shown,
    };
    Ok(shown.into())
}

/// The set that a tool belongs to, enabled by the operator and wanted by its caller.
fn enabled_set(
    cx: &Context,
    caller: &Caller,
    tool: &CatalogTool,
) -> Result<Option<(String, DeclaredSet)>, Refusal> {
    let (server, own) = (&tool.server, &*tool.own_name);
    let sets = cx.mcpl.sets().load();
    if sets.get(server).is_none() {
        return Ok(None);
    }
    let defined = defined_set(cx, tool)?;
    let (set, held) = match sets.set_of_tool(server, own, defined.as_deref()) {
        ToolSet::None => return Ok(None),
        ToolSet::Member(set, held) => (set.to_owned(), held.clone()),
        ToolSet::Disabled(set) => return Err(disabled_refusal(server, set)),
        ToolSet::Undeclared(set) => return Err(undeclared_refusal(server, own, &set)),
        ToolSet::Ambiguous(sets) => return Err(ambiguous_set_refusal(server, own, &sets)),
    };
    if !held.set.uses.contains(&Capability::Tools) {
        return Err(Refusal::Forbidden(format!(
            "tool {own} belongs to the feature set {set}, which uses no tools"
        )));
    }
    if cx.mcpl_agents.allows_set(caller, server, &set) {
        Ok(Some((set, held)))
    } else {
        Err(Refusal::Forbidden(format!(
            "this client disabled the feature set {set} of {server}"
        )))
    }
}

/// What MCPL has to say of calls of a tool, for who asks why it can be called or cannot.
pub(crate) fn explain(cx: &Context, server: &ServerId, own: &str) -> Vec<String> {
    if !cx.mcpl.is_connected(server) {
        return Vec::new();
    }
    let shown = cx.catalog.load();
    let tools = shown.catalog.offers().flat_map(|offer| offer.tools());
    let mut tools = tools.filter(|tool| tool.server == *server && *tool.own_name == *own);
    let defined = match tools.next().map(|tool| defined_set(cx, tool)) {
        Some(Err(unknown)) => return vec![unknown.to_string()],
        Some(Ok(defined)) => defined,
        None => None,
    };
    let sets = cx.mcpl.sets().load();
    let told = match sets.set_of_tool(server, own, defined.as_deref()) {
        ToolSet::None => return Vec::new(),
        ToolSet::Member(set, held) if held.set.scoped => {
            let patterns = held.scope.patterns();
            let label = held.scope.label.as_ref().map(ToString::to_string);
            format!(
                "feature set {set} is enabled ({}); the scope of a call is {}: closed are [{}], open are [{}], else a person decides",
                held.reason.render(),
                label
                    .as_deref()
                    .unwrap_or("made of nothing yet, so no call goes"),
                patterns.blacklist.join(", "),
                patterns.whitelist.join(", "),
            )
        }
        ToolSet::Member(set, held) => {
            format!("feature set {set} is enabled ({})", held.reason.render())
        }
        ToolSet::Disabled(set) => disabled_refusal(server, set).to_string(),
        ToolSet::Undeclared(set) => undeclared_refusal(server, own, &set).to_string(),
        ToolSet::Ambiguous(sets) => ambiguous_set_refusal(server, own, &sets).to_string(),
    };
    vec![told]
}

/// The set that the definition of a tool names. While a change of it waits for approval, that is the one that was
/// approved.
fn defined_set(cx: &Context, tool: &CatalogTool) -> Result<Option<String>, Refusal> {
    let pins = &cx.policies.pins;
    match pins.earlier_set(&tool.server, &tool.own_name) {
        None => Ok(tool_feature_set(&tool.raw)),
        Some(EarlierSet::Approved(set)) => Ok(set),
        Some(EarlierSet::Unknown) => Err(Refusal::Forbidden(format!(
            "tool {} of {} has changed, and which feature set it belonged to is not known: look at it with `mgp pending`",
            tool.own_name, tool.server
        ))),
    }
}

fn undeclared_refusal(server: &ServerId, own: &str, set: &str) -> Refusal {
    Refusal::Forbidden(format!(
        "tool {own} belongs to the feature set {set:?}, which server {server} does not declare"
    ))
}

fn ambiguous_set_refusal(server: &ServerId, own: &str, sets: &[&str]) -> Refusal {
    Refusal::Forbidden(format!(
        "nobody says which feature set of {server} tool {own} belongs to, and some have scopes ({}); say it in mgp.toml: [mcpl.servers.{}.tools] {} = \"SET\"",
        sets.join(", "),
        render_toml_key(server.as_str()),
        render_toml_key(own),
    ))
}

async fn check_scope(
    cx: &Context,
    request: &Request,
    facts: &PendingCallRecord,
    tool: &CatalogTool,
    (set, rules): (String, ScopeRules),
    arguments: &str,
) -> Result<McplCall, Refusal> {
    let (server, own) = (&tool.server, &*tool.own_name);
    let Some(template) = &rules.label else {
        return Err(Refusal::Forbidden(format!(
            "nobody says what the scope of tool {own} is made of; say it in mgp.toml: [mcpl.servers.{}.scopes.{}] label = \"{{ARGUMENT}}\"",
            render_toml_key(server.as_str()),
            render_toml_key(&set),
        )));
    };
    let made = template
        .render_label(arguments)
        .map_err(|why| Refusal::Forbidden(format!("tool {own} is not called: {why}")))?;
    let payload = rules.enrich(&made.label, Some(&made.payload));
    let action = ScopedAction {
        server: server.clone(),
        set: set.clone(),
        label: made.label,
        payload,
        agent: Some(request.caller.agent.clone()),
        tool: Some(own.to_owned()),
    };
    if !cx
        .mcpl_agents
        .allows_scope(&request.caller, server, &set, &action.label)
    {
        facts.set_scope(&action, false, "its client closed it");
        return Err(closed_scope_refusal(&action, "this client closed it"));
    }
    let patience = cx.mcpl.set_keeper().rules().scope_patience;
    let decided = cx.mcpl.scopes().decide(&action, &rules, patience).await;
    facts.set_scope(&action, decided.approved, &decided.reason);
    if !decided.approved {
        return Err(closed_scope_refusal(&action, &decided.reason));
    }
    let payload = match &action.payload {
        Some(payload) => format!(r#","payload":{payload}"#),
        None => String::new(),
    };
    let scope = format!(r#"{{"label":{}{payload}}}"#, quote(&action.label));
    Ok(McplCall {
        members: McplMembers {
            scope: Some(scope),
            ..McplMembers::default()
        },
        set: Some((server.clone(), set)),
        scope: Some(action),
        state_permit: None,
    })
}

fn disabled_refusal(server: &ServerId, set: &str) -> Refusal {
    Refusal::Forbidden(format!(
        "the feature set {set} of {server} is not enabled; the operator enables it with `mgp mcpl sets enable {server} {set}`"
    ))
}

fn closed_scope_refusal(action: &ScopedAction, why: &str) -> Refusal {
    Refusal::Forbidden(format!(
        "the scope {:?} of {} is not open ({}): {why}",
        action.label, action.server, action.set
    ))
}

/// A key as it is written in TOML.
fn render_toml_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}
