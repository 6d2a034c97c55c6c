//! `mgp nodes invite|tickets|withdraw`: tickets, and the nodes that present them.

use mgp_engine::timestamps::parse_rfc3339;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{
    Invitations, Invite, Invited, Role, Ticket, Tickets, WaitingNode, Withdraw,
};
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::call;
use crate::cli::args;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_error, print_line};
use crate::cli::text_format::{first_line, format_duration, sanitize_line, sanitize_lines};
use crate::config::{ADVERTISED_MAX, check_host_port};

/// Widest column of a table, in characters.
const COLUMN_WIDTH_MAX: usize = 48;

/// The only time a ticket is printed: alone on stdout, so that scripts can read it. Everything else is printed on
/// stderr.
pub(super) fn invite(context: &CliContext, typed: args::Invite) -> Result<(), Failure> {
    for address in &typed.address {
        check_host_port(address).map_err(|why| Failure::Usage(format!("{address:?} {why}")))?;
    }
    if typed.address.len() > ADVERTISED_MAX {
        let words = format!("a ticket has room for {ADVERTISED_MAX} addresses");
        return Err(Failure::Usage(words));
    }
    let role = [Role::Admin, Role::Member, Role::Leaf];
    let params = Invite {
        role: role.into_iter().find(|role| role.as_str() == typed.role),
        lives_secs: Some(typed.during),
        approved: typed.approved,
        addresses: typed.address,
    };
    let answer = call(context, Invite::METHOD, &params, "making a ticket")?;
    context.print_answer(&answer, |invited: Invited| {
        if let Some(founded) = &invited.founded {
            print_error(format_args!(
                "this node has founded the cluster {}\n\
                 its recovery key, the only way on when no admin is left; it is shown this once, so write it \
                 down and keep it off this machine:\n  {}\n",
                sanitize_line(&founded.cluster),
                sanitize_line(&founded.recovery_key)
            ));
        }
        let Ticket {
            id,
            role,
            expires_at,
            approved,
            addresses,
        } = &invited.about;
        print_error(sanitize_lines(&format!(
            "ticket {id}, for one node as {}, good until {expires_at}; it leads to {}\n\
             it is a secret, and shown this once. On the other machine: `mgp nodes join -`, and paste it there",
            role.as_str(),
            sanitize_line(&addresses.join(", "))
        )));
        print_line(sanitize_line(&invited.ticket))?;
        print_error(if *approved {
            "whoever shows it first is let in without asking you"
        } else {
            "then `mgp pending` shows who asks, and `mgp approve WORDS` lets it in"
        });
        Ok(())
    })
}

pub(super) fn list_tickets(context: &CliContext) -> Result<(), Failure> {
    let answer = call(context, Tickets::METHOD, &json!({}), "asking the kernel")?;
    context.print_answer(&answer, |rendered: Invitations| {
        if rendered.tickets.is_empty() && rendered.waiting.is_empty() {
            return print_line("no ticket is out, and nobody asks: `mgp nodes invite` makes one");
        }
        print_line(render_invitations(&rendered, unix_ms()).trim_end())
    })
}

fn render_invitations(rendered: &Invitations, now_ms: u64) -> String {
    let mut text = render_waiting_nodes(&rendered.waiting, now_ms);
    if !rendered.tickets.is_empty() {
        let mut table = new_table(&["TICKET", "ROLE", "GOOD FOR", "APPROVAL", "LEADS TO"]);
        for ticket in &rendered.tickets {
            let addresses = ticket.addresses.join(", ");
            let approval = if ticket.approved {
                "none asked"
            } else {
                "yours"
            };
            table.add_row(vec![
                first_line(&ticket.id, COLUMN_WIDTH_MAX),
                ticket.role.as_str().into(),
                remaining_time(&ticket.expires_at, now_ms),
                approval.into(),
                first_line(&addresses, COLUMN_WIDTH_MAX),
            ]);
        }
        text += &table.trim_fmt();
    }
    text
}

/// The waiting nodes, each with what to read and what to type.
pub(in crate::cli::commands) fn render_waiting_nodes(nodes: &[WaitingNode], now_ms: u64) -> String {
    let rendered = nodes.iter().map(|node| {
        let (name, words) = (sanitize_line(&node.name), sanitize_line(&node.words));
        let before = node.called_before.iter();
        let before = before.map(|before| format!("it asked as {before} before; its words are new ones"));
        let like = node.looks_like.iter();
        let like = like.map(|like| format!("its name looks like {like}, which is another node"));
        let notes = before.chain(like).chain(node.words_note.clone());
        let notes: String = notes.map(|note| format!("         NOTE: {}\n", sanitize_line(&note))).collect();
        format!(
            "{words}  {name} asks to be let in as {}, from {}; {} left\n{notes}\
             \u{20}        if it shows the same three words: mgp approve {words}   or   mgp deny {words}\n",
            node.role.as_str(),
            sanitize_line(&node.from),
            remaining_time(&node.until, now_ms)
        )
    });
    let rendered: String = rendered.collect();
    if rendered.is_empty() {
        rendered
    } else {
        rendered + "\n"
    }
}

/// The remaining time.
pub(super) fn remaining_time(end: &str, now_ms: u64) -> String {
    let end = parse_rfc3339(end).map(|end| format_duration(end.saturating_sub(now_ms)));
    end.unwrap_or_default()
}

pub(super) fn withdraw(context: &CliContext, ticket: String) -> Result<(), Failure> {
    let params = Withdraw { ticket };
    let answer = call(context, Withdraw::METHOD, &params, "asking the kernel")?;
    context.print_answer(&answer, |ticket: Ticket| {
        print_line(sanitize_line(&format!(
            "ticket {} is good for nothing any more",
            ticket.id
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operator sees the words, and what to type for both decisions.
    #[test]
    fn waiting_nodes_are_shown_with_words_and_commands() {
        let rendered = Invitations {
            tickets: vec![Ticket {
                id: "3f2a".into(),
                expires_at: "1970-01-01T00:10:00Z".into(),
                addresses: vec!["10.0.0.2:7332".into()],
                ..Ticket::default()
            }],
            waiting: vec![WaitingNode {
                name: "desk\u{1b}[2J".into(),
                called_before: Some("attic".into()),
                looks_like: Some("nas".into()),
                words_note: Some("compare its whole id too".into()),
                words: "bafog-tulik-zonub".into(),
                from: "10.0.0.3:50000".into(),
                until: "1970-01-01T00:05:00Z".into(),
                ..WaitingNode::default()
            }],
        };
        let text = render_invitations(&rendered, 60_000);
        assert!(text.contains("mgp approve bafog-tulik-zonub"), "{text}");
        assert!(text.contains("mgp deny bafog-tulik-zonub"), "{text}");
        assert!(
            text.contains("as member, from 10.0.0.3:50000; 4 min left"),
            "{text}"
        );
        assert!(text.contains("3f2a") && text.contains("9 min"), "{text}");
        assert!(text.contains("NOTE: it asked as attic before"), "{text}");
        assert!(
            text.contains("NOTE: its name looks like nas, which"),
            "{text}"
        );
        assert!(text.contains("NOTE: compare its whole id too"), "{text}");
        // A node's text cannot control this terminal.
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
