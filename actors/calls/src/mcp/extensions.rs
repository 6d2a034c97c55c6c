//! Extensions of MCP that the kernel does not know: what servers declare of them, and their methods and notifications.
//!
//! A request goes to the one server that the endpoint or the operator's configuration names; any other is unknown here.

use mgp_engine::calls::extensions::{is_relayable_method, is_relayable_notification};
use mgp_engine::cluster::remote_requests::{self, RemoteTarget};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::catalog::CatalogView;
use mgp_json::render_object;
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::extensions::{
    has_unknown_extension, is_specified_for, relayed_extensions, with_extensions,
};
use mgp_protocol::mcp::meta::{SKILLS, UI};
use mgp_protocol::mgp::audit::{Event, EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use serde_json::Map;

use crate::Context;
use crate::audit;
use crate::checks::access;
use crate::mcp::skills;
use crate::relayed::Relayed;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::unix_ms;
use mgp_runtime::trace::Trace;
use mgp_servers::link::Peer;

/// The capabilities of a view of one server, with the extensions it declared.
pub(crate) fn add_server_extensions(capabilities: &str, peer: &Peer, version: Version) -> String {
    let mut extensions = relayed_extensions(&peer.raw_capabilities);
    extensions.retain(|(id, _)| is_specified_for(id, version));
    let extensions = extensions.iter().map(|(id, json)| (id, json.get()));
    with_extensions(capabilities, &render_object(extensions))
}

/// The capabilities of a merged view: MCP Apps, which the kernel relays for every server, and the extensions of servers
/// whose methods the operator allows there. Different settings of the same extension say nothing.
pub(crate) fn add_merged_extensions(cx: &Context, capabilities: &str, caller: &Caller) -> String {
    let shown = cx.catalog.load();
    let mut all = vec![(UI.into(), "{}")];
    if is_specified_for(SKILLS, caller.version) && skills::is_offered(cx, caller) {
        all.push((SKILLS.into(), r#"{"directoryRead":true}"#));
    }
    for (server, peer) in &shown.peers {
        let allowed = shown.catalog.offer(server);
        let allowed = allowed.is_some_and(|offer| !offer.rules().merged_methods.is_empty());
        if !allowed || server.is_remote() || !access::can_see_server(cx, caller, server) {
            continue;
        }
        for (id, settings) in relayed_extensions(&peer.raw_capabilities) {
            match all.iter_mut().find(|(known, _)| *known == id) {
                Some((_, known)) if *known == settings.get() => {}
                Some((_, known)) => *known = "{}",
                None if is_specified_for(&id, caller.version) => all.push((id, settings.get())),
                None => {}
            }
        }
    }
    with_extensions(capabilities, &render_object(all))
}

/// The server that a method of an extension goes to for this caller, if there is exactly one: that of the endpoint, if it
/// declares an extension that the kernel does not know, or in a merged view the one for which the operator allowed the
/// method.
#[must_use]
pub fn find_server(cx: &Context, caller: &Caller, method: &str) -> Option<ServerId> {
    let is_allowed = remote_requests::is_allowed(&caller.agent, RemoteTarget::ExtensionMethod);
    if !is_allowed || !is_relayable_method(method) {
        return None;
    }
    let server = match &caller.view {
        CatalogView::One(server) => server.clone(),
        CatalogView::All | CatalogView::Set(_) => {
            let shown = cx.catalog.load();
            let mut allowed = shown.catalog.offers().filter(|offer| {
                offer.rules().merged_methods.contains(method)
                    && access::is_server_open(cx, caller, offer.server())
            });
            match (allowed.next(), allowed.next()) {
                (Some(only), None) => only.server().clone(),
                (None | Some(_), _) => return None,
            }
        }
    };
    is_relayed_to(cx, caller, &server).then_some(server)
}

/// Whether this server declares an extension that the kernel does not know, and is open to the caller.
fn is_relayed_to(cx: &Context, caller: &Caller, server: &ServerId) -> bool {
    let shown = cx.catalog.load();
    let peer = shown.peers.get(server);
    peer.is_some_and(|peer| has_unknown_extension(&peer.raw_capabilities))
        && access::is_server_open(cx, caller, server)
}

/// Relays a request of an extension. It counts as a call and is recorded as one.
///
/// # Errors
/// Any refusal of a call; [`Refusal::UnknownMethod`] if no server is open to the caller for it.
pub async fn relay(cx: &Context, request: &Request) -> Outcome {
    let unknown = || Refusal::UnknownMethod(request.method.to_string());
    audit::run_audited(cx, request, async |facts| {
        let server = find_server(cx, &request.caller, &request.method).ok_or_else(unknown)?;
        let params = request.params.as_deref();
        facts.set_request(&request.method, request, params);
        facts.set_server(&server);
        cx.policies.count_call(&request.caller)?;
        let relayed = Relayed {
            server: &server,
            tool: None,
            method: &request.method,
            params: params.unwrap_or("{}"),
            edit: ("", ""),
            unknown: unknown(),
        };
        relayed.send(cx, request).await
    })
    .await
}

/// Relays a notification of a client to the server of its endpoint, if that declares an extension that the kernel does not
/// know. In a merged view it belongs to no server.
pub fn relay_notification(cx: &Context, caller: &Caller, method: &str, params: Option<&str>) {
    let CatalogView::One(server) = &caller.view else {
        return;
    };
    // A link has no messages but those of a call.
    if caller.agent.is_remote()
        || server.is_remote()
        || !is_relayable_notification(method)
        || !is_relayed_to(cx, caller, server)
        || cx.policies.count_call(caller).is_err()
    {
        return;
    }
    cx.audit.record(Event {
        timestamp: render_rfc3339_ms(unix_ms()),
        trace_id: Trace::from_params(params, None).id,
        event_type: EventType::ToolExecuted,
        actor: audit::caller_actor(caller),
        target: Target {
            server_id: Some(server.to_string()),
            tool_name: Some(method.to_owned()),
            agent_id: None,
        },
        result: Ending::Success,
        details: Map::new(),
    });
    cx.upstream(server).notify(caller, method, params);
}
