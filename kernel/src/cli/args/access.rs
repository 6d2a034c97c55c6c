//! `mgp grants …` and `mgp explain`.

use clap::{Args, Subcommand};

use serde_json::Value;

use super::time_values;

/// `mgp grants …`.
#[derive(Debug, Subcommand)]
pub enum Grants {
    /// List grants and denials.
    List(ListGrants),
    /// Allow an agent to use a server or a tool, or deny it.
    Add(Grant),
    /// Remove a grant or a denial.
    Remove(Revoke),
}

/// The agent and the target of a rule.
#[derive(Debug, Args)]
pub(crate) struct RuleSubject {
    /// The agent, with or without `agent.`; of another node, AGENT@NODE. In a grant also '*@NODE', every agent of a
    /// node, 'AGENT@*', those of one name at every node, and group.NAME.
    pub(crate) agent: String,
    /// A server, or one of its tools as SERVER:TOOL; SERVER/TOOL and what agents are shown,
    /// SERVER__TOOL, are read, too. Of another node: NODE/SERVER, NODE/SERVER:TOOL.
    /// In a grant across nodes also 'SERVER:BEGINNING*', the tools whose names begin so.
    #[arg(value_name = "SERVER[:TOOL]")]
    pub(crate) place: String,
    /// The whole server, even if a tool of another one has its name.
    #[arg(long)]
    pub(crate) whole_server: bool,
    /// Accept names of agents, servers or tools that do not exist yet.
    #[arg(long)]
    pub(crate) yet_unknown: bool,
}

/// `mgp grants add`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp grants add agent.local files
  mgp grants add agent.local files:move_file --deny --because 'only by hand'
  mgp grants add agent.local files:write_file --expires 1h
  mgp grants add agent.local files:write_file --when 'inside(args.path, \"~/notes\")'
  mgp grants add group.readers files            # the agents of a group
  mgp grants add alice@desk files               # an agent of a node the server is shared with
  mgp grants add '*@desk' 'files:read_*'        # all its agents, tools whose names begin so
  mgp grants add alice nas/files --deny         # for an agent of this node; needs no admin
  mgp grants add agent.ci later --deny --yet-unknown  # before agent and server exist")]
pub struct Grant {
    /// Whom and what.
    #[command(flatten)]
    pub(crate) about: RuleSubject,
    /// Deny instead of allowing.
    #[arg(long)]
    pub(crate) deny: bool,
    /// Expiry: 90s, 30m, 1h, 7d or 2026-03-01T00:00:00Z; none by default.
    #[arg(long, value_name = "TIME", value_parser = time_values::parse_end)]
    pub(crate) expires: Option<u64>,
    /// Allow only calls for which this holds: CEL over args, tool, agent, node, time and trust.
    #[arg(long, value_name = "CONDITION", conflicts_with = "deny")]
    pub(crate) when: Option<String>,
    /// A reason, shown with the grant.
    #[arg(long, value_name = "TEXT")]
    pub(crate) because: Option<String>,
}

/// `mgp grants remove`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp grants remove agent.local files
  mgp grants remove agent.local files:move_file")]
pub struct Revoke {
    /// The agent and the target.
    #[command(flatten)]
    pub(crate) about: RuleSubject,
}

/// `mgp grants list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp grants list
  mgp grants list --agent agent.local --json")]
pub struct ListGrants {
    /// Only grants of this agent.
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
}

/// `mgp groups …`.
#[derive(Debug, Subcommand)]
pub enum Groups {
    /// List groups of agents.
    List,
    /// Show a group: its members, limits and grants.
    Show(NamedGroup),
    /// Put an agent into a group.
    Add(Membership),
    /// Take an agent out of a group.
    Remove(Membership),
}

/// `mgp groups show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp groups show readers
  mgp groups show readers --json")]
pub struct NamedGroup {
    /// The group, with or without `group.`.
    pub(crate) group: String,
}

/// `mgp groups add|remove`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp groups add readers alice
  mgp groups add readers alice@desk      # an agent of another node: the group of the cluster
  mgp groups add readers '*@desk'        # every agent of a node
  mgp groups add 'readers@*' alice       # an agent of this node, for servers of other nodes
  mgp groups remove readers alice

`mgp grants add group.readers files` grants a group. The first member makes a group.")]
pub struct Membership {
    /// The group, with or without `group.`; that of the cluster as 'NAME@*'.
    pub(crate) group: String,
    /// The agent, as in `mgp grants add`.
    pub(crate) agent: String,
    /// Accept the name of an agent that does not exist yet.
    #[arg(long)]
    pub(crate) yet_unknown: bool,
}

/// `mgp explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp explain agent.local files:move_file
  mgp explain agent.local files:write_file path=/etc/passwd
  mgp explain agent.local files")]
pub struct Explain {
    /// Whom and what.
    #[command(flatten)]
    pub(crate) about: RuleSubject,
    /// Arguments of a call, for conditions of grants: NAME=TEXT, or NAME:=JSON for what is no text.
    #[arg(value_name = "NAME=VALUE", value_parser = parse_argument)]
    pub(crate) arguments: Vec<(String, Value)>,
}

/// Reads an argument of a call: `path=/etc` or `count:=3`.
fn parse_argument(typed: &str) -> Result<(String, Value), String> {
    let form = "an argument is written NAME=TEXT, or NAME:=JSON";
    let (name, value) = typed.split_once('=').ok_or(form)?;
    let (name, value) = match name.strip_suffix(':') {
        Some(name) => {
            let json = serde_json::from_str(value);
            (
                name,
                json.map_err(|why| format!("{value:?} is no JSON: {why}"))?,
            )
        }
        None => (name, Value::from(value)),
    };
    if name.is_empty() {
        return Err(form.to_owned());
    }
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_of_a_call_are_texts_or_json() {
        let read = |typed: &str| parse_argument(typed);
        assert_eq!(read("path=/a=b"), Ok(("path".into(), json!("/a=b"))));
        assert_eq!(read("n:=3"), Ok(("n".into(), json!(3))));
        assert_eq!(read("n="), Ok(("n".into(), json!(""))));
        for bad in ["path", "=a", ":=1", "n:=x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
