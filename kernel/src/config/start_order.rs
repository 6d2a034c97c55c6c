//! Checks the start order: each predecessor exists and there is no cycle. Possible only once all files are read.

use std::collections::BTreeMap;

use mgp_engine::servers::start_order::find_cycle;
use mgp_protocol::ids::ServerId;

use super::parsing::{Problem, Severity, StartOrder, nearest};
use super::{BrokenServer, ServerResults, server_id};

/// Marks entries with unknown predecessors or cycles as broken; returns the problems.
pub(super) fn check(servers: &mut ServerResults, orders: &[StartOrder]) -> Vec<Problem> {
    let ids: Vec<ServerId> = servers.iter().filter_map(server_id).cloned().collect();
    let specs = servers.iter().flatten();
    let after: BTreeMap<_, _> = specs
        .map(|spec| (spec.id.clone(), spec.start_after.clone()))
        .collect();
    let mut problems = Vec::new();
    for entry in servers.iter_mut() {
        let Ok(spec) = entry else { continue };
        // The entry of the same server in a weaker file is not in force.
        let own = orders.iter().filter(|order| order.server == spec.id);
        let own = own.filter(|order| {
            spec.start_after
                .iter()
                .any(|id| id.as_str() == order.predecessor)
                || ServerId::parse(&order.predecessor).is_err()
        });
        let Some(problem) = own
            .filter_map(|order| find_order_problem(order, &ids, &after))
            .next()
        else {
            continue;
        };
        problems.push(problem.clone());
        *entry = Err(BrokenServer {
            id: Some(spec.id.clone()),
            problem,
        });
    }
    problems
}

fn find_order_problem(
    order: &StartOrder,
    ids: &[ServerId],
    after: &BTreeMap<ServerId, Vec<ServerId>>,
) -> Option<Problem> {
    let StartOrder {
        server,
        predecessor: before,
        ..
    } = order;
    let (message, near) = match ids.iter().find(|id| id.as_str() == before) {
        None => {
            let message = format!(
                "server `{server}` is started after `{before}`, and there is no such server"
            );
            (message, nearest(before, ids.iter().map(ServerId::as_str)))
        }
        Some(other) => {
            let way =
                find_cycle(server, after).filter(|way| way.get(1).unwrap_or(server) == other)?;
            let rest = way[1..].iter().chain([server]);
            let rest: Vec<_> = rest.map(|id| format!("`{id}`")).collect();
            let message = format!(
                "`{server}` is started after {}: none of them could be the first",
                rest.join(", and that after ")
            );
            (message, None)
        }
    };
    Some(Problem {
        severity: Severity::Server,
        file: order.file.clone(),
        location: Some(Box::new(order.location.clone())),
        message,
        nearest: near.map(str::to_owned),
    })
}
