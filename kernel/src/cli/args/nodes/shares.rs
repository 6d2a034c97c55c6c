//! `mgp shares …`.

use std::fmt;

use clap::{Args, Subcommand};

/// `mgp shares …`.
#[derive(Debug, Subcommand)]
pub enum Shares {
    /// List shares.
    List,
    /// Share a server of this node with other nodes.
    Add(Share),
    /// Stop sharing a server.
    Remove(Unshare),
}

/// The audience of a share, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience(String);

/// `mgp shares add`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp shares add files --to cluster             # all of it, with every node
  mgp shares add files --to node:desk --tools 'read_*'
  mgp grants add alice@desk files               # sharing shows it; a grant lets agents call it")]
pub struct Share {
    /// A server of this node.
    pub server: String,
    /// With whom: cluster, or node:NAME.
    #[arg(long, value_name = "cluster|node:NAME", value_parser = parse_audience)]
    pub to: Audience,
    /// Only these tools: a name, or a prefix and '*'.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) tools: Option<String>,
    /// Accept names of servers or tools that do not exist yet.
    #[arg(long)]
    pub(crate) yet_unknown: bool,
}

/// `mgp shares remove`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp shares remove files                        # with nobody any more
  mgp shares remove files --to node:desk
  mgp shares remove files --tools 'read_*'       # the rule of just this pattern")]
pub struct Unshare {
    /// The server.
    pub server: String,
    /// Stop sharing with: cluster, or node:NAME; everybody by default.
    #[arg(long, value_name = "cluster|node:NAME", value_parser = parse_audience)]
    pub to: Option<Audience>,
    /// Only the rule of this pattern.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) tools: Option<String>,
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn parse_audience(typed: &str) -> Result<Audience, String> {
    match typed.strip_prefix("node:") {
        Some("") => Err("which node? write node:NAME; `mgp nodes list` shows them".into()),
        Some(_) => Ok(Audience(typed.into())),
        None if typed == "cluster" => Ok(Audience(typed.into())),
        None => Err(format!("write cluster for every node, or node:{typed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_shared_with_the_cluster_or_one_node() {
        for good in ["cluster", "node:desk"] {
            assert_eq!(parse_audience(good).unwrap().to_string(), good);
        }
        assert!(parse_audience("desk").unwrap_err().contains("node:desk"));
        assert!(
            parse_audience("node:")
                .unwrap_err()
                .contains("mgp nodes list")
        );
    }
}
