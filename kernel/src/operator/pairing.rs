//! `mgp/kernel/nodes/invite`, `join` and related methods: how a node joins.

use std::time::Duration;

use mgp_callers::request::{Outcome, Request};
use mgp_cluster::pairing::{
    InviteOptions, JoinProgress, Joining, PairingActionError, PendingNode as Waits, TicketStatus,
    id_check_note,
};
use mgp_discovery::interfaces;
use mgp_engine::policy::grants::MemberRole;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::mgp::kernel::nodes::{
    AdmissionResult, Approve, Founded, Invitations, Invite, Invited, Join, JoinStage, JoinStatus,
    Refuse, Ticket, WaitingNode, Withdraw,
};
use mgp_protocol::refusal::Refusal;
use serde_json::Value;

use super::nodes::request_author;
use super::{Operator, internal_error, json, read};
use crate::key_rotation::KeyRotation;

/// Default lifetime of a ticket.
const DEFAULT_TICKET_TTL: Duration = Duration::from_secs(15 * 60);
/// Longest lifetime, a week: whoever finds a ticket can ask to join.
const TICKET_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl Operator {
    /// `mgp/kernel/nodes/invite`: founds a cluster if this node is in none.
    ///
    /// # Errors
    /// A node that is no admin; a port that cannot be opened; a failed write.
    pub(crate) async fn invite_node(&self, request: &Request) -> Outcome {
        let invite: Invite = read(request)?;
        let lives = invite
            .lives_secs
            .map_or(DEFAULT_TICKET_TTL, Duration::from_secs);
        if lives.is_zero() || lives > TICKET_TTL_MAX {
            let words = "a ticket is good for at least a second and at most a week";
            return Err(Refusal::BadParams(words.into()));
        }
        let listens = self.cluster.listen().await.map_err(internal_error)?;
        let founded = self.found_cluster(request).await?;
        let view = self.cluster.replication.view();
        let Some(cluster) = view.cluster else {
            return Err(Refusal::Internal("there is no cluster".into()));
        };
        if view.role != Some(MemberRole::Admin) {
            let words =
                "only an admin of the cluster lets nodes in: `mgp cluster status` shows who is one";
            return Err(Refusal::BadParams(words.into()));
        }
        let addresses = self.advertised_addresses(invite.addresses, listens)?;
        let role = invite.role.unwrap_or_default();
        let terms = InviteOptions {
            cluster,
            role: role.into(),
            ttl: Some(lives),
            is_preapproved: invite.approved,
            addresses: addresses.clone(),
        };
        let invited = self
            .cluster
            .pairing
            .invite(terms)
            .await
            .map_err(pairing_refusal)?;
        json(&Invited {
            ticket: invited.ticket,
            about: Ticket {
                id: invited.id.to_string(),
                role,
                expires_at: render_rfc3339_ms(invited.expires_ms),
                approved: invite.approved,
                addresses,
            },
            founded,
        })
    }

    /// Founds a cluster if there is none.
    async fn found_cluster(&self, request: &Request) -> Result<Option<Founded>, Refusal> {
        let replication = &self.cluster.replication;
        if replication.view().cluster.is_some() {
            return Ok(None);
        }
        let founded =
            replication.found_cluster(self.cluster.config.node_name(), request_author(request));
        let founded = founded.await?;
        Ok(Some(Founded {
            cluster: founded.cluster.to_string(),
            recovery_key: founded.recovery.render(),
        }))
    }

    /// The addresses of this node: as requested, as configured, or those of its interfaces.
    fn advertised_addresses(
        &self,
        requested: Vec<String>,
        listens: std::net::SocketAddr,
    ) -> Result<Vec<String>, Refusal> {
        let configured = &self.cluster.config.advertise;
        if !requested.is_empty() || !configured.is_empty() {
            return Ok(if requested.is_empty() {
                configured.clone()
            } else {
                requested
            });
        }
        let found = interfaces::reachable_addresses(listens).map_err(internal_error)?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    /// `mgp/kernel/nodes/tickets`.
    ///
    /// # Errors
    /// When the actor does not answer.
    pub(crate) async fn list_tickets(&self) -> Outcome {
        let tickets = self
            .cluster
            .pairing
            .list_tickets()
            .await
            .map_err(internal_error)?;
        let tickets = tickets.iter().map(to_protocol_ticket).collect();
        json(&Invitations {
            tickets,
            waiting: self.waiting_nodes().await?,
        })
    }

    /// `mgp/kernel/nodes/withdraw`.
    ///
    /// # Errors
    /// Unknown ticket.
    pub(crate) async fn withdraw_ticket(&self, request: &Request) -> Outcome {
        let withdraw: Withdraw = read(request)?;
        let tickets = self
            .cluster
            .pairing
            .list_tickets()
            .await
            .map_err(internal_error)?;
        let mut tickets = tickets.into_iter();
        let ticket = tickets.find(|ticket| ticket.id.to_string() == withdraw.ticket);
        let Some(ticket) = ticket else {
            return Err(Refusal::BadParams(format!(
                "no ticket {:?} is out: `mgp nodes tickets` shows those that are",
                withdraw.ticket
            )));
        };
        let withdrawn = self.cluster.pairing.withdraw(ticket.id).await;
        withdrawn.map_err(internal_error)?;
        json(&to_protocol_ticket(&ticket))
    }

    /// The nodes that wait for approval.
    pub(super) async fn waiting_nodes(&self) -> Result<Vec<WaitingNode>, Refusal> {
        let view = self.cluster.replication.view();
        let waiting = self.cluster.pairing.waiting_nodes(&view).await;
        waiting.map_err(internal_error)
    }

    /// `mgp/kernel/nodes/approve`.
    ///
    /// # Errors
    /// No such node waits, the words differ or are missing; a failed write.
    pub(crate) async fn approve_node(&self, request: &Request) -> Outcome {
        let approve: Approve = read(request)?;
        let waits = self.find_waiting_node(approve.node.as_deref()).await?;
        let (name, shows) = (&waits.node.name, &waits.node.words);
        let typed = approve.node.filter(|typed| typed == shows);
        // Another node may use a name or a prefix of an id by now: the words cover key and name.
        let words = approve
            .words
            .or(typed)
            .ok_or_else(|| require_words(&waits))?;
        if words != *shows {
            return Err(Refusal::BadParams(format!(
                "{name} shows {shows:?}: where the other side shows {words:?}, it is another node, and is not let in"
            )));
        }
        self.admit_node(&waits).await?;
        json(&to_decision(&waits, true))
    }

    /// The node that asks to join under these words or else under this name, which it chose itself; `None` if another
    /// entry has that name.
    pub(super) async fn find_joining_node(
        &self,
        typed: &str,
        only: &[String],
    ) -> Result<Option<Waits>, Refusal> {
        let typed = typed.trim().to_ascii_lowercase();
        if self.approvals.list().iter().any(|entry| entry.id == typed) {
            return Ok(None);
        }
        let waiting = self.cluster.pairing.pending_nodes().await;
        let waiting = waiting.map_err(internal_error)?;
        let node = match_joining_node(&waiting, &typed, |waits| {
            (&*waits.node.words, waits.node.name.as_str())
        })?;
        match (node, only) {
            (Some(_), [part, ..]) => Err(Refusal::BadParams(format!(
                "{typed} is not about {part}; it is about one thing as a whole"
            ))),
            (node, _) => Ok(node.cloned()),
        }
    }

    /// Admits a node after its words were compared.
    pub(super) async fn admit_node(&self, node: &Waits) -> Result<(), Refusal> {
        let words = node.node.words.clone();
        self.cluster
            .pairing
            .approve(node.id, words)
            .await
            .map_err(pairing_refusal)
    }

    /// Rejects a waiting node; its ticket is used up.
    pub(super) async fn reject_node(&self, node: &Waits) -> Result<(), Refusal> {
        let refused = self.cluster.pairing.deny(node.id).await;
        refused.map(drop).map_err(internal_error)
    }

    /// `mgp/kernel/nodes/refuse`.
    ///
    /// # Errors
    /// No such node waits.
    pub(crate) async fn refuse_node(&self, request: &Request) -> Outcome {
        let refuse: Refuse = read(request)?;
        let waits = self.find_waiting_node(refuse.node.as_deref()).await?;
        self.reject_node(&waits).await?;
        json(&to_decision(&waits, false))
    }

    /// Finds a waiting node by name, words, id or a prefix of it; without an argument, the only one.
    async fn find_waiting_node(&self, typed: Option<&str>) -> Result<Waits, Refusal> {
        let mut waiting = self
            .cluster
            .pairing
            .pending_nodes()
            .await
            .map_err(internal_error)?;
        let known: Vec<String> = waiting.iter().map(|it| it.node.name.to_string()).collect();
        if let Some(typed) = typed {
            waiting.retain(|it| {
                let id = it.node.node.to_string();
                it.node.name.as_str() == typed
                    || it.node.words == typed
                    || (typed.len() >= 6 && id.starts_with(typed))
            });
        }
        match (waiting.pop(), waiting.is_empty()) {
            (Some(one), true) => Ok(one),
            (Some(_), false) => Err(Refusal::BadParams(format!(
                "several nodes wait: say which, by its name or its words ({})",
                known.join(", ")
            ))),
            (None, _) => Err(Refusal::BadParams(if known.is_empty() {
                "no node waits to be let in".into()
            } else {
                format!("no such node waits; there waits {}", known.join(", "))
            })),
        }
    }

    /// `mgp/kernel/nodes/join`.
    ///
    /// # Errors
    /// An invalid ticket; a node that is in a cluster; a port that cannot be opened.
    pub(crate) async fn join_cluster(&self, request: &Request) -> Outcome {
        let join: Join = read(request)?;
        let name = match &join.name {
            Some(name) => {
                NodeName::parse(name).map_err(|why| Refusal::BadParams(why.to_string()))?
            }
            None => self.cluster.config.node_name(),
        };
        if self.cluster.replication.view().cluster.is_some() {
            let words = "this node is in a cluster already: `mgp nodes leave` leaves it";
            return Err(Refusal::BadParams(words.into()));
        }
        if KeyRotation::new(&self.data_dir)
            .next_key()
            .map_err(internal_error)?
            .is_some()
        {
            let words = "this node has a new key from its next start on: `mgp down`, start it as before, then `mgp nodes join` again; the ticket was not used";
            return Err(Refusal::BadParams(words.into()));
        }
        self.cluster.listen().await.map_err(internal_error)?;
        let joining = self.cluster.pairing.join(join.ticket, name).await;
        match joining {
            Ok(joining) => json(&self.to_admission_status(&joining)),
            Err(why) => {
                self.cluster.stop_listening().await;
                Err(pairing_refusal(why))
            }
        }
    }

    /// `mgp/kernel/nodes/admission`.
    ///
    /// # Errors
    /// When the actor does not answer.
    pub(crate) async fn admission_status(&self) -> Outcome {
        match self
            .cluster
            .pairing
            .joining()
            .await
            .map_err(internal_error)?
        {
            Some(joining) => json(&self.to_admission_status(&joining)),
            None => json(&Value::Null),
        }
    }

    fn to_admission_status(&self, joining: &Joining) -> JoinStatus {
        let (stage, why) = match &joining.progress {
            JoinProgress::Dialing(why) => (JoinStage::Reaching, why.clone()),
            JoinProgress::Waiting => (JoinStage::Waiting, None),
            JoinProgress::Admitted(_) => (JoinStage::Admitted, None),
            JoinProgress::Refused(why) => (JoinStage::Refused, Some(why.clone())),
            JoinProgress::Expired => (JoinStage::Expired, None),
            JoinProgress::Failed(why) => (JoinStage::Failed, Some(why.clone())),
        };
        let admission = match &joining.progress {
            JoinProgress::Admitted(admission) => Some(admission),
            JoinProgress::Dialing(_)
            | JoinProgress::Waiting
            | JoinProgress::Refused(_)
            | JoinProgress::Expired
            | JoinProgress::Failed(_) => None,
        };
        JoinStatus {
            stage,
            inviter: self.cluster.node_label(joining.inviter),
            words: joining.words.clone(),
            words_note: joining
                .has_weak_words
                .then(|| id_check_note(joining.inviter)),
            name: joining.name.to_string(),
            role: admission.map(|admission| admission.role.into()),
            cluster: admission.map(|admission| admission.cluster.to_string()),
            until: render_rfc3339_ms(joining.expires_ms),
            why,
        }
    }
}

fn to_protocol_ticket(ticket: &TicketStatus) -> Ticket {
    Ticket {
        id: ticket.id.to_string(),
        role: ticket.role.into(),
        expires_at: render_rfc3339_ms(ticket.expires_ms),
        approved: ticket.is_preapproved,
        addresses: ticket.addresses.clone(),
    }
}

fn to_decision(waits: &Waits, admitted: bool) -> AdmissionResult {
    AdmissionResult {
        id: waits.node.node.to_string(),
        name: waits.node.name.to_string(),
        words: waits.node.words.clone(),
        admitted,
        role: waits.role.into(),
    }
}

/// A node chooses its name, and another may use it by now: an approval requires the words of its key and name.
pub(super) fn require_words(node: &Waits) -> Refusal {
    let (name, words) = (&node.node.name, &node.node.words);
    Refusal::BadParams(format!(
        "{name} asks to join: if it shows the words {words}, approve it with them: `mgp approve {words}`"
    ))
}

fn pairing_refusal(why: PairingActionError) -> Refusal {
    let words = why.to_string();
    match why {
        PairingActionError::Ticket(_)
        | PairingActionError::Refused(_)
        | PairingActionError::NotAdmitted(_)
        | PairingActionError::OwnTicket
        | PairingActionError::Expired => Refusal::BadParams(words),
        PairingActionError::NotOpen
        | PairingActionError::NotRecorded(_)
        | PairingActionError::Actor(_) => Refusal::Internal(words),
    }
}

/// The node that asks under these words or else under this name. A node chooses its name itself: it never stands for
/// the words of another one.
fn match_joining_node<'a, N>(
    waiting: &'a [N],
    typed: &str,
    words_and_name: impl Fn(&'a N) -> (&'a str, &'a str),
) -> Result<Option<&'a N>, Refusal> {
    if let Some(node) = waiting.iter().find(|node| words_and_name(node).0 == typed) {
        return Ok(Some(node));
    }
    let mut named = waiting
        .iter()
        .filter(|node| words_and_name(node).1 == typed);
    let node = named.next();
    if named.next().is_some() {
        return Err(Refusal::BadParams(format!(
            "several nodes ask under the name {typed}: use the words of one, as `mgp pending` shows them"
        )));
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::match_joining_node;

    /// A node named like the words of another one has no effect on that one.
    #[test]
    fn a_chosen_name_never_matches_the_words_of_another_node() {
        let waiting = [
            ("amber-otter", "desk"),
            ("green-river", "amber-otter"),
            ("white-stone", "amber-otter"),
            ("black-cloud", "den"),
        ];
        let find = |typed: &str| {
            match_joining_node(&waiting, typed, |node| *node).map(|found| found.map(|node| node.0))
        };
        assert_eq!(find("amber-otter").unwrap(), Some("amber-otter"));
        assert_eq!(find("den").unwrap(), Some("black-cloud"));
        assert_eq!(find("attic").unwrap(), None);
        let several = [("one-word", "desk"), ("two-word", "desk")];
        let refused = match_joining_node(&several, "desk", |node| *node).unwrap_err();
        assert!(refused.to_string().contains("use the words"), "{refused}");
    }
}
