//! `mgp lan on|off|status`: whether this node is seen on the local network.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::lan::{Off, On, Presence, Status};
use serde_json::json;

use super::ask;
use crate::cli::args::Lan;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{say, table};
use crate::cli::words::{one_line, plain, time};

/// Widest column of a table, in characters.
const WIDTH: usize = 60;

pub(in crate::cli::commands) fn run(context: &CliContext, typed: &Lan) -> Result<(), Failure> {
    let method = match typed {
        Lan::On => On::METHOD,
        Lan::Off => Off::METHOD,
        Lan::Status => Status::METHOD,
    };
    let answer = ask(context, method, &json!({}), "asking the kernel")?;
    context.show(&answer, |presence: Presence| {
        say(in_words(&presence).trim_end())
    })
}

fn in_words(presence: &Presence) -> String {
    if !presence.on {
        return "off: this node is not announced, and looks for nobody; `mgp lan on` changes that"
            .into();
    }
    let mut text = match presence.announced {
        true => "on: this node is announced".to_owned(),
        false => "on; this node is announced once it listens for others: `mgp nodes invite`, `mgp nodes join`"
            .to_owned(),
    };
    if !presence.interfaces.is_empty() {
        text += &format!(", by {}", plain(&presence.interfaces.join(", ")));
    }
    if let Some(why) = &presence.why {
        text += &format!("\n{}", plain(why));
    }
    if presence.seen.is_empty() {
        return text + "\nnobody was seen yet";
    }
    let mut table = table(&["NODE", "SEEN", "CLUSTER", "ADDRESSES"]);
    for seen in &presence.seen {
        let cluster = match seen.same_cluster {
            true => "this one",
            false => "another one, or none",
        };
        table.add_row(vec![
            one_line(seen.name.as_deref().unwrap_or(&seen.id), 16),
            format!("{} ago", time(seen.ago_ms)),
            cluster.into(),
            one_line(&seen.addresses.join(", "), WIDTH),
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
    use mgp_protocol::mgp::kernel::lan::Seen;

    use super::*;

    #[test]
    fn being_seen_is_told_and_means_nothing() {
        let mut presence = Presence::default();
        assert!(in_words(&presence).contains("mgp lan on"));
        presence.on = true;
        assert!(in_words(&presence).contains("once it listens"));
        presence.announced = true;
        presence.seen.push(Seen {
            id: "a5".repeat(32),
            addresses: vec!["10.0.0.2:7332".into()],
            ..Seen::default()
        });
        let text = in_words(&presence);
        assert!(
            text.contains("10.0.0.2:7332") && text.contains("not trusted"),
            "{text}"
        );
    }
}
