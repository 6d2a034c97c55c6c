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
use mgp_runtime::trace::span;

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
    (asked, id): (StreamAsked<'_>, WireId),
    splice: &mut Splice<'_>,
) {
    let (trace, params) = (&request.trace, outgoing.params);
    outgoing.in_mcpl(link, era, splice);
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
        if let Some(token) = token {
            in_meta(&[("progressToken", Some(token))], params, splice);
        }
        return;
    }
    if outgoing.of_mgp {
        splice.remove_members(params, &OF_MGP);
    }
    let parent = || trace.id.parent(span()).map(|parent| quoted(&parent));
    let id = || Some(quoted(trace.id.as_str()));
    let (id, parent) = match trace.said {
        true => (id(), parent()),
        false => (None, None),
    };
    if trace.said || token.is_some() {
        let wanted = [
            ("trace_id", id),
            ("traceparent", parent),
            ("progressToken", token),
        ];
        in_meta(&wanted, params, splice);
    }
}

/// Puts those of the members that are wanted and not there into `_meta`.
fn in_meta(wanted: &[(&str, Option<String>)], params: &str, splice: &mut Splice<'_>) {
    let meta = member(params, "_meta").filter(|meta| meta.starts_with('{'));
    let missing = wanted.iter().filter_map(|(name, value)| {
        let there = meta.is_some_and(|meta| said(meta, name).is_some());
        Some((*name, value.as_deref().filter(|_| !there)?))
    });
    let missing: Vec<(&str, &str)> = missing.collect();
    match meta {
        Some(meta) => splice.insert_members(meta, &missing),
        None if member(params, "_meta").is_none() => {
            let members = missing
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
