//! `mgp nodes …`, `mgp cluster …` and `mgp lan …`: this node, the others, and how a node comes in.

mod invite;
mod join;
mod keys;
mod lan;
mod list;
mod revoke;
mod upkeep;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{
    Answered, Approve, Confirmations, Id, Identity, Leave, Left, Node, Refuse, Rename,
};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::cli::args::{self, Cluster, Nodes};
use crate::cli::client::{CliContext, names};
use crate::cli::failure::Failure;
use crate::cli::print::{report, say, titled};
use crate::cli::words::{plain, time};

pub(super) use invite::waiting;
pub(super) use lan::run as lan;

pub(super) fn run(context: &CliContext, typed: Nodes) -> Result<(), Failure> {
    match typed {
        Nodes::Show => id(context),
        Nodes::Invite(typed) => invite::invite(context, typed),
        Nodes::Join(typed) => join::join(context, typed),
        Nodes::Approve(typed) => approve(context, typed),
        Nodes::Refuse(typed) => refuse(context, typed),
        Nodes::List => list::nodes(context),
        Nodes::Remove(typed) => revoke::revoke(context, typed),
        Nodes::Rename(typed) => rename(context, typed),
        Nodes::Promote(typed) => upkeep::promote(context, typed),
        Nodes::Demote(typed) => upkeep::demote(context, typed),
        Nodes::Drain(typed) => upkeep::drain(context, &typed),
        Nodes::Forget(typed) => upkeep::forget(context, typed),
        Nodes::Leave(typed) => leave(context, &typed),
        Nodes::Rekey(typed) => keys::rekey(context, typed),
        Nodes::Tickets => invite::tickets(context),
        Nodes::Withdraw(typed) => invite::withdraw(context, typed.ticket),
    }
}

pub(super) fn cluster(context: &CliContext, typed: &Cluster) -> Result<(), Failure> {
    match typed {
        Cluster::Status => list::status(context),
        Cluster::Recover(typed) => keys::recover(context, typed),
    }
}

/// Asks the kernel; a name it cannot read is a command line that is wrong.
fn ask(
    context: &CliContext,
    method: &str,
    params: &impl Serialize,
    doing: &str,
) -> Result<Box<RawValue>, Failure> {
    let answer = context.ask(method, params, doing);
    answer.map_err(names::wrong)
}

fn id(context: &CliContext) -> Result<(), Failure> {
    let answer = ask(context, Id::METHOD, &json!({}), "asking the kernel")?;
    context.show(&answer, |node: Identity| {
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
        let text = rows.map(|(title, row)| titled(title, 9, &[row.to_owned()]));
        let trouble = node.trouble.iter();
        let trouble = trouble.map(|why| format!("\n{}\n", plain(why)));
        let text: String = text.into_iter().chain(trouble).collect();
        say(text.trim_end())
    })
}

fn approve(context: &CliContext, typed: args::LetIn) -> Result<(), Failure> {
    let params = Approve {
        node: typed.words,
        words: None,
    };
    let answer = ask(context, Approve::METHOD, &params, "letting it in")?;
    context.show(&answer, |let_in: Answered| {
        let Answered {
            name, words, role, ..
        } = let_in;
        say(plain(&format!(
            "{name} ({words}) is in, as {}; what it may call is up to you: `mgp shares add --help`, `mgp grants add --help`",
            role.as_str()
        )))
    })
}

fn refuse(context: &CliContext, typed: args::TurnAway) -> Result<(), Failure> {
    let params = Refuse { node: typed.node };
    let answer = ask(context, Refuse::METHOD, &params, "turning it away")?;
    context.show(&answer, |refused: Answered| {
        let Answered { name, words, .. } = refused;
        say(plain(&format!(
            "{name} ({words}) is turned away, and its ticket is used up"
        )))
    })
}

fn rename(context: &CliContext, typed: args::Rename) -> Result<(), Failure> {
    let params = Rename {
        node: typed.node,
        name: typed.name,
    };
    let answer = ask(context, Rename::METHOD, &params, "telling the others")?;
    context.show(&answer, |node: Node| {
        say(plain(&format!("{} is called {}", node.words, node.name)))
    })
}

fn leave(context: &CliContext, typed: &args::Leave) -> Result<(), Failure> {
    let params = Leave {
        last_admin: typed.last_admin,
    };
    let answer = ask(context, Leave::METHOD, &params, "telling the others")?;
    context.show(&answer, |left: Left| {
        if !left.noted {
            report(
                "no admin of the cluster was in reach: the others list this node as away until one of them cuts \
                 it off with `mgp nodes remove`",
            );
        }
        say(plain(&format!(
            "this node has left the cluster {}; to come back it needs a new key and a new ticket: `mgp nodes rekey`, \
             `mgp down`, start it as before, then `mgp nodes join`",
            left.cluster
        )))
    })
}

/// `: 3/3 in 180 ms`, or `: 2/3; nas unreachable`, of something that gives; nothing where nobody else has to know.
pub(super) fn reached(by: &Confirmations) -> String {
    let Confirmations {
        nodes,
        of,
        after_ms,
        missing,
        ..
    } = by;
    match missing.is_empty() {
        _ if *of == 0 => String::new(),
        true => format!(": {nodes}/{of} in {}", time(*after_ms)),
        false => format!(": {nodes}/{of}; {} unreachable", missing.join(", ")),
    }
}

/// The same of something that takes away: `: 2/3; nas unreachable, stops by itself in 30 s or less`.
pub(super) fn confirmed(by: &Confirmations) -> String {
    let reached = reached(by);
    if by.missing.is_empty() || by.of == 0 {
        return reached;
    }
    if let Some(secs) = by.lapses_secs {
        let unless = unless_demoted(&by.missing_admins);
        return format!("{reached}, stops by itself in {secs} s or less{unless}");
    }
    let (bounded, others): (Vec<_>, Vec<_>) = by.bounds.iter().partition(|it| it.secs.is_some());
    let (unknown, unbounded): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|it| it.lease_unknown);
    let secs = bounded.iter().filter_map(|it| it.secs).max();
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
        (&bounded, format!("stops by itself in {secs} s or less")),
        (
            &unknown,
            "stops by itself after its own lease, which is not known: an older version runs there"
                .to_owned(),
        ),
    ];
    let groups = groups.into_iter().filter(|(nodes, _)| !nodes.is_empty());
    let said = groups.map(|(nodes, end)| {
        let names: Vec<&str> = nodes.iter().map(|it| it.node.as_str()).collect();
        format!("; {} unreachable, {end}", names.join(", "))
    });
    let unless = match bounded.is_empty() {
        true => String::new(),
        false => unless_demoted(&by.missing_admins),
    };
    format!(
        ": {}/{}{}{unless}",
        by.nodes,
        by.of,
        said.collect::<String>()
    )
}

/// What a bound depends on that this node cannot know.
fn unless_demoted(by: &[String]) -> String {
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
    fn who_has_a_revocation_is_told_in_one_line() {
        let mut by = Confirmations::default();
        assert_eq!(confirmed(&by), "");
        by.of = 3;
        by.nodes = 3;
        by.after_ms = 180;
        assert_eq!(confirmed(&by), ": 3/3 in 180 ms");
        by.nodes = 2;
        by.missing = vec!["nas".into()];
        by.lapses_secs = Some(30);
        assert_eq!(
            confirmed(&by),
            ": 2/3; nas unreachable, stops by itself in 30 s or less"
        );
        by.missing_admins = vec!["nas".into()];
        assert_eq!(
            confirmed(&by),
            ": 2/3; nas unreachable, stops by itself in 30 s or less, unless nas has demoted or cut off this node meanwhile"
        );
        assert_eq!(reached(&by), ": 2/3; nas unreachable");
    }

    /// FED-038.
    #[test]
    fn who_may_go_on_allowing_is_named() {
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
            confirmed(&by),
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
            confirmed(&by),
            ": 0/2; nas, den unreachable, not bounded: they may go on allowing until they are reached"
        );
    }
}
