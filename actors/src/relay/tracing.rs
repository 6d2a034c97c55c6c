//! The trace goes on to the server (MGP §6.5, A-05): as a param to one that agreed to MGP, in `_meta` to
//! any other, and to that one only when the caller itself said it.

use mgp_protocol::dialect::Era;
use mgp_protocol::mention::may_mention;
use mgp_protocol::splice::{Splice, member, quoted};

use crate::link::Link;
use crate::request::Request;
use crate::trace::{Trace, span};

/// Puts the trace of a request into params that go to a server.
pub(super) fn traced(
    request: &Request,
    link: &Link,
    era: Era,
    params: &str,
    splice: &mut Splice<'_>,
) {
    let trace = &request.trace;
    if link.mgp_in(era).is_active() {
        if !has(params, "trace_id") {
            splice.insert_member(params, "trace_id", &quoted(trace.id.as_str()));
        }
    } else if trace.said {
        in_meta(trace, params, splice);
    }
}

fn in_meta(trace: &Trace, params: &str, splice: &mut Splice<'_>) {
    let meta = member(params, "_meta").filter(|meta| meta.starts_with('{'));
    let parent = trace.id.parent(span()).map(|parent| quoted(&parent));
    let id = quoted(trace.id.as_str());
    let wanted = [("trace_id", Some(id)), ("traceparent", parent)];
    let missing = wanted.iter().filter_map(|(name, value)| {
        let there = meta.is_some_and(|meta| has(meta, name));
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
        // What stands there is no object: whoever sent it is told so by the server.
        None => {}
    }
}

fn has(object: &str, name: &str) -> bool {
    may_mention(object.as_bytes(), name) && member(object, name).is_some()
}
