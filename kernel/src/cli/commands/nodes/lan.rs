//! `mgp lan on|off|status`: visibility of this node on the local network.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::lan::{Off, On, Presence, Status};
use serde_json::json;

use super::call;
use crate::cli::args::Lan;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{first_line, format_duration, sanitize_line};

/// Widest column of a table, in characters.
const COLUMN_WIDTH_MAX: usize = 60;

pub(in crate::cli::commands) fn run(context: &CliContext, typed: &Lan) -> Result<(), Failure> {
    let method = match typed {
        Lan::On => On::METHOD,
        Lan::Off => Off::METHOD,
        Lan::Status => Status::METHOD,
    };
    let answer = call(context, method, &json!({}), "asking the kernel")?;
    context.print_answer(&answer, |presence: Presence| {
        print_line(render_presence(&presence).trim_end())
    })
}

fn render_presence(presence: &Presence) -> String {
    if !presence.on {
        return "off: this node is not announced, and looks for nobody; `mgp lan on` changes that"
            .into();
    }
    let mut text = if presence.announced {
        "on: this node is announced".to_owned()
    } else {
        "on; this node is announced once it listens for others: `mgp nodes invite`, `mgp nodes join`"
            .to_owned()
    };
    if !presence.interfaces.is_empty() {
        text += &format!(", by {}", sanitize_line(&presence.interfaces.join(", ")));
    }
    if let Some(why) = &presence.why {
        text += &format!("\n{}", sanitize_line(why));
    }
    if presence.seen.is_empty() {
        return text + "\nnobody was seen yet";
    }
    let mut table = new_table(&["NODE", "SEEN", "CLUSTER", "ADDRESSES"]);
    for seen in &presence.seen {
        let cluster = if seen.same_cluster {
            "this one"
        } else {
            "another one, or none"
        };
        table.add_row(vec![
            first_line(seen.name.as_deref().unwrap_or(&seen.id), 16),
            format!("{} ago", format_duration(seen.ago_ms)),
            cluster.into(),
            first_line(&seen.addresses.join(", "), COLUMN_WIDTH_MAX),
        ]);
    }
    text += &format!("\n\n{}", table.trim_fmt());
    if presence.more > 0 {
        text += &format!("\n{} more say that they are there", presence.more);
    }
    text + "\n\nwho is seen is not trusted for it: a node comes in by a ticket and a person's yes"
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::lan::LanNode;

    use super::*;

    #[test]
    fn observed_nodes_are_listed_without_trust() {
        let mut presence = Presence::default();
        assert!(render_presence(&presence).contains("mgp lan on"));
        presence.on = true;
        assert!(render_presence(&presence).contains("once it listens"));
        presence.announced = true;
        presence.seen.push(LanNode {
            id: "a5".repeat(32),
            addresses: vec!["10.0.0.2:7332".into()],
            ..LanNode::default()
        });
        let text = render_presence(&presence);
        assert!(
            text.contains("10.0.0.2:7332") && text.contains("not trusted"),
            "{text}"
        );
    }
}
