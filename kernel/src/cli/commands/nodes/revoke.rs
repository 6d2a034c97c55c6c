//! `mgp nodes remove`: shows what ends with a node, asks, and cuts it off.

use std::io::{self, IsTerminal};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Impact, Revoke, RevokeEnds, Revoked};

use super::{ask, confirmed};
use crate::cli::args;
use crate::cli::client::{CliContext, read};
use crate::cli::failure::Failure;
use crate::cli::print::{ask_yes, report, say};
use crate::cli::words::{counted, plain};

pub(super) fn revoke(context: &CliContext, typed: args::RevokeNode) -> Result<(), Failure> {
    if !typed.yes {
        let params = Impact {
            node: typed.node.clone(),
        };
        let answer = ask(context, Impact::METHOD, &params, "asking the kernel")?;
        agreed(&read(&answer)?, &typed.node)?;
    }
    let params = Revoke { node: typed.node };
    let answer = ask(context, Revoke::METHOD, &params, "cutting it off")?;
    context.show(&answer, |revoked: Revoked| {
        let told = confirmed(&revoked.confirmed);
        say(plain(&format!("{} is cut off{told}", revoked.name)))
    })
}

/// Asks at the terminal. Without one nothing is done.
fn agreed(ends: &RevokeEnds, typed: &str) -> Result<(), Failure> {
    report(in_words(ends));
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "there is no terminal to ask on: `mgp nodes remove {typed} -y` cuts it off without asking"
        )));
    }
    match ask_yes(&format!("Cut {} off?", ends.name))? {
        true => Ok(()),
        false => Err(Failure::Other("nothing was changed".into())),
    }
}

/// What ends with it, a line for each kind.
fn in_words(ends: &RevokeEnds) -> String {
    let RevokeEnds {
        name, words, role, ..
    } = ends;
    let (name, words) = (plain(name), plain(words));
    let mut text = format!(
        "{name} ({words}, {}) is cut off everywhere and for good: under this key it never comes back. With it end:",
        role.as_str()
    );
    let servers = ends.servers.iter();
    let servers: Vec<String> = servers
        .map(|server| format!("{name}/{} ({})", server.id, counted(server.tools, "tool")))
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
            count => format!("\n  {title}: {count} ({})", some(named, count)),
        };
    }
    text
}

fn some(named: &[String], count: u64) -> String {
    let more = count.saturating_sub(named.len() as u64);
    match more {
        0 => plain(&named.join(", ")),
        more => format!("{}, and {more} more", plain(&named.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::nodes::{Role, SharedServer};

    use super::*;

    #[test]
    fn what_ends_with_a_node_is_shown_before_it_is_cut_off() {
        let ends = RevokeEnds {
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
            ..RevokeEnds::default()
        };
        let text = in_words(&ends);
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
