//! Prompts and resources with several replicas. A replica that is unavailable, closed or lost is skipped for the
//! next: reading changes nothing, so it may be repeated.

use mgp_engine::cluster::routes::{RouteAttempts, RouteCandidate};
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::Context;
use crate::checks::access;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_servers::upstream::{HeaderParams, Outgoing, may_hold_mgp};

/// What is read, and how its server is called.
pub(crate) struct ReadRequest<'a> {
    /// The list that contains it.
    pub(crate) kind: ListKind,
    /// Its server.
    pub(crate) server: &'a ServerId,
    /// Its own name or URI there.
    pub(crate) server_name: &'a str,
    /// `prompts/get` or `resources/read`.
    pub(crate) method: &'static str,
    /// As the caller wrote them.
    pub(crate) params: &'a str,
    /// The part of them that names it, and what stands there for the server.
    pub(crate) edit: (&'a str, &'a str),
    /// The caller's progress token.
    pub(crate) token: Option<&'a RawValue>,
    /// The skill that it is a file of: what the caller must have access to.
    pub(crate) skill: Option<&'a str>,
    /// The caller's error if it is closed.
    pub(crate) unknown: Refusal,
}

/// Reads it at its server, or the same thing at another replica.
///
/// # Errors
/// What kept the answer from coming, at the last place; the answer of a place that said no.
pub(crate) async fn read(cx: &Context, request: &Request, reading: &ReadRequest<'_>) -> Outcome {
    let (caller, agent) = (&request.caller, &request.caller.agent);
    let server = reading.server;
    let all = replica_servers(cx, caller, (reading.kind, server, reading.server_name));
    if all.is_empty() {
        return read_from_server(cx, request, reading, server).await;
    }
    let asked = cx.affinity.continuation_server(agent, reading.params);
    if let Some(asked) = asked.filter(|asked| all.contains(asked)) {
        let answer = read_from_server(cx, request, reading, &asked).await?;
        cx.affinity.record_continuation(agent, &asked, &answer);
        return Ok(answer);
    }
    let mark = |server: &ServerId| cx.catalog.load().catalog.replica_spec(server).copied();
    let mut attempts = RouteAttempts::default();
    loop {
        let mut candidates = route_candidates(cx, caller, &all);
        cx.affinity.remove_closed(agent, &mut candidates);
        let home = cx
            .affinity
            .affine_server_for_mark(agent, mark(server).as_ref());
        let Some(choice) = attempts.next_route(&candidates, home.as_ref()) else {
            return match attempts.into_refusal() {
                Some(refusal) => Err(refusal),
                // All are unavailable or closed: treated as one without replicas.
                None => read_from_server(cx, request, reading, server).await,
            };
        };
        let there = &choice.server;
        cx.affinity.record_read(agent, mark(there).as_ref(), there);
        let refusal = match read_from_server(cx, request, reading, there).await {
            Ok(answer) => {
                cx.affinity.record_continuation(agent, there, &answer);
                return Ok(answer);
            }
            Err(refusal) => refusal,
        };
        cx.affinity.record_refusal(agent, there, &refusal);
        attempts.handle_failure(&refusal, true, &candidates, home.as_ref())?;
    }
}

async fn read_from_server(
    cx: &Context,
    request: &Request,
    reading: &ReadRequest<'_>,
    server: &ServerId,
) -> Outcome {
    let unknown = reading.unknown.clone();
    let final_check = access::admit(cx, &request.caller, server, reading.skill, unknown)?;
    let outgoing = Outgoing {
        tool: None,
        final_check: Some(&final_check),
        method: reading.method,
        params: reading.params,
        may_hold_mgp: may_hold_mgp(reading.params),
        mcpl: None,
        edit: reading.edit,
        token: reading.token,
        stream_options: None,
        header_params: HeaderParams::with_name(reading.server_name),
    };
    cx.upstream(server).send(request, outgoing).await
}

/// That server, or where it is closed to the caller another one that is open and has the same.
pub(crate) fn find_open_server(
    cx: &Context,
    caller: &Caller,
    it: (ListKind, &ServerId, &str),
) -> Option<ServerId> {
    let is_open = |server: &ServerId| match it.0 {
        ListKind::Resources => access::is_resource_open(cx, caller, server, it.2),
        ListKind::Tools | ListKind::Prompts | ListKind::Templates => {
            access::is_server_open(cx, caller, server)
        }
    };
    if is_open(it.1) {
        return Some(it.1.clone());
    }
    let all = replica_servers(cx, caller, it);
    all.into_iter().find(is_open)
}

/// Where it can be read, if it is one of several; nothing at a door of one server, which names it.
fn replica_servers(
    cx: &Context,
    caller: &Caller,
    (kind, server, own): (ListKind, &ServerId, &str),
) -> Vec<ServerId> {
    match caller.view {
        CatalogView::One(_) => Vec::new(),
        CatalogView::All | CatalogView::Set(_) => {
            let shown = cx.catalog.load();
            shown.catalog.replica_servers(kind, server, own).to_vec()
        }
    }
}

fn route_candidates(cx: &Context, caller: &Caller, all: &[ServerId]) -> Vec<RouteCandidate> {
    let servers = cx.servers.load();
    let open = all
        .iter()
        .filter(|server| access::is_server_open(cx, caller, server));
    let there = open.filter_map(|server| servers.get(server));
    there.map(|handle| handle.candidate(true)).collect()
}
