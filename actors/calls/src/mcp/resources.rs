//! `resources/read`, `resources/subscribe`, `resources/unsubscribe`, and which server a URI belongs to.

use std::borrow::Cow;

use mgp_engine::tools::catalog::{ListKind, NamedItem};
use mgp_engine::tools::uris;
use mgp_json::{Splice, member, quote};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mcp::{self, resources};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::Context;
use crate::answer::{empty_result, parse_string, require_params};
use crate::checks::access;
use crate::checks::unlisted_names::{self, named_item};
use crate::mcp::apps::visible_app_uris;
use crate::mcp::{kernel_resources, skills};
use crate::replicas::replica_reads::{self, ReadRequest};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_policy::kernel_owner;
use mgp_servers::link::Peer;

/// Reads a resource; the contents carry the requested URI.
///
/// # Errors
/// Any refusal of a call.
pub async fn read(cx: &Context, request: &Request) -> Outcome {
    let params = require_params(request)?;
    let about: resources::ResourceParams<'_> = mcp::parse_params(Some(params))?;
    let uri = parse_string(about.uri, "uri")?;
    if kernel_resources::is_kernel_resource(&request.caller, &uri) {
        return kernel_resources::read_kernel_resource(cx, &request.caller, &uri).await;
    }
    skills::learn(cx, request, &uri).await;
    let (server, own) = Box::pin(find_owner(cx, request, &uri)).await?;
    let skill = skills::admit_file(cx, request, (&server, &own), &uri).await?;
    let reading = ReadRequest {
        kind: ListKind::Resources,
        server: &server,
        server_name: &own,
        method: "resources/read",
        params,
        edit: (about.uri.get(), &quote(&own)),
        token: progress_token(params)?,
        skill: skill.as_deref(),
        unknown: Refusal::UnknownResource(uri.clone()),
    };
    let result = replica_reads::read(cx, request, &reading).await?;
    let result = skills::verify(cx, request, (&server, &own), result)?;
    if own == uri {
        return Ok(result);
    }
    if let Some(named) = uris::named_server(&uri) {
        return Ok(visible_app_uris(&request.caller, &named, result));
    }
    Ok(rename_contents(&result, &own, &uri).map_or(result, Into::into))
}

/// The server a URI belongs to, and its own URI for it. Waits for a server that is starting and may
/// have it.
pub(crate) async fn find_owner(
    cx: &Context,
    request: &Request,
    uri: &str,
) -> Result<(ServerId, String), Refusal> {
    let look = || find_listed_owner(cx, &request.caller, uri);
    find_owner_with(
        cx,
        request,
        named_item(request, ListKind::Resources, uri),
        look,
    )
    .await
}

pub(crate) async fn find_owner_with(
    cx: &Context,
    request: &Request,
    named: NamedItem<'_>,
    look: impl Fn() -> Option<(ServerId, String)>,
) -> Result<(ServerId, String), Refusal> {
    if let Some(owner) = look() {
        return Ok(owner);
    }
    if let Some(owner) = Box::pin(unlisted_names::wait_for_item(cx, request, named, look)).await? {
        return Ok(owner);
    }
    match unlisted_names::unavailable_refusal(cx, &request.caller, named) {
        Some(away) => Err(away),
        None => find_unlisted_owner(cx, &request.caller, named.name),
    }
}

/// The same without waiting, including unavailable servers. A server that is closed to the caller has nothing.
pub(crate) fn find_owner_now(
    cx: &Context,
    caller: &Caller,
    uri: &str,
) -> Result<(ServerId, String), Refusal> {
    let named = NamedItem {
        view: &caller.view,
        kind: ListKind::Resources,
        name: uri,
    };
    let listed = find_listed_owner(cx, caller, uri);
    match listed.or_else(|| unlisted_names::unavailable_owner(cx, caller, named)) {
        Some(owner) => Ok(owner),
        None => find_unlisted_owner(cx, caller, uri),
    }
}

pub(crate) fn find_listed_owner(
    cx: &Context,
    caller: &Caller,
    uri: &str,
) -> Option<(ServerId, String)> {
    let shown = cx.catalog.load();
    let route = shown.catalog.resource(&caller.view, uri)?;
    if caller.view.is_merged() && is_of_unavailable_server(cx, route.server, uri) {
        return None;
    }
    let it = (ListKind::Resources, route.server, &*route.uri);
    Some((
        replica_reads::find_open_server(cx, caller, it)?,
        route.uri.into_owned(),
    ))
}

/// True for a URI that names another server than it was resolved to: that server is unavailable, and no other one answers
/// for it.
fn is_of_unavailable_server(cx: &Context, found: &ServerId, uri: &str) -> bool {
    let named = uris::named_server(uri);
    named.is_some_and(|named| named != *found && cx.servers.load().contains_key(&named))
}

/// A server may have resources it does not list; it is asked where only one server can be meant.
fn find_unlisted_owner(
    cx: &Context,
    caller: &Caller,
    uri: &str,
) -> Result<(ServerId, String), Refusal> {
    let shown = cx.catalog.load();
    if let Some(owner) = skills::find_unlisted_file(cx, caller, uri) {
        return Ok(owner);
    }
    // A wrapped URI names its server: no other one may answer.
    if caller.view.is_merged() && uris::is_wrapped(uri) {
        return Err(Refusal::UnknownResource(uri.to_owned()));
    }
    let mut can = shown.peers.iter().filter(|(id, peer)| {
        peer.capabilities.resources
            && caller.view.includes(id)
            && access::is_server_open(cx, caller, id)
    });
    match (can.next(), can.next()) {
        (Some((only, _)), None) => Ok((only.clone(), uri.to_owned())),
        (None | Some(_), _) => Err(Refusal::UnknownResource(uri.to_owned())),
    }
}

/// Replaces the server's own URI by the client's.
fn rename_contents(result: &[u8], own: &str, shown: &str) -> Option<String> {
    let result = std::str::from_utf8(result).ok()?;
    let contents = member(result, "contents")?;
    let contents: Vec<&RawValue> = serde_json::from_str(contents).ok()?;
    let mut splice = Splice::new(result);
    for content in contents {
        let uri = member(content.get(), "uri")?;
        if serde_json::from_str::<Cow<'_, str>>(uri).ok()? == own {
            splice.replace(uri, quote(shown));
        }
    }
    Some(splice.finish().into_owned())
}

/// `resources/subscribe`: one subscription at the server for any number of agents.
///
/// # Errors
/// Unknown resource, a full table, or the server's own error.
pub async fn subscribe(cx: &Context, request: &Request) -> Outcome {
    let about: resources::ResourceParams<'_> = mcp::parse_params(Some(require_params(request)?))?;
    let uri = parse_string(about.uri, "uri")?;
    if kernel_resources::is_event_resource(&request.caller, &uri) {
        cx.events.watch(request.caller.connection, uri).await?;
        return Ok(empty_result());
    }
    let (server, own) = subscription_target(cx, request, uri).await?;
    if !has_resource_updates(cx, &server) {
        return Err(Refusal::UnknownMethod(format!(
            "resources/subscribe (server {server} does not offer it)"
        )));
    }
    let server = open_subscription_key(cx, request, server).await?;
    cx.subscriptions
        .subscribe(request.caller.connection, server, own)
        .await?;
    Ok(empty_result())
}

/// The server of a resource that is subscribed to, and its URI there; the kernel has resources, too.
pub(crate) async fn subscription_target(
    cx: &Context,
    request: &Request,
    uri: String,
) -> Result<(ServerId, String), Refusal> {
    if kernel_resources::is_kernel_resource(&request.caller, &uri) {
        Ok((kernel_owner(), uri))
    } else {
        Box::pin(find_owner(cx, request, &uri)).await
    }
}

/// The key of a subscription at the server: with the caller's own instance, where it has one, which is
/// started.
pub(crate) async fn open_subscription_key(
    cx: &Context,
    request: &Request,
    server: ServerId,
) -> Result<ServerId, Refusal> {
    let life = subscription_key(cx, &request.caller, server);
    if life.is_instance() {
        cx.upstream(&life.server()).start(request).await?;
    }
    Ok(life)
}

fn subscription_key(cx: &Context, caller: &Caller, server: ServerId) -> ServerId {
    let servers = cx.servers.load();
    let handle = servers.get(&server);
    handle.map_or(server, |handle| handle.subscription_key(caller))
}

/// True when the server announces changes of its resources.
pub(crate) fn has_resource_updates(cx: &Context, server: &ServerId) -> bool {
    let tells = |peer: &Peer| peer.capabilities.resources_subscribe;
    *server == kernel_owner() || cx.catalog.load().peers.get(server).is_some_and(tells)
}

/// `resources/unsubscribe`.
///
/// # Errors
/// Unknown resource.
pub async fn unsubscribe(cx: &Context, request: &Request) -> Outcome {
    let about: resources::ResourceParams<'_> = mcp::parse_params(Some(require_params(request)?))?;
    let uri = parse_string(about.uri, "uri")?;
    if kernel_resources::is_event_resource(&request.caller, &uri) {
        cx.events.unwatch(request.caller.connection, uri);
        return Ok(empty_result());
    }
    let (server, own) = if kernel_resources::is_kernel_resource(&request.caller, &uri) {
        (kernel_owner(), uri)
    } else {
        // The server need not be connected for this.
        find_owner_now(cx, &request.caller, &uri)?
    };
    let server = subscription_key(cx, &request.caller, server);
    cx.subscriptions
        .unsubscribe(request.caller.connection, server, own)
        .await?;
    Ok(empty_result())
}

/// Whether a request that waited for its client may continue.
///
/// # Errors
/// [`Refusal::UnknownResource`] for one that is closed to the caller by now.
pub fn recheck(cx: &Context, caller: &Caller, params: &str) -> Result<(), Refusal> {
    let about: resources::ResourceParams<'_> = mcp::parse_params(Some(params))?;
    find_owner_now(cx, caller, &parse_string(about.uri, "uri")?).map(|_| ())
}
