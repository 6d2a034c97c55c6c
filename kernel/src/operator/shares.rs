//! `mgp/kernel/shares/*`: what this node shares.

use std::collections::BTreeSet;
use std::sync::Arc;

use mgp_callers::request::{Outcome, Request};
use mgp_calls::known_names;
use mgp_cluster::shares::{NotShared, ShareWish};
use mgp_engine::cluster::shares::{Share, ShareAudience};
use mgp_engine::doors::known_names::Meant;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::kernel::shares::{self, Add, Changed, Remove, Shares};
use mgp_protocol::refusal::Refusal;
use mgp_store::audit::by_operator;

use super::{Operator, json, read};

/// What stands for everybody.
const CLUSTER: &str = "cluster";
/// What stands before the name of a node.
const NODE: &str = "node:";

impl Operator {
    /// `mgp/kernel/shares/add`.
    ///
    /// # Errors
    /// What cannot be shared; a disk that does not take it.
    pub async fn share(&self, request: &Request) -> Outcome {
        let add: Add = read(request)?;
        let server = self.server_named(&add.server, !add.yet_unknown)?;
        let wish = ShareWish {
            to: self.audience(&add.to)?,
            tools: add.tools,
            listed: self.listed(&server),
            not_yet: add.yet_unknown,
            server,
        };
        let shared = self.cluster.shares.add(wish, by_operator()).await;
        let shared = shared.map_err(not_shared)?;
        self.cluster.export().await?;
        let mut notes = Vec::new();
        let view = self.cluster.replication.view();
        if view.role == Some(MemberRole::Leaf) {
            notes.push(
                "this node is a leaf, which only calls: nobody takes what it shares; an admin can let it in as a member"
                    .into(),
            );
        }
        if view.cluster.is_none() {
            notes.push(
                "this node is in no cluster yet: `mgp nodes invite` makes a ticket for another one"
                    .into(),
            );
        }
        json(&Changed {
            changed: shared.iter().map(|share| self.shown_share(share)).collect(),
            notes,
        })
    }

    /// `mgp/kernel/shares/remove`.
    ///
    /// # Errors
    /// What is not shared; a disk that does not take it.
    pub async fn unshare(&self, request: &Request) -> Outcome {
        let remove: Remove = read(request)?;
        let server = self.server_named(&remove.server, false)?;
        let to = remove.to.as_deref().map(|to| self.audience(to));
        let ended =
            self.cluster
                .shares
                .remove(server, to.transpose()?, remove.tools, by_operator());
        let ended = ended.await.map_err(not_shared)?;
        self.cluster.export().await?;
        json(&Changed {
            changed: ended.iter().map(|share| self.shown_share(share)).collect(),
            notes: Vec::new(),
        })
    }

    /// `mgp/kernel/shares/list`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub fn list_shares(&self) -> Outcome {
        let shares = self.cluster.shares.now();
        let shares = shares.all().map(|share| self.shown_share(&share)).collect();
        json(&Shares { shares })
    }

    /// A server of this node; with `there`, one that exists.
    fn server_named(&self, typed: &str, there: bool) -> Result<ServerId, Refusal> {
        let known = self.name_sources.known();
        let meant: Meant<ServerId> = known_names::read(known.server(typed), there)?;
        Ok(meant.it)
    }

    fn audience(&self, to: &str) -> Result<ShareAudience, Refusal> {
        if to == CLUSTER {
            return Ok(ShareAudience::Cluster);
        }
        let Some(node) = to.strip_prefix(NODE) else {
            return Err(Refusal::BadParams(format!(
                "{to:?} is nobody to share with: `cluster` is everybody, `node:NAME` one node"
            )));
        };
        Ok(ShareAudience::Node(self.other_node(node)?))
    }

    /// The server's own names for its tools; `None` when it has listed none yet.
    fn listed(&self, server: &ServerId) -> Option<BTreeSet<Arc<str>>> {
        let offer = self.servers.load().get(server)?.last()?;
        Some(
            offer
                .tools()
                .iter()
                .map(|tool| tool.own_name.clone())
                .collect(),
        )
    }

    pub(super) fn shown_share(&self, share: &Share) -> shares::Share {
        let listed = self.listed(&share.server);
        let means = listed.map(|tools| {
            let meant = tools.iter().filter(|tool| share.tools.covers(tool));
            meant.count() as u64
        });
        let there = self.servers.load().contains_key(&share.server);
        shares::Share {
            server: share.server.to_string(),
            to: match share.to {
                ShareAudience::Cluster => CLUSTER.to_owned(),
                ShareAudience::Node(node) => format!("{NODE}{}", self.cluster.name_of(node)),
            },
            tools: share.tools.to_string(),
            means,
            why: (!there).then(|| "there is no such server now".to_owned()),
        }
    }
}

fn not_shared(why: NotShared) -> Refusal {
    let words = why.to_string();
    match why {
        NotShared::Refused(_) => Refusal::BadParams(words),
        NotShared::NotRecorded(_) | NotShared::NotKept(_) | NotShared::Unreachable(_) => {
            Refusal::Broken(words)
        }
    }
}
