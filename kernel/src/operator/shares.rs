//! `mgp/kernel/shares/*`: servers that this node shares.

use std::collections::BTreeSet;
use std::sync::Arc;

use mgp_callers::request::{Outcome, Request};
use mgp_calls::name_sources;
use mgp_cluster::{ShareChangeError, ShareSpec};
use mgp_engine::cluster::shares::{Share, ShareAudience};
use mgp_engine::doors::name_resolver::ResolvedName;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::kernel::shares::{self, Add, Changed, Remove, Shares};
use mgp_protocol::refusal::Refusal;
use mgp_store::audit::operator_actor;

use super::{Operator, json, read};

/// The audience of all members.
const CLUSTER_AUDIENCE: &str = "cluster";
/// The prefix of a node's name.
const NODE_AUDIENCE_PREFIX: &str = "node:";

impl Operator {
    /// `mgp/kernel/shares/add`.
    ///
    /// # Errors
    /// A share that is invalid; a failed write.
    pub(crate) async fn share(&self, request: &Request) -> Outcome {
        let add: Add = read(request)?;
        let server = self.parse_local_server(&add.server, !add.yet_unknown)?;
        let wish = ShareSpec {
            to: self.parse_audience(&add.to)?,
            tools: add.tools,
            listed: self.listed_tools(&server),
            allow_missing: add.yet_unknown,
            server,
        };
        let shared = self.cluster.shares.add(wish, operator_actor()).await;
        let shared = shared.map_err(share_refusal)?;
        self.cluster.publish_exports().await?;
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
            changed: shared
                .iter()
                .map(|share| self.to_protocol_share(share))
                .collect(),
            notes,
        })
    }

    /// `mgp/kernel/shares/remove`.
    ///
    /// # Errors
    /// An unknown share; a failed write.
    pub(crate) async fn unshare(&self, request: &Request) -> Outcome {
        let remove: Remove = read(request)?;
        let server = self.parse_local_server(&remove.server, false)?;
        let to = remove.to.as_deref().map(|to| self.parse_audience(to));
        let ended =
            self.cluster
                .shares
                .remove(server, to.transpose()?, remove.tools, operator_actor());
        let ended = ended.await.map_err(share_refusal)?;
        self.cluster.publish_exports().await?;
        json(&Changed {
            changed: ended
                .iter()
                .map(|share| self.to_protocol_share(share))
                .collect(),
            notes: Vec::new(),
        })
    }

    /// `mgp/kernel/shares/list`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub(crate) fn list_shares(&self) -> Outcome {
        let shares = self.cluster.shares.current();
        let shares = shares
            .iter()
            .map(|share| self.to_protocol_share(&share))
            .collect();
        json(&Shares { shares })
    }

    /// A server of this node; with `must_exist`, one that exists.
    fn parse_local_server(&self, typed: &str, must_exist: bool) -> Result<ServerId, Refusal> {
        let resolver = self.name_sources.name_resolver();
        let resolved: ResolvedName<ServerId> =
            name_sources::require_name(resolver.resolve_server(typed), must_exist)?;
        Ok(resolved.value)
    }

    fn parse_audience(&self, to: &str) -> Result<ShareAudience, Refusal> {
        if to == CLUSTER_AUDIENCE {
            return Ok(ShareAudience::Cluster);
        }
        let Some(node) = to.strip_prefix(NODE_AUDIENCE_PREFIX) else {
            return Err(Refusal::BadParams(format!(
                "{to:?} is nobody to share with: `cluster` is everybody, `node:NAME` one node"
            )));
        };
        Ok(ShareAudience::Node(self.find_peer(node)?))
    }

    /// The server's own names for its tools; `None` before its first list.
    fn listed_tools(&self, server: &ServerId) -> Option<BTreeSet<Arc<str>>> {
        let offer = self.servers.load().get(server)?.last_offer()?;
        Some(
            offer
                .tools()
                .iter()
                .map(|tool| tool.own_name.clone())
                .collect(),
        )
    }

    pub(super) fn to_protocol_share(&self, share: &Share) -> shares::Share {
        let listed = self.listed_tools(&share.server);
        let means = listed.map(|tools| {
            let resolved = tools.iter().filter(|tool| share.tools.matches(tool));
            resolved.count() as u64
        });
        let exists = self.servers.load().contains_key(&share.server);
        shares::Share {
            server: share.server.to_string(),
            to: match share.to {
                ShareAudience::Cluster => CLUSTER_AUDIENCE.to_owned(),
                ShareAudience::Node(node) => {
                    format!("{NODE_AUDIENCE_PREFIX}{}", self.cluster.node_label(node))
                }
            },
            tools: share.tools.to_string(),
            means,
            why: (!exists).then(|| "there is no such server now".to_owned()),
        }
    }
}

fn share_refusal(why: ShareChangeError) -> Refusal {
    let words = why.to_string();
    match why {
        ShareChangeError::Refused(_) => Refusal::BadParams(words),
        ShareChangeError::NotRecorded(_)
        | ShareChangeError::Save(_)
        | ShareChangeError::Unreachable(_) => Refusal::Internal(words),
    }
}
