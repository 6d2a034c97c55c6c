//! `mgp/discovery/*` (MGP §15), as methods and as tools of the kernel: for the operator, for agents that
//! negotiated `discovery`, and for those that may register servers.

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::discovery::{Deregister, DiscoveryTool, List, Register, Server, Servers};
use mgp_protocol::mgp::matches_method;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json_outcome;
use crate::checks::access;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_servers::ServerHandle;
use mgp_tools::registrar::status_remarks;

/// The tool of that name or spelling, when it is one for this caller.
pub(super) fn find_tool(cx: &Context, caller: &Caller, name: &str) -> Option<DiscoveryTool> {
    let mut all = DiscoveryTool::ALL.into_iter();
    let tool = all.find(|tool| matches_method(tool.method(), name))?;
    is_offered(cx, caller).then_some(tool)
}

/// Whether these methods exist for a caller: it negotiated them, or may register servers.
#[must_use]
pub fn is_offered(cx: &Context, caller: &Caller) -> bool {
    caller.mgp.features().contains(Features::DISCOVERY) || can_register(cx, caller)
}

/// A server that is registered is in no set, so who is in one registers none.
pub(crate) fn can_register(cx: &Context, caller: &Caller) -> bool {
    cx.registrar.can_register(caller) && !access::is_restricted_by_set(cx, caller)
}

/// The definitions of these tools, for callers that may register servers.
pub(crate) fn registration_tools(cx: &Context, caller: &Caller, security: bool) -> Vec<String> {
    let agent = !caller.operator && can_register(cx, caller);
    let all = DiscoveryTool::ALL.iter().filter(|_| agent);
    all.map(|tool| tool.definition(security)).collect()
}

/// `mgp/discovery/*` as a method.
///
/// # Errors
/// [`Refusal::BadParams`]; what stands against it.
pub async fn answer(cx: &Context, request: &Request, tool: DiscoveryTool) -> Outcome {
    execute(cx, request, tool, request.params.as_deref()).await
}

/// What the method answers, whichever way it was called.
pub(super) async fn execute(
    cx: &Context,
    request: &Request,
    tool: DiscoveryTool,
    params: Option<&str>,
) -> Outcome {
    let (caller, trace) = (&request.caller, &request.trace);
    match tool {
        DiscoveryTool::List => list_servers(cx, caller, &parse_list(params)?).await,
        DiscoveryTool::Register if access::is_restricted_by_set(cx, caller) => Err(
            Refusal::Forbidden("within a set no server can be registered".into()),
        ),
        DiscoveryTool::Register => {
            let ask: Register = mcp::parse_params(params)?;
            let needs = ask.mgp.permissions_required.clone();
            let mut told = cx.registrar.register(caller, trace, ask).await?;
            let without = describe_missing_permissions(cx, &told.id, &told.status, &needs);
            told.remarks.extend(without);
            json_outcome(&told)
        }
        DiscoveryTool::Deregister => {
            let ask: Deregister = mcp::parse_params(params)?;
            json_outcome(&cx.registrar.deregister(caller, trace, ask).await?)
        }
    }
}

/// Every server this caller may know of.
async fn list_servers(cx: &Context, caller: &Caller, list: &List) -> Outcome {
    let mut servers = Vec::new();
    let all = cx.servers.load();
    let registrations = cx.registrar.registrations.lock().await;
    for (id, handle) in all.iter() {
        if !caller.view.includes(id) || !access::can_see_server(cx, caller, id) {
            continue;
        }
        let mut server = describe_server(cx, caller, handle);
        let record = registrations.servers.get(id);
        server.created_by = record.map(|record| record.created_by.clone());
        if record.is_some_and(|record| record.is_owned_by(caller)) {
            server.remarks = status_remarks(handle);
            let needs = &server.permissions_required;
            let without = describe_missing_permissions(cx, &server.id, &server.status, needs);
            server.remarks.extend(without);
        }
        if list.filter.matches(&server) {
            servers.push(server);
        }
    }
    json_outcome(&Servers { servers })
}

/// Which permissions a running server needs and does not have, in words.
fn describe_missing_permissions(
    cx: &Context,
    server: &str,
    state: &str,
    needs: &[String],
) -> Option<String> {
    if state != LifecycleState::Connected.as_str() {
        return None;
    }
    let lacking = cx
        .policies
        .permissions
        .find_missing(&ServerId::new(server), needs);
    lacking.map(|lacking| lacking.to_string())
}

fn describe_server(cx: &Context, caller: &Caller, handle: &ServerHandle) -> Server {
    let status = handle.status();
    let link = handle.link();
    let spoken = link.as_ref().and_then(|link| link.mgp().as_active());
    let catalog = &cx.catalog.load().catalog;
    let who = caller.identity();
    let tools = handle.tools();
    let tools = tools.iter().filter_map(|own| {
        let tool = catalog.tool(&caller.view, &caller.view.name_for(&handle.id, own))?;
        let name = || tool.name_in_view(&caller.view).to_owned();
        access::can_call(cx, &who, tool).then(name)
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
            Some(active) => active
                .extension_names()
                .iter()
                .map(ToString::to_string)
                .collect(),
            None => declared.extensions.clone(),
        },
        permissions_required: permissions,
        tools,
        trust_level: handle.trust().word_for(&caller.mgp).into(),
        node: handle.id.remote_parts().map(|(node, _)| node.to_owned()),
        created_by: None,
        remarks: Vec::new(),
    }
}

fn parse_list(params: Option<&str>) -> Result<List, Refusal> {
    mcp::parse_params(Some(params.unwrap_or("{}")))
}
