//! The kernel's own resources: the pending entries of the operator, and the last events of channels.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_json::quote;
use mgp_protocol::mcpl::push;
use mgp_protocol::mgp::approvals::PENDING_URI;
use mgp_protocol::mgp::events::RESOURCES;
use mgp_protocol::mgp::negotiation::Features;
use serde_json::json;

use crate::Context;
use crate::answer::complete_result;
use crate::mgp::approvals::render_pending;
use mgp_callers::request::{Caller, Outcome};
use mgp_policy::render_resource;

/// The list of channels, as a resource.
const CHANNELS_URI: &str = "mgp://events";
const CHANNELS_RESOURCE: &str = r#"{"uri":"mgp://events","name":"mgp_events","title":"Channels of events","description":"The channels there are; the last events of one are mgp://events/CHANNEL","mimeType":"application/json"}"#;
const EVENTS_TEMPLATE: &str = r#"{"uriTemplate":"mgp://events/{channel}","name":"mgp_events_channel","title":"Last events of a channel","description":"The last events of a channel, such as tool.completed, as far as you may hear of them","mimeType":"application/json"}"#;

const PUSHES_TEMPLATE: &str = r#"{"uriTemplate":"mgp://push/{server}/{set}","name":"mgp_push_events","title":"Last push events of a feature set","description":"The last events that a server pushed in the name of one of its feature sets","mimeType":"application/json"}"#;

/// True for a URI of the kernel's own: the list of pending entries, which only the operator can read, and the last
/// events of a channel.
pub(crate) fn is_kernel_resource(caller: &Caller, uri: &str) -> bool {
    (has_kernel_resources(caller) && uri == PENDING_URI) || is_event_resource(caller, uri)
}

/// True for the last events of a channel, and for the list of channels.
pub(crate) fn is_event_resource(caller: &Caller, uri: &str) -> bool {
    let named =
        uri == CHANNELS_URI || uri.starts_with(RESOURCES) || uri.starts_with(push::RESOURCES);
    caller.view.is_merged() && named
}

/// The answer to `resources/read` of one of them.
pub(crate) async fn read_kernel_resource(cx: &Context, caller: &Arc<Caller>, uri: &str) -> Outcome {
    let text = match is_event_resource(caller, uri) {
        true if uri == CHANNELS_URI => {
            let channels = cx.events.channels(caller.clone()).await?;
            json!({"channels": channels}).to_string()
        }
        true => cx.events.last(caller, uri).await?,
        false => render_pending(cx).await?,
    };
    let (uri, text) = (quote(uri), quote(&text));
    let contents =
        format!(r#"{{"contents":[{{"uri":{uri},"mimeType":"application/json","text":{text}}}]}}"#);
    // It changes whenever an entry is added or answered, and with every event.
    let kept = || r#","ttlMs":0,"cacheScope":"private""#.to_owned();
    Ok(complete_result(caller, contents.into(), kept))
}

fn has_kernel_resources(caller: &Caller) -> bool {
    caller.operator && caller.view == CatalogView::All
}

/// Plain clients learn of them from the documentation alone: their lists contain no MGP text.
fn can_list_events(caller: &Caller) -> bool {
    caller.view.is_merged() && caller.mgp.features().contains(Features::EVENTS)
}

/// The kernel's own entries of a list, and how that list begins.
fn kernel_entries(caller: &Caller, kind: ListKind) -> (&'static [u8], Vec<String>) {
    let events = can_list_events(caller);
    match kind {
        ListKind::Resources => {
            let waits = has_kernel_resources(caller).then(render_resource);
            let events = events.then(|| CHANNELS_RESOURCE.to_owned());
            let all = waits.into_iter().chain(events).collect();
            (br#"{"resources":["#, all)
        }
        ListKind::Templates => {
            let both = [EVENTS_TEMPLATE, PUSHES_TEMPLATE].map(str::to_owned);
            let all = both.into_iter().filter(|_| events).collect();
            (br#"{"resourceTemplates":["#, all)
        }
        ListKind::Tools | ListKind::Prompts => (b"", Vec::new()),
    }
}

/// The first page of a list, with the kernel's own entries before the servers'.
pub(crate) fn add_kernel_entries(
    page: Bytes,
    caller: &Caller,
    kind: ListKind,
    first: bool,
) -> Bytes {
    let (open, own) = kernel_entries(caller, kind);
    let (true, false, Some(servers)) = (first, own.is_empty(), page.strip_prefix(open)) else {
        return page;
    };
    let comma: &[u8] = if servers.starts_with(b"]") { b"" } else { b"," };
    let own = own.join(",");
    [open, own.as_bytes(), comma, servers].concat().into()
}
