//! `mgp/discovery/*` (MGP §15), as methods and as tools of the kernel: for the operator, for agents that
//! negotiated `discovery`, and for those that may register servers.

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::discovery::{Deregister, DiscoveryTool, List, Register, Server, Servers};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::spells;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json;
use crate::checks::access;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_servers::server::ServerHandle;
use mgp_tools::registrar::remarks;

/// The tool of that name or spelling, when it is one for this caller.
pub(super) fn tool(cx: &Context, caller: &Caller, name: &str) -> Option<DiscoveryTool> {
    let mut all = DiscoveryTool::ALL.into_iter();
    let tool = all.find(|tool| spells(tool.method(), name))?;
    offered(cx, caller).then_some(tool)
}

/// Whether these methods exist for a caller: it negotiated them, or may register servers.
#[must_use]
pub fn offered(cx: &Context, caller: &Caller) -> bool {
    caller.mgp.features().contains(Features::DISCOVERY) || may_register(cx, caller)
}

/// A server that is registered is in no set, so who is in one registers none.
pub(crate) fn may_register(cx: &Context, caller: &Caller) -> bool {
    cx.registrar.may_register(caller) && !access::is_narrowed(cx, caller)
}

/// The definitions of these tools, for callers that may register servers.
pub(crate) fn registering_tools(cx: &Context, caller: &Caller, security: bool) -> Vec<String> {
    let agent = !caller.operator && may_register(cx, caller);
    let all = DiscoveryTool::ALL.iter().filter(|_| agent);
    all.map(|tool| tool.definition(security)).collect()
}

/// `mgp/discovery/*` as a method.
///
/// # Errors
/// [`Refusal::BadParams`]; what stands against it.
pub async fn answer(cx: &Context, request: &Request, tool: DiscoveryTool) -> Outcome {
    answered(cx, request, tool, request.params.as_deref()).await
}

/// What the method answers, whichever way it was called.
pub(super) async fn answered(
    cx: &Context,
    request: &Request,
    tool: DiscoveryTool,
    params: Option<&str>,
) -> Outcome {
    let (caller, trace) = (&request.caller, &request.trace);
    match tool {
        DiscoveryTool::List => discovered_servers(cx, caller, &read_list(params)?).await,
        DiscoveryTool::Register if access::is_narrowed(cx, caller) => Err(Refusal::Forbidden(
            "within a set no server can be registered".into(),
        )),
        DiscoveryTool::Register => {
            let ask: Register = mcp::read(params)?;
            let needs = ask.mgp.permissions_required.clone();
            let mut told = cx.registrar.register(caller, trace, ask).await?;
            let without = does_without(cx, &told.id, &told.status, &needs);
            told.remarks.extend(without);
            json(&told)
        }
        DiscoveryTool::Deregister => {
            let ask: Deregister = mcp::read(params)?;
            json(&cx.registrar.deregister(caller, trace, ask).await?)
        }
    }
}

/// Every server this caller may know of.
async fn discovered_servers(cx: &Context, caller: &Caller, list: &List) -> Outcome {
    let mut servers = Vec::new();
    let all = cx.servers.load();
    let registrations = cx.registrar.registrations.lock().await;
    for (id, handle) in all.iter() {
        if !caller.view.shows(id) || !access::sees(cx, caller, id) {
            continue;
        }
        let mut server = described(cx, caller, handle);
        let record = registrations.servers.get(id);
        server.created_by = record.map(|record| record.created_by.clone());
        if record.is_some_and(|record| record.is_of(caller)) {
            server.remarks = remarks(handle);
            let needs = &server.permissions_required;
            let without = does_without(cx, &server.id, &server.status, needs);
            server.remarks.extend(without);
        }
        if list.filter.takes(&server) {
            servers.push(server);
        }
    }
    json(&Servers { servers })
}

/// Which permissions a running server needs and does not have, in words.
fn does_without(cx: &Context, server: &str, state: &str, needs: &[String]) -> Option<String> {
    if state != LifecycleState::Connected.as_str() {
        return None;
    }
    let lacking = cx.policies.permissions.lacks(&ServerId::new(server), needs);
    lacking.map(|lacking| lacking.to_string())
}

fn described(cx: &Context, caller: &Caller, handle: &ServerHandle) -> Server {
    let status = handle.status();
    let link = handle.link();
    let spoken = link.as_ref().and_then(|link| link.mgp().active());
    let catalog = &cx.shown.load().catalog;
    let who = caller.identity();
    let tools = handle.tools();
    let tools = tools.iter().filter_map(|own| {
        let tool = catalog.tool(&caller.view, &caller.view.name_of(&handle.id, own))?;
        let name = || tool.name_in(&caller.view).to_owned();
        access::may_call(cx, &who, tool).then(name)
    });
    let tools = tools.collect();
    let declared = &status.declared;
    let mut permissions = declared.permissions_required.clone();
    let said = spoken.map(|active| active.peer.permissions_required.clone());
    permissions.extend(said.unwrap_or_default());
    permissions.sort();
    permissions.dedup();
    Server {
        id: handle.id.to_string(),
        status: status.state.as_str().into(),
        mgp_version: spoken.map(|active| active.version.to_string()),
        extensions: match spoken {
            Some(active) => active.words().iter().map(ToString::to_string).collect(),
            None => declared.extensions.clone(),
        },
        permissions_required: permissions,
        tools,
        trust_level: handle.trust().as_str().into(),
        node: handle.id.at_node().map(|(node, _)| node.to_owned()),
        created_by: None,
        remarks: Vec::new(),
    }
}

fn read_list(params: Option<&str>) -> Result<List, Refusal> {
    mcp::read(Some(params.unwrap_or("{}")))
}
