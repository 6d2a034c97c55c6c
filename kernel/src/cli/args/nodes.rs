//! `mgp nodes …`, `mgp cluster …`, and beside them what is shared and who is seen.

mod lan;
mod shares;

use clap::{Args, Subcommand};

use super::time_values;

pub(crate) use lan::Lan;
pub(crate) use shares::{Share, Shares, Unshare};

/// `mgp nodes …`.
#[derive(Debug, Subcommand)]
pub enum Nodes {
    /// Show this node: its name, id and cluster.
    Show,
    /// Create a ticket for one node to join; the first one founds a cluster.
    Invite(Invite),
    /// Join a cluster with a ticket, and wait for the approval.
    Join(Join),
    /// List the nodes of the cluster, and those that ask to join.
    List,
    /// Remove a node from the cluster for good.
    Remove(RevokeNode),
    /// Rename a node.
    Rename(Rename),
    /// Give a node a higher role: an admin grants and approves nodes.
    Promote(Promote),
    /// Give a node a lower role, for good under its present key.
    Demote(Demote),
    /// Reject new calls from other nodes, before this node is stopped.
    Drain(Drain),
    /// Hide nodes that left or were removed.
    Forget(Forget),
    /// Leave the cluster.
    Leave(Leave),
    /// Change this node's key, or accept the new key of another node.
    Rekey(Rekey),
    /// List valid tickets.
    Tickets,
    /// Invalidate a ticket.
    Withdraw(Withdraw),
    /// Approve a node that asks to join.
    #[command(hide = true)]
    Approve(ApproveNode),
    /// Reject a node that asks to join.
    #[command(hide = true)]
    Refuse(RefuseNode),
}

/// `mgp cluster …`.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Show nodes, latencies and shares.
    Status,
    /// Make this node an admin by the recovery key, where no admin is left.
    Recover(Recover),
}

/// `mgp nodes invite`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes invite                          # good for 15 minutes; you approve who shows it
  mgp nodes invite --role admin             # for a node that may grant and let nodes in, too
  mgp nodes invite --for 1h --address nas.lan:7332
  mgp nodes invite --approved --json        # unattended: whoever shows it first is in

The ticket is a secret, and good once. The other node types `mgp nodes join`; both then show the same
three words.")]
pub struct Invite {
    /// Its role: admin, member (shares and calls) or leaf (only calls).
    #[arg(long, value_name = "ROLE", value_parser = ["admin", "member", "leaf"], default_value = "member")]
    pub(crate) role: String,
    /// Lifetime of the ticket: 90s, 15m, 1h or 1d.
    #[arg(long = "for", value_name = "TIME", value_parser = time_values::parse_seconds, default_value = "15m")]
    pub(crate) during: u64,
    /// Admit the first node that shows it, without an approval.
    #[arg(long)]
    pub(crate) approved: bool,
    /// Where this node is reached, as HOST:PORT; may be given several times. Without it: the addresses of
    /// the networks it is in.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Vec<String>,
}

/// `mgp nodes join`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes join mgp1-…                     # the ticket `mgp nodes invite` printed there
  mgp nodes join -                          # reads it from the terminal or a pipe
  mgp nodes join                            # comes back to a join that still waits

A command line is read by every user of the machine: on one with other users, take `-`.")]
pub struct Join {
    /// The ticket; `-` reads it from stdin. Without it: the join that waits.
    #[arg(value_name = "TICKET|-")]
    pub ticket: Option<String>,
    /// The name of this node; by default [cluster] name in mgp.toml, or the hostname.
    #[arg(long, value_name = "NAME", requires = "ticket")]
    pub name: Option<String>,
    /// Do not wait for the approval.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// `mgp nodes approve`, not shown: for scripts of before `mgp approve`.
#[derive(Debug, Args)]
pub struct ApproveNode {
    /// The three words that both sides show. They are of the node's key and its name: a name alone may be another
    /// one's by now.
    #[arg(value_name = "WORDS")]
    pub(crate) words: Option<String>,
}

/// `mgp nodes refuse`, not shown: for scripts of before `mgp deny`.
#[derive(Debug, Args)]
pub struct RefuseNode {
    /// The three words, or the name or id of the node; not needed where only one asks.
    #[arg(value_name = "WORDS|NODE")]
    pub(crate) node: Option<String>,
}

/// `mgp nodes remove`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes remove nas                      # shows what ends with it, and asks
  mgp nodes remove nas -y                   # for scripts: without asking

Without a terminal nothing is done unless -y is given.")]
pub struct RevokeNode {
    /// Its name, its id or the beginning of it.
    pub(crate) node: String,
    /// Remove it without asking.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// `mgp nodes rename`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes rename attic                    # this node
  mgp nodes rename attic --node nas         # another one

What it shares is then called after its new name: attic/files instead of nas/files. Grants stay.")]
pub struct Rename {
    /// The new name: small letters, digits and '-'.
    pub name: String,
    /// The node, when it is not this one.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
}

/// `mgp nodes promote`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes promote desk                    # desk is an admin from now on
  mgp nodes promote cam --role member       # a leaf that shares from now on")]
pub struct Promote {
    /// Its name, its id or the beginning of it.
    pub(crate) node: String,
    /// The new role: admin or member.
    #[arg(long, value_name = "ROLE", value_parser = ["admin", "member"], default_value = "admin")]
    pub(crate) role: String,
}

/// `mgp nodes demote`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes demote desk                     # an admin is a member from now on
  mgp nodes demote desk --role leaf

What it granted and revoked before stays, and no owner waits for its word any more. Under its present key it is never
promoted again. A node of an older version takes it for cut off until it is updated.")]
pub struct Demote {
    /// Its name, its id or the beginning of it; this node's own name for this one.
    pub(crate) node: String,
    /// The new role: member or leaf.
    #[arg(long, value_name = "ROLE", value_parser = ["member", "leaf"], default_value = "member")]
    pub(crate) role: String,
    /// Even if linked nodes of an older version take it for removed.
    #[arg(long)]
    pub(crate) with_older: bool,
}

/// `mgp nodes drain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes drain                           # waits until the calls under way have ended
  mgp nodes drain --no-wait
  mgp nodes drain --end                     # takes calls again; a start of the kernel does so, too

Others call a replica where there is one. What agents of this node do goes on.")]
pub struct Drain {
    /// Accept calls again.
    #[arg(long)]
    pub end: bool,
    /// Do not wait for the calls under way.
    #[arg(long, conflicts_with = "end")]
    pub(crate) no_wait: bool,
}

/// `mgp nodes forget`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes forget desk                     # every row of a desk that left or was cut off
  mgp nodes forget --all

Only the list of this node is shorter: that they are out stays known, and counts.")]
pub struct Forget {
    /// Its name, its words, its id or the beginning of it.
    #[arg(value_name = "NODE", required_unless_present = "all")]
    pub(crate) node: Option<String>,
    /// All nodes that left or were removed.
    #[arg(long, conflicts_with = "node")]
    pub all: bool,
}

/// `mgp nodes leave`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes leave
  mgp nodes leave --last-admin              # although nobody could let nodes in then")]
pub struct Leave {
    /// Leave although no other node is an admin.
    #[arg(long)]
    pub(crate) last_admin: bool,
}

/// `mgp nodes rekey`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes rekey                           # this node: its key was copied, or it left and returns
  mgp nodes rekey desk --to 4f0c…           # on an admin: desk shows this key, and is the same node

The key is changed at the next start of the kernel. An admin signs its new key with the old one; for any other
node, or where two living nodes have one key, an admin takes the new one. Grants and shares that name the node
end with its old key; those at its own servers stay.")]
pub struct Rekey {
    /// The node, when it is not this one.
    #[arg(value_name = "NODE", requires = "to")]
    pub(crate) node: Option<String>,
    /// The key that `mgp nodes rekey` showed there.
    #[arg(long, value_name = "KEY", requires = "node")]
    pub to: Option<String>,
}

/// `mgp cluster recover`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp cluster recover                    # asks for the recovery key, unseen
  mgp cluster recover --without nas      # and nas, the only admin there was, is gone
  pass show cluster | mgp cluster recover

The recovery key was shown once, when the cluster was founded. Use it where no admin is left, or where two admins
cut each other off.")]
pub struct Recover {
    /// Nothing, or `-`: the key is read from the terminal or from stdin.
    #[arg(hide = true, default_value = "-")]
    pub key: String,
    /// A lost node to remove as well; may be repeated.
    #[arg(long, value_name = "NODE")]
    pub without: Vec<String>,
}

/// `mgp nodes withdraw`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp nodes tickets
  mgp nodes withdraw 3f2a")]
pub struct Withdraw {
    /// The ticket's name, as `mgp nodes tickets` shows it.
    pub ticket: String,
}
