//! Passes the trace on to the server (MGP §6.5, A-05): as a param where the server negotiated MGP, else in
//! `_meta` and only if the caller sent it there. Other members of MGP are removed for servers that do not
//! speak it.

use mgp_engine::callers::request_ids::WireId;
use mgp_protocol::dialect::Era;
use mgp_protocol::mgp::stream;
use mgp_protocol::splice::mention::may_mention;
use mgp_protocol::splice::{Splice, member, quoted};

use super::Outgoing;
use super::streams::StreamAsked;
use crate::link::Link;
use mgp_callers::request::Request;
use mgp_runtime::trace::{PartSpan, Trace, span};

/// Members that MGP adds to requests.
const OF_MGP: [&str; 2] = ["trace_id", "_mgp"];

/// True when params may hold such members.
#[must_use]
pub fn may_be_of_mgp(params: &str) -> bool {
    let mut names = OF_MGP.iter();
    names.any(|name| may_mention(params.as_bytes(), name))
}

/// Puts the trace into the params for a server, and the wish for chunks or progress under a token of the
/// kernel's own; removes what is not for it.
pub(super) fn traced(
    request: &Request,
    link: &Link,
    era: Era,
    outgoing: Outgoing<'_>,
    (asked, id, part): (StreamAsked<'_>, WireId, Option<&PartSpan>),
    splice: &mut Splice<'_>,
) {
    let (trace, params) = (&request.trace, outgoing.params);
    outgoing.in_mcpl(link, era, splice);
    // Who is asked is below the span that asks, not below the caller's.
    let below = part.map(|part| {
        let state = part.tracestate().map(quoted);
        [
            ("traceparent", Some(quoted(&part.traceparent()))),
            ("tracestate", state),
        ]
    });
    let token = asked.token(id).map(|token| token.to_string());
    if link.mgp_in(era).is_active() {
        let id = quoted(trace.id.as_str());
        let mut missing = Vec::new();
        match said(params, "trace_id") {
            None => missing.push(("trace_id", &*id)),
            // A caller's trace that the kernel did not accept is not passed on.
            Some(other) if !trace.is(other) => splice.replace(other, id.clone()),
            Some(_) => {}
        }
        match asked.stream {
            Some(_) => missing.extend(stream::asking(params, splice)),
            None if outgoing.of_mgp => stream::unasked(params, splice),
            None => {}
        }
        splice.insert_members(params, &missing);
        // What a caller said over HTTP alone is in no params yet: whether its trace is sampled is its to say.
        let [parent, state] = of_caller(trace)
            .filter(|_| below.is_none())
            .unwrap_or_default();
        let wanted = [
            ("traceparent", parent),
            ("tracestate", state),
            ("progressToken", token),
        ];
        if below.is_some() || wanted.iter().any(|(_, value)| value.is_some()) {
            in_meta(&wanted, below, params, splice);
        }
        return;
    }
    if outgoing.of_mgp {
        splice.remove_members(params, &OF_MGP);
    }
    // Who said a trace and no span of it is the parent of a span of the kernel's own, which is nowhere told.
    let own = || [trace.id.parent(span()).as_deref().map(quoted), None];
    let passed_on = trace.said && below.is_none();
    let [parent, state] = match passed_on {
        true => of_caller(trace).unwrap_or_else(own),
        false => [None, None],
    };
    let wanted = [
        ("trace_id", trace.said.then(|| quoted(trace.id.as_str()))),
        ("traceparent", parent),
        ("tracestate", state),
        ("progressToken", token),
    ];
    if below.is_some() || wanted.iter().any(|(_, value)| value.is_some()) {
        in_meta(&wanted, below, params, splice);
    }
}

/// Of a request that is not sampled here: what its caller said of its own span goes on as it is. `traceparent` and
/// `tracestate`, as JSON text.
fn of_caller(trace: &Trace) -> Option<[Option<String>; 2]> {
    let (parent, state) = trace.passed_on()?;
    Some([Some(quoted(&parent)), state.map(quoted)])
}

/// Two members of `_meta` that say below which span a request is.
type BelowSpan = [(&'static str, Option<String>); 2];

/// Puts those of the members that are wanted and not there into `_meta`, and the span in the place of what is there.
fn in_meta(
    wanted: &[(&str, Option<String>)],
    below: Option<BelowSpan>,
    params: &str,
    splice: &mut Splice<'_>,
) {
    let meta = member(params, "_meta").filter(|meta| meta.starts_with('{'));
    let mut added: Vec<(&str, &str)> = Vec::new();
    for (name, value) in wanted {
        let there = meta.is_some_and(|meta| said(meta, name).is_some());
        added.extend(
            value
                .as_deref()
                .filter(|_| !there)
                .map(|value| (*name, value)),
        );
    }
    for (name, value) in below.iter().flatten() {
        match (meta.and_then(|meta| said(meta, name)), value) {
            (Some(there), Some(value)) => splice.replace(there, value.clone()),
            (None, Some(value)) => added.push((*name, value.as_str())),
            // A caller's state without its parent is nobody's.
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
        // `_meta` is no object; the server reports that to the caller.
        None => {}
    }
}

fn said<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    may_mention(object.as_bytes(), name)
        .then(|| member(object, name))
        .flatten()
}
