//! `mgp node …`, `mgp cluster …`, and beside them what is shared and who is seen.

mod lan;
mod shares;

use clap::{Args, Subcommand};

use super::times;

pub use lan::Lan;
pub use shares::{Audience, Share, Unshare};

/// `mgp node …`.
#[derive(Debug, Subcommand)]
pub enum Nodes {
    /// Show who this node is.
    Id,
    /// Make a ticket with which one node may ask to be let in; the first one founds a cluster.
    Invite(Invite),
    /// Ask the node that made a ticket to be let into its cluster, and wait for the answer.
    Join(Join),
    /// Let a node in that asks and shows the right words.
    Approve(LetIn),
    /// Turn a node away that asks.
    Refuse(TurnAway),
    /// Show the nodes of the cluster, and who asks to be let in.
    List,
    /// Cut a node off, everywhere and for good.
    Revoke(RevokeNode),
    /// Call a node something else.
    Rename(Rename),
    /// Let a node do more: an admin grants, and lets nodes in.
    Promote(Promote),
    /// Let a node do less, for good under its present key.
    Demote(Demote),
    /// Take no new calls of other nodes' agents here, before this node is stopped.
    Drain(Drain),
    /// List nodes no more that left or were cut off.
    Forget(Forget),
    /// Leave the cluster, and forget it.
    Leave(Leave),
    /// Give this node another key, or take the one that another node shows.
    Rekey(Rekey),
    /// Show the tickets that are good still, and who asks to be let in.
    Tickets,
    /// Make a ticket good for nothing.
    Withdraw(Withdraw),
}

/// `mgp cluster …`.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Show who is there, how far away, and what is shared by whom.
    Status,
    /// Make this node an admin by the recovery key, where no admin is left.
    Recover(Recover),
}

/// `mgp node invite`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node invite                          # good for 15 minutes; you approve who shows it
  mgp node invite --role admin             # for a node that may grant and let nodes in, too
  mgp node invite --for 1h --address nas.lan:7332
  mgp node invite --approved --json        # unattended: whoever shows it first is in

The ticket is a secret, and good once. The other node types `mgp node join`; both then show the same
three words.")]
pub struct Invite {
    /// What the node may do: admin, member (shares and calls) or leaf (only calls).
    #[arg(long, value_name = "ROLE", value_parser = ["admin", "member", "leaf"], default_value = "member")]
    pub role: String,
    /// How long the ticket is good: 90s, 15m, 1h or 1d.
    #[arg(long = "for", value_name = "TIME", value_parser = times::seconds, default_value = "15m")]
    pub during: u64,
    /// Let in who shows it without asking anybody.
    #[arg(long)]
    pub approved: bool,
    /// Where this node is reached, as HOST:PORT; may be given several times. Without it: the addresses of
    /// the networks it is in.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Vec<String>,
}

/// `mgp node join`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node join mgp1-…                     # the ticket `mgp node invite` printed there
  mgp node join -                          # reads it from the terminal or a pipe
  mgp node join                            # comes back to a join that still waits

A command line is read by every user of the machine: on one with other users, take `-`.")]
pub struct Join {
    /// The ticket; `-` reads it from stdin. Without it: the join that waits.
    #[arg(value_name = "TICKET|-")]
    pub ticket: Option<String>,
    /// What this node wants to be called; as [cluster] name in mgp.toml says, or the machine's name, when
    /// not given.
    #[arg(long, value_name = "NAME", requires = "ticket")]
    pub name: Option<String>,
    /// Do not wait for the answer.
    #[arg(long)]
    pub no_wait: bool,
}

/// `mgp node approve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node tickets                         # who asks, and with which words
  mgp node approve bafog-tulik-zonub       # if the other node shows the same three words")]
pub struct LetIn {
    /// The three words that both sides show. They are of the node's key and its name: a name alone may be another
    /// one's by now.
    #[arg(value_name = "WORDS")]
    pub words: Option<String>,
}

/// `mgp node refuse`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node tickets                         # who asks, and with which words
  mgp node refuse desk")]
pub struct TurnAway {
    /// The three words, or the name or id of the node; not needed where only one asks.
    #[arg(value_name = "WORDS|NODE")]
    pub node: Option<String>,
}

/// `mgp node revoke`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node revoke nas                      # shows what ends with it, and asks
  mgp node revoke nas -y                   # for scripts: without asking

Without a terminal nothing is done unless -y is given.")]
pub struct RevokeNode {
    /// Its name, its id or the beginning of it.
    pub node: String,
    /// Cut it off without asking.
    #[arg(short, long)]
    pub yes: bool,
}

/// `mgp node rename`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node rename attic                    # this node
  mgp node rename attic --node nas         # another one

What it shares is then called after its new name: attic/files instead of nas/files. Grants stay.")]
pub struct Rename {
    /// The new name: small letters, digits and '-'.
    pub name: String,
    /// The node, when it is not this one.
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
}

/// `mgp node promote`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node promote desk                    # desk is an admin from now on
  mgp node promote cam --role member       # a leaf that shares from now on")]
pub struct Promote {
    /// Its name, its id or the beginning of it.
    pub node: String,
    /// What it may do: admin or member.
    #[arg(long, value_name = "ROLE", value_parser = ["admin", "member"], default_value = "admin")]
    pub role: String,
}

/// `mgp node demote`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node demote desk                     # an admin is a member from now on
  mgp node demote desk --role leaf

What it granted and revoked before stays, and no owner waits for its word any more. Under its present key it is never
promoted again. A node of an older version takes it for cut off until it is updated.")]
pub struct Demote {
    /// Its name, its id or the beginning of it; this node's own name for this one.
    pub node: String,
    /// What it may do: member or leaf.
    #[arg(long, value_name = "ROLE", value_parser = ["member", "leaf"], default_value = "member")]
    pub role: String,
    /// Also where linked nodes of an older version take it for cut off.
    #[arg(long)]
    pub with_older: bool,
}

/// `mgp node drain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node drain                           # waits until the calls under way have ended
  mgp node drain --no-wait
  mgp node drain --end                     # takes calls again; a start of the kernel does so, too

Others call a replica where there is one. What agents of this node do goes on.")]
pub struct Drain {
    /// Take calls again.
    #[arg(long)]
    pub end: bool,
    /// Do not wait for the calls under way.
    #[arg(long, conflicts_with = "end")]
    pub no_wait: bool,
}

/// `mgp node forget`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node forget desk                     # every row of a desk that left or was cut off
  mgp node forget --all

Only the list of this node is shorter: that they are out stays known, and counts.")]
pub struct Forget {
    /// Its name, its words, its id or the beginning of it.
    #[arg(value_name = "NODE", required_unless_present = "all")]
    pub node: Option<String>,
    /// All that left or were cut off.
    #[arg(long, conflicts_with = "node")]
    pub all: bool,
}

/// `mgp node leave`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node leave
  mgp node leave --last-admin              # although nobody could let nodes in then")]
pub struct Leave {
    /// Leave although no other node is an admin.
    #[arg(long)]
    pub last_admin: bool,
}

/// `mgp node rekey`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node rekey                           # this node: its key was copied, or it comes back after it left
  mgp node rekey desk --to 4f0c…           # on an admin: desk shows this key, and is the same node

The key is changed at the next start of the kernel. An admin signs its new key with the old one; for any other
node, or where two living nodes have one key, an admin takes the new one. Grants and shares that name the node
end with its old key; those at its own servers stay.")]
pub struct Rekey {
    /// The node, when it is not this one.
    #[arg(value_name = "NODE", requires = "to")]
    pub node: Option<String>,
    /// The key that `mgp node rekey` showed there.
    #[arg(long, value_name = "KEY", requires = "node")]
    pub to: Option<String>,
}

/// `mgp cluster recover`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp cluster recover -                    # asks for the recovery key, unseen
  mgp cluster recover - --without nas      # and nas, the only admin there was, is gone
  pass show cluster | mgp cluster recover -

The recovery key was shown once, when the cluster was founded. Use it where no admin is left, or where two admins
cut each other off.")]
pub struct Recover {
    /// Always `-`: the key is read from the terminal or from stdin.
    #[arg(value_name = "-", default_value = "-", hide_default_value = true)]
    pub key: String,
    /// A node that is gone, to be cut off with it; may be given several times.
    #[arg(long, value_name = "NODE")]
    pub without: Vec<String>,
}

/// `mgp node withdraw`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp node tickets
  mgp node withdraw 3f2a")]
pub struct Withdraw {
    /// The ticket's name, as `mgp node tickets` shows it.
    pub ticket: String,
}
