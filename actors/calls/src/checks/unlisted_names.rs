//! Names that are in no published list. A caller that may use an unavailable server waits for it, or gets its state.
//! For all other callers the name does not exist, and they are answered without waiting.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use mgp_engine::policy::access::{GrantTable, Principal};
use mgp_engine::tool_names;
use mgp_engine::tools::catalog::{ClaimOutcome, ListKind, NameClaim, NamedItem};
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::{Denial, Refusal};

use crate::Context;
use crate::checks::access;
use mgp_callers::request::{Caller, Request};
use mgp_runtime::time::unix_ms;
use mgp_servers::ServerHandle;
use mgp_tools::PublishedCatalog;

pub(crate) fn named_item<'a>(request: &'a Request, kind: ListKind, name: &'a str) -> NamedItem<'a> {
    NamedItem {
        view: &request.caller.view,
        kind,
        name,
    }
}

/// A server that a name may refer to, and whether to wait for it.
struct CandidateServer {
    handle: Arc<ServerHandle>,
    /// The server's own name for the thing, where it is known.
    server_name: Option<String>,
    is_qualified: bool,
    was_offered: bool,
    prospect: ClaimOutcome,
}

/// Repeats `look` whenever one of the candidate servers has connected, until it finds something; `None` when there is
/// none left to wait for.
///
/// # Errors
/// [`Refusal::Cancelled`]; [`Refusal::Overloaded`] where too many wait already.
pub(crate) async fn wait_for_item<T>(
    cx: &Context,
    request: &Request,
    named: NamedItem<'_>,
    look: impl Fn() -> Option<T>,
) -> Result<Option<T>, Refusal> {
    let mut claimants = candidates(cx, &request.caller, named);
    claimants.retain(|claimant| claimant.prospect.should_wait);
    // Look before waiting: a server that connected just now is no longer among those waited for.
    if let Some(found) = look() {
        return Ok(Some(found));
    }
    let arrivals = claimants.iter();
    let arrivals = arrivals.map(|one| {
        let handle = &one.handle;
        handle.connection(Some(&request.caller), &request.call)
    });
    let mut arrivals: FuturesUnordered<_> = arrivals.collect();
    while let Some(arrival) = arrivals.next().await {
        if let Err(stop @ (Refusal::Cancelled | Refusal::Overloaded { .. })) = arrival {
            return Err(stop);
        }
        if let Some(found) = look() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The state of the named server, if it is unavailable and the caller may know of it.
pub(crate) fn unavailable_refusal(
    cx: &Context,
    caller: &Caller,
    named: NamedItem<'_>,
) -> Option<Refusal> {
    let told = candidates(cx, caller, named);
    let told = told
        .into_iter()
        .find(|claimant| claimant.prospect.should_report_status)?;
    Some(told.handle.not_ready_refusal())
}

/// The named server while it is unavailable, and its own name for the thing: for requests that do not need a
/// connection.
pub(crate) fn unavailable_owner(
    cx: &Context,
    caller: &Caller,
    named: NamedItem<'_>,
) -> Option<(ServerId, String)> {
    let told = candidates(cx, caller, named);
    let told = told
        .into_iter()
        .find(|claimant| claimant.prospect.should_report_status)?;
    Some((told.handle.id.clone(), told.server_name?))
}

/// All servers without a published list that this name may belong to.
fn candidates(cx: &Context, caller: &Caller, named: NamedItem<'_>) -> Vec<CandidateServer> {
    let (servers, shown) = (cx.servers.load(), cx.catalog.load());
    let (table, who) = (cx.policies.access.table(), caller.identity());
    let (mut found, mut formed) = (Vec::new(), false);
    for (id, handle) in servers.iter() {
        // A server the caller does not know of must not change the answer.
        if !table.is_server_visible(&who, id, unix_ms()) {
            continue;
        }
        formed |= named.is_qualified_for(id);
        if !shown.is_current(id) {
            found.extend(to_candidate(&table, &who, handle, named));
        }
    }
    if formed {
        found.retain(|claimant| claimant.is_qualified)
    } else {
        // A bare name that several servers offer belongs to none of them.
        let had = found.iter().filter(|claimant| claimant.was_offered).count();
        if had + count_listed(cx, &shown, caller, named) > 1 {
            found.retain(|claimant| !claimant.was_offered);
        }
    }
    found
}

/// How many connected servers have something of this bare name that the caller may see.
fn count_listed(
    cx: &Context,
    shown: &PublishedCatalog,
    caller: &Caller,
    named: NamedItem<'_>,
) -> usize {
    let (table, who, now) = (cx.policies.access.table(), caller.identity(), unix_ms());
    let tool = (named.kind == ListKind::Tools).then_some(named.name);
    let has = shown.catalog.offers().filter(|offer| {
        named.view.is_merged()
            && shown.is_current(offer.server())
            && table.is_allowed(&who, offer.server(), tool, now)
            && offer.offers_item(named.kind, named.name)
    });
    has.count()
}

/// What a server without a published list can claim of the name.
fn to_candidate(
    table: &GrantTable,
    who: &Principal,
    handle: &Arc<ServerHandle>,
    named: NamedItem<'_>,
) -> Option<CandidateServer> {
    let (id, now) = (&handle.id, unix_ms());
    let outlook = handle.outlook();
    let last = handle.last_offer();
    let claim = named.claim(id, last.as_ref())?;
    let formed = claim.is_qualified;
    let offered = claim.was_offered == Some(true);
    let open = table.is_server_open(who, id, now);
    let own = match named.kind {
        ListKind::Tools => server_tool_name(table, who, id, &claim, named.name),
        ListKind::Prompts | ListKind::Resources | ListKind::Templates => claim.own_name.clone(),
    };
    let may = match (named.kind, &own) {
        (ListKind::Tools, Some(own)) => table.is_allowed(who, id, Some(own), now),
        (ListKind::Tools, None) => false,
        (ListKind::Prompts | ListKind::Resources | ListKind::Templates, _) => open,
    };
    Some(CandidateServer {
        handle: handle.clone(),
        prospect: claim.evaluate(outlook, open, may),
        server_name: own.map(Cow::into_owned),
        is_qualified: formed,
        was_offered: offered,
    })
}

/// The server's own name for a tool. A name shortened with a hash is looked up among the names in grants,
/// where the server itself has offered none.
fn server_tool_name<'a>(
    table: &'a GrantTable,
    who: &Principal,
    server: &ServerId,
    claim: &NameClaim<'a>,
    name: &str,
) -> Option<Cow<'a, str>> {
    let granted = || {
        let mut granted = table.named_tools(who, server);
        granted.find(|tool| tool_names::visible_name(server, tool) == name)
    };
    claim
        .own_name
        .clone()
        .or_else(|| granted().map(Cow::Borrowed))
}

/// The refusal for a tool that changed or whose server is unavailable (MGP-193), as far as the caller may know.
pub(crate) fn absent_refusal(cx: &Context, caller: &Caller, name: String) -> Refusal {
    let named = NamedItem {
        view: &caller.view,
        kind: ListKind::Tools,
        name: &name,
    };
    let why = changed_refusal(cx, caller, &name);
    let why = why.or_else(|| unavailable_refusal(cx, caller, named));
    why.unwrap_or(Refusal::UnknownTool(name))
}

/// A changed tool is hidden from all; a caller that speaks MGP and may call it gets the reason (MGP-202).
fn changed_refusal(cx: &Context, caller: &Caller, name: &str) -> Option<Refusal> {
    if !caller.mgp.has_error_codes() {
        return None;
    }
    let (server, own) = cx.policies.pins.find_blocked_tool(&caller.view, name)?;
    let unknown = Refusal::UnknownTool(name.to_owned());
    access::admit(cx, caller, &server, Some(&own), unknown).ok()?;
    Some(Refusal::Denied(Box::new(Denial::Disabled {
        tool: name.to_owned(),
        reason: format!(
            "its definition is not the one that was approved; `mgp pending` shows the operator the change of server {server}"
        ),
    })))
}
