//! `mgp nodes …`, `mgp cluster …` and `mgp lan …`.

mod invite;
mod join;
mod keys;
mod lan;
mod list;
mod membership;
mod revoke;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{
    AdmissionResult, Approve, Confirmations, Id, Identity, Leave, LeaveResult, Node, Refuse, Rename,
};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::cli::args::{self, Cluster, Nodes};
use crate::cli::client::{CliContext, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line, render_titled};
use crate::cli::text_format::{format_duration, sanitize_line};

pub(super) use invite::render_waiting_nodes;
pub(super) use lan::run as lan;

pub(super) fn run(context: &CliContext, typed: Nodes) -> Result<(), Failure> {
    match typed {
        Nodes::Show => show_id(context),
        Nodes::Invite(typed) => invite::invite(context, typed),
        Nodes::Join(typed) => join::join(context, typed),
        Nodes::Approve(typed) => approve_node(context, typed),
        Nodes::Refuse(typed) => refuse_node(context, typed),
        Nodes::List => list::list_nodes(context),
        Nodes::Remove(typed) => revoke::revoke(context, typed),
        Nodes::Rename(typed) => rename_node(context, typed),
        Nodes::Promote(typed) => membership::promote_node(context, typed),
        Nodes::Demote(typed) => membership::demote_node(context, typed),
        Nodes::Drain(typed) => membership::drain_node(context, &typed),
        Nodes::Forget(typed) => membership::forget_nodes(context, typed),
        Nodes::Leave(typed) => leave_cluster(context, &typed),
        Nodes::Rekey(typed) => keys::rekey_node(context, typed),
        Nodes::Tickets => invite::list_tickets(context),
        Nodes::Withdraw(typed) => invite::withdraw(context, typed.ticket),
    }
}

pub(super) fn run_cluster(context: &CliContext, typed: &Cluster) -> Result<(), Failure> {
    match typed {
        Cluster::Status => list::show_status(context),
        Cluster::Recover(typed) => keys::recover_cluster(context, typed),
    }
}

/// Sends a request to the kernel; an invalid name is a usage error.
fn call(
    context: &CliContext,
    method: &str,
    params: &impl Serialize,
    doing: &str,
) -> Result<Box<RawValue>, Failure> {
    let answer = context.call(method, params, doing);
    answer.map_err(name_resolution::to_usage_failure)
}

fn show_id(context: &CliContext) -> Result<(), Failure> {
    let answer = call(context, Id::METHOD, &json!({}), "asking the kernel")?;
    context.print_answer(&answer, |node: Identity| {
        let none = "none yet: `mgp nodes invite` founds one, `mgp nodes join` enters one";
        let cluster = match (&node.cluster, node.role) {
            (Some(cluster), Some(role)) => format!("{cluster}, as {}", role.as_str()),
            (Some(cluster), None) => cluster.clone(),
            (None, _) => none.to_owned(),
        };
        let listens = node.listens.as_deref().unwrap_or("not for other nodes");
        let rows = [
            ("name", &*node.name),
            ("id", &*node.id),
            ("words", &*node.words),
            ("cluster", &*cluster),
            ("listens", listens),
        ];
        let text = rows.map(|(title, row)| render_titled(title, 9, &[row.to_owned()]));
        let trouble = node.trouble.iter();
        let trouble = trouble.map(|why| format!("\n{}\n", sanitize_line(why)));
        let text: String = text.into_iter().chain(trouble).collect();
        print_line(text.trim_end())
    })
}

fn approve_node(context: &CliContext, typed: args::ApproveNode) -> Result<(), Failure> {
    let params = Approve {
        node: typed.words,
        words: None,
    };
    let answer = call(context, Approve::METHOD, &params, "letting it in")?;
    context.print_answer(&answer, |let_in: AdmissionResult| {
        let AdmissionResult {
            name, words, role, ..
        } = let_in;
        print_line(sanitize_line(&format!(
            "{name} ({words}) is in, as {}; what it may call is up to you: `mgp shares add --help`, `mgp grants add --help`",
            role.as_str()
        )))
    })
}

fn refuse_node(context: &CliContext, typed: args::RefuseNode) -> Result<(), Failure> {
    let params = Refuse { node: typed.node };
    let answer = call(context, Refuse::METHOD, &params, "turning it away")?;
    context.print_answer(&answer, |refused: AdmissionResult| {
        let AdmissionResult { name, words, .. } = refused;
        print_line(sanitize_line(&format!(
            "{name} ({words}) is turned away, and its ticket is used up"
        )))
    })
}

fn rename_node(context: &CliContext, typed: args::Rename) -> Result<(), Failure> {
    let params = Rename {
        node: typed.node,
        name: typed.name,
    };
    let answer = call(context, Rename::METHOD, &params, "telling the others")?;
    context.print_answer(&answer, |node: Node| {
        print_line(sanitize_line(&format!(
            "{} is called {}",
            node.words, node.name
        )))
    })
}

fn leave_cluster(context: &CliContext, typed: &args::Leave) -> Result<(), Failure> {
    let params = Leave {
        last_admin: typed.last_admin,
    };
    let answer = call(context, Leave::METHOD, &params, "telling the others")?;
    context.print_answer(&answer, |left: LeaveResult| {
        if !left.noted {
            print_error(
                "no admin of the cluster was in reach: the others list this node as away until one of them cuts \
                 it off with `mgp nodes remove`",
            );
        }
        print_line(sanitize_line(&format!(
            "this node has left the cluster {}; to come back it needs a new key and a new ticket: `mgp nodes rekey`, \
             `mgp down`, start it as before, then `mgp nodes join`",
            left.cluster
        )))
    })
}

/// Which nodes have confirmed a grant: `: 3/3 in 180 ms`, or `: 2/3; nas unreachable`; empty if no other node must.
pub(super) fn render_reach(by: &Confirmations) -> String {
    let Confirmations {
        nodes,
        of,
        after_ms,
        missing,
        ..
    } = by;
    match missing.is_empty() {
        _ if *of == 0 => String::new(),
        true => format!(": {nodes}/{of} in {}", format_duration(*after_ms)),
        false => format!(": {nodes}/{of}; {} unreachable", missing.join(", ")),
    }
}

/// The same for a revoke, with bounds: `: 2/3; nas unreachable, stops by itself in 30 s or less`.
pub(super) fn render_confirmations(by: &Confirmations) -> String {
    let reached = render_reach(by);
    if by.missing.is_empty() || by.of == 0 {
        return reached;
    }
    if let Some(secs) = by.lapses_secs {
        let unless = demotion_caveat(&by.missing_admins);
        return format!("{reached}, stops by itself in {secs} s or less{unless}");
    }
    let (expiring, others): (Vec<_>, Vec<_>) = by.bounds.iter().partition(|it| it.secs.is_some());
    let (unknown, unbounded): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|it| it.lease_unknown);
    let secs = expiring.iter().filter_map(|it| it.secs).max();
    let secs = secs.unwrap_or_default();
    let (who, they) = match unbounded[..] {
        [one] => (one.node.as_str(), "it is"),
        _ => ("they", "they are"),
    };
    let groups = [
        (
            &unbounded,
            format!("not bounded: {who} may go on allowing until {they} reached"),
        ),
        (&expiring, format!("stops by itself in {secs} s or less")),
        (
            &unknown,
            "stops by itself after its own lease, which is not known: an older version runs there"
                .to_owned(),
        ),
    ];
    let groups = groups.into_iter().filter(|(nodes, _)| !nodes.is_empty());
    let parts = groups.map(|(nodes, end)| {
        let names: Vec<&str> = nodes.iter().map(|it| it.node.as_str()).collect();
        format!("; {} unreachable, {end}", names.join(", "))
    });
    let unless = if expiring.is_empty() {
        String::new()
    } else {
        demotion_caveat(&by.missing_admins)
    };
    format!(
        ": {}/{}{}{unless}",
        by.nodes,
        by.of,
        parts.collect::<String>()
    )
}

/// The condition of a bound that this node cannot check.
fn demotion_caveat(by: &[String]) -> String {
    match by {
        [] => String::new(),
        admins => format!(
            ", unless {} has demoted or cut off this node meanwhile",
            admins.join(" or ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::nodes::RevokeBound;

    use super::*;

    /// FED-037.
    #[test]
    fn confirmations_of_a_revoke_are_one_line() {
        let mut by = Confirmations::default();
        assert_eq!(render_confirmations(&by), "");
        by.of = 3;
        by.nodes = 3;
        by.after_ms = 180;
        assert_eq!(render_confirmations(&by), ": 3/3 in 180 ms");
        by.nodes = 2;
        by.missing = vec!["nas".into()];
        by.lapses_secs = Some(30);
        assert_eq!(
            render_confirmations(&by),
            ": 2/3; nas unreachable, stops by itself in 30 s or less"
        );
        by.missing_admins = vec!["nas".into()];
        assert_eq!(
            render_confirmations(&by),
            ": 2/3; nas unreachable, stops by itself in 30 s or less, unless nas has demoted or cut off this node meanwhile"
        );
        assert_eq!(render_reach(&by), ": 2/3; nas unreachable");
    }

    /// FED-038.
    #[test]
    fn nodes_that_may_still_allow_are_named() {
        let bound = |node: &str, secs, lease_unknown| RevokeBound {
            node: node.into(),
            secs,
            lease_unknown,
        };
        let by = Confirmations {
            nodes: 1,
            of: 4,
            missing: ["nas", "den", "attic"].map(str::to_owned).into(),
            bounds: vec![
                bound("nas", None, false),
                bound("den", Some(84), false),
                bound("attic", None, true),
            ],
            ..Confirmations::default()
        };
        assert_eq!(
            render_confirmations(&by),
            ": 1/4; nas unreachable, not bounded: nas may go on allowing until it is reached; den unreachable, stops \
             by itself in 84 s or less; attic unreachable, stops by itself after its own lease, which is not known: \
             an older version runs there"
        );
        let by = Confirmations {
            of: 2,
            missing: ["nas", "den"].map(str::to_owned).into(),
            bounds: vec![bound("nas", None, false), bound("den", None, false)],
            ..Confirmations::default()
        };
        assert_eq!(
            render_confirmations(&by),
            ": 0/2; nas, den unreachable, not bounded: they may go on allowing until they are reached"
        );
    }
}
