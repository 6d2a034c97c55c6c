//! `mgp nodes remove`: shows the effects, asks for confirmation, and cuts the node off.

use std::io::{self, IsTerminal};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Impact, Revoke, RevokeImpact, Revoked};

use super::{call, render_confirmations};
use crate::cli::args;
use crate::cli::client::{CliContext, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{confirm, print_error, print_line};
use crate::cli::text_format::{pluralize, sanitize_line};

pub(super) fn revoke(context: &CliContext, typed: args::RevokeNode) -> Result<(), Failure> {
    if !typed.yes {
        let params = Impact {
            node: typed.node.clone(),
        };
        let answer = call(context, Impact::METHOD, &params, "asking the kernel")?;
        confirm_revoke(&parse_result(&answer)?, &typed.node)?;
    }
    let params = Revoke { node: typed.node };
    let answer = call(context, Revoke::METHOD, &params, "cutting it off")?;
    context.print_answer(&answer, |revoked: Revoked| {
        let confirmations = render_confirmations(&revoked.confirmed);
        print_line(sanitize_line(&format!(
            "{} is cut off{confirmations}",
            revoked.name
        )))
    })
}

/// Asks at the terminal. Without one nothing is done.
fn confirm_revoke(ends: &RevokeImpact, typed: &str) -> Result<(), Failure> {
    print_error(render_effects(ends));
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "there is no terminal to ask on: `mgp nodes remove {typed} -y` cuts it off without asking"
        )));
    }
    if confirm(&format!("Cut {} off?", ends.name))? {
        Ok(())
    } else {
        Err(Failure::Other("nothing was changed".into()))
    }
}

/// The effects, a line for each kind.
fn render_effects(ends: &RevokeImpact) -> String {
    let RevokeImpact {
        name, words, role, ..
    } = ends;
    let (name, words) = (sanitize_line(name), sanitize_line(words));
    let mut text = format!(
        "{name} ({words}, {}) is cut off everywhere and for good: under this key it never comes back. With it end:",
        role.as_str()
    );
    let servers = ends.servers.iter();
    let servers: Vec<String> = servers
        .map(|server| format!("{name}/{} ({})", server.id, pluralize(server.tools, "tool")))
        .collect();
    let lists = [
        (
            "grants of its agents",
            &ends.granted_to,
            ends.granted_to_count,
        ),
        (
            "grants at its servers",
            &ends.granted_at,
            ends.granted_at_count,
        ),
        (
            "shared with it alone",
            &ends.shared_with,
            ends.shared_with.len() as u64,
        ),
        ("servers that it shares", &servers, servers.len() as u64),
    ];
    for (title, named, count) in lists {
        text += &match count {
            0 => format!("\n  {title}: none"),
            count => format!("\n  {title}: {count} ({})", render_some(named, count)),
        };
    }
    text
}

fn render_some(named: &[String], count: u64) -> String {
    let more = count.saturating_sub(named.len() as u64);
    match more {
        0 => sanitize_line(&named.join(", ")),
        more => format!("{}, and {more} more", sanitize_line(&named.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::nodes::{Role, SharedServer};

    use super::*;

    #[test]
    fn the_effects_are_shown_before_a_node_is_cut_off() {
        let ends = RevokeImpact {
            name: "desk".into(),
            words: "a-b-c".into(),
            role: Role::Member,
            granted_to: vec!["agent.local@desk: nas/demo".into()],
            granted_to_count: 21,
            shared_with: vec!["notes".into()],
            servers: vec![SharedServer {
                id: "files".into(),
                tools: 3,
                replica: false,
            }],
            ..RevokeImpact::default()
        };
        let text = render_effects(&ends);
        for words in [
            "desk (a-b-c, member) is cut off everywhere and for good",
            "grants of its agents: 21 (agent.local@desk: nas/demo, and 20 more)",
            "grants at its servers: none",
            "shared with it alone: 1 (notes)",
            "servers that it shares: 1 (desk/files (3 tools))",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
