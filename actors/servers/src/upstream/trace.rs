//! Propagates the trace to the server (MGP §6.5, A-05): as a param if the server negotiated MGP, else in `_meta`
//! and only if the caller sent it there. Other MGP members are removed for servers that do not speak MGP.

use mgp_engine::callers::request_ids::WireId;
use mgp_json::{Splice, can_contain_string, member, quote};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mgp::stream;

use super::Outgoing;
use super::streams::RequestedStream;
use crate::link::Link;
use mgp_callers::request::Request;
use mgp_runtime::trace::{ChildSpan, Trace, new_span_id};

/// Members that MGP adds to requests.
const MGP_MEMBERS: [&str; 2] = ["trace_id", "_mgp"];

/// True if params may contain such members.
#[must_use]
pub fn may_hold_mgp(params: &str) -> bool {
    let mut names = MGP_MEMBERS.iter();
    names.any(|name| can_contain_string(params.as_bytes(), name))
}

/// Adds the trace to the params for a server, and the request for chunks or progress with a token of the kernel;
/// removes members that are not for the server.
pub(super) fn add_trace(
    request: &Request,
    link: &Link,
    family: ProtocolFamily,
    outgoing: Outgoing<'_>,
    (requested, id, part): (RequestedStream<'_>, WireId, Option<&ChildSpan>),
    splice: &mut Splice<'_>,
) {
    let (trace, params) = (&request.trace, outgoing.params);
    outgoing.add_mcpl_members(link, family, splice);
    // The parent is the kernel's span, not the caller's.
    let below = part.map(|part| {
        let state = part.tracestate().map(quote);
        [
            ("traceparent", Some(quote(&part.traceparent()))),
            ("tracestate", state),
        ]
    });
    let token = requested.progress_token(id).map(|token| token.to_string());
    if link.mgp_for(family).is_active() {
        let id = quote(trace.id.as_str());
        let mut missing = Vec::new();
        match read_member(params, "trace_id") {
            None => missing.push(("trace_id", &*id)),
            // A caller's trace id that the kernel did not accept is not propagated.
            Some(other) if !trace.matches_id(other) => splice.replace(other, id.clone()),
            Some(_) => {}
        }
        match requested.stream {
            Some(_) => missing.extend(stream::add_stream_request(params, splice)),
            None if outgoing.may_hold_mgp => stream::remove_stream_request(params, splice),
            None => {}
        }
        splice.insert_members(params, &missing);
        // Trace context from HTTP headers is not in the params yet; its sampling flag is the caller's decision.
        let [parent, state] = caller_trace_context(trace)
            .filter(|_| below.is_none())
            .unwrap_or_default();
        let wanted = [
            ("traceparent", parent),
            ("tracestate", state),
            ("progressToken", token),
        ];
        if below.is_some() || wanted.iter().any(|(_, value)| value.is_some()) {
            add_to_meta(&wanted, below, params, splice);
        }
        return;
    }
    if outgoing.may_hold_mgp {
        splice.remove_members(params, &MGP_MEMBERS);
    }
    // A caller with a trace id but no span gets a kernel span as parent, which is not exported.
    let own = || {
        [
            trace.id.to_traceparent(new_span_id()).as_deref().map(quote),
            None,
        ]
    };
    let passed_on = trace.is_caller_supplied && below.is_none();
    let [parent, state] = if passed_on {
        caller_trace_context(trace).unwrap_or_else(own)
    } else {
        [None, None]
    };
    let wanted = [
        (
            "trace_id",
            trace.is_caller_supplied.then(|| quote(trace.id.as_str())),
        ),
        ("traceparent", parent),
        ("tracestate", state),
        ("progressToken", token),
    ];
    if below.is_some() || wanted.iter().any(|(_, value)| value.is_some()) {
        add_to_meta(&wanted, below, params, splice);
    }
}

/// The caller's own trace context of an unsampled request, propagated unchanged. `traceparent` and `tracestate`,
/// as JSON text.
fn caller_trace_context(trace: &Trace) -> Option<[Option<String>; 2]> {
    let (parent, state) = trace.caller_headers()?;
    Some([Some(quote(&parent)), state.map(quote)])
}

/// The two members of `_meta` that name the parent span.
type TraceContext = [(&'static str, Option<String>); 2];

/// Adds the wanted members that are missing to `_meta`, and replaces existing trace context with the kernel's
/// span.
fn add_to_meta(
    wanted: &[(&str, Option<String>)],
    below: Option<TraceContext>,
    params: &str,
    splice: &mut Splice<'_>,
) {
    let meta = member(params, "_meta").filter(|meta| meta.starts_with('{'));
    let mut added: Vec<(&str, &str)> = Vec::new();
    for (name, value) in wanted {
        let there = meta.is_some_and(|meta| read_member(meta, name).is_some());
        added.extend(
            value
                .as_deref()
                .filter(|_| !there)
                .map(|value| (*name, value)),
        );
    }
    for (name, value) in below.iter().flatten() {
        match (meta.and_then(|meta| read_member(meta, name)), value) {
            (Some(there), Some(value)) => splice.replace(there, value.clone()),
            (None, Some(value)) => added.push((*name, value.as_str())),
            // A caller's `tracestate` does not apply to another parent.
            (Some(there), None) => splice.replace(there, "\"\""),
            (None, None) => {}
        }
    }
    if added.is_empty() {
        return;
    }
    match meta {
        Some(meta) => splice.insert_members(meta, &added),
        None if member(params, "_meta").is_none() => {
            let members = added
                .iter()
                .map(|(name, value)| format!("\"{name}\":{value}"));
            let members = members.collect::<Vec<_>>().join(",");
            splice.insert_member(params, "_meta", &format!("{{{members}}}"));
        }
        // `_meta` is not an object; the server reports that to the caller.
        None => {}
    }
}

fn read_member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    can_contain_string(object.as_bytes(), name)
        .then(|| member(object, name))
        .flatten()
}
