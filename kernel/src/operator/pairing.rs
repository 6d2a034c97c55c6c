//! `mgp/kernel/nodes/invite`, `join` and what belongs to them: how a node comes in.

use std::time::Duration;

use mgp_callers::request::{Outcome, Request};
use mgp_cluster::pairing::{
    InviteTerms, JoinProgress, Joining, PairingFailed, TicketStatus, WaitingNode as Waits,
};
use mgp_discovery::interfaces;
use mgp_engine::cluster::node_names::looks_like;
use mgp_engine::policy::grants::MemberRole;
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::federation::hello::{NodeName, ToldRole};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::{
    Admitting, Answered, Approve, Founded, Invitations, Invite, Invited, Join, Refuse, Role, Stage,
    Ticket, WaitingNode, Withdraw,
};
use mgp_protocol::refusal::Refusal;
use serde_json::Value;

use super::nodes::{asked_by, plain};
use super::{Operator, broken, json, read};
use crate::renewed_key::RenewedKey;

/// How long a ticket is good for when nobody says.
const LIVES: Duration = Duration::from_secs(15 * 60);
/// Longest, a week: whoever finds a ticket may ask to be let in.
const LIVES_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest that a node waits for a person: then it asks again.
const WAITS: Duration = Duration::from_secs(15 * 60);

impl Operator {
    /// `mgp/kernel/nodes/invite`: founds a cluster where this node is in none.
    ///
    /// # Errors
    /// A node that is no admin; a port that cannot be opened; a disk that does not take it.
    pub async fn invite_node(&self, request: &Request) -> Outcome {
        let invite: Invite = read(request)?;
        let lives = invite.lives_secs.map_or(LIVES, Duration::from_secs);
        if lives.is_zero() || lives > LIVES_MAX {
            let words = "a ticket is good for at least a second and at most a week";
            return Err(Refusal::BadParams(words.into()));
        }
        let listens = self.cluster.listen().await.map_err(broken)?;
        let founded = self.found(request).await?;
        let view = self.cluster.replication.view();
        let Some(cluster) = view.cluster else {
            return Err(Refusal::Broken("there is no cluster".into()));
        };
        if view.role != Some(MemberRole::Admin) {
            let words =
                "only an admin of the cluster lets nodes in: `mgp cluster status` shows who is one";
            return Err(Refusal::BadParams(words.into()));
        }
        let addresses = self.addresses(invite.addresses, listens)?;
        let role = invite.role.unwrap_or_default();
        let terms = InviteTerms {
            cluster,
            role: asked(role),
            lives_for: Some(lives),
            approved_before: invite.approved,
            addresses: addresses.clone(),
        };
        let invited = self.cluster.pairing.invite(terms).await.map_err(failed)?;
        json(&Invited {
            ticket: invited.ticket,
            about: Ticket {
                id: invited.id.to_string(),
                role,
                expires_at: rfc3339_ms(invited.expires_ms),
                approved: invite.approved,
                addresses,
            },
            founded,
        })
    }

    /// Founds a cluster where there is none.
    async fn found(&self, request: &Request) -> Result<Option<Founded>, Refusal> {
        let replication = &self.cluster.replication;
        if replication.view().cluster.is_some() {
            return Ok(None);
        }
        let founded = replication.found(self.cluster.config.node_name(), asked_by(request));
        let founded = founded.await?;
        Ok(Some(Founded {
            cluster: founded.cluster.to_string(),
            recovery_key: founded.recovery.text(),
        }))
    }

    /// Where this node is reached: as somebody says, as the configuration says, or as its interfaces do.
    fn addresses(
        &self,
        asked: Vec<String>,
        listens: std::net::SocketAddr,
    ) -> Result<Vec<String>, Refusal> {
        let configured = &self.cluster.config.advertise;
        if !asked.is_empty() || !configured.is_empty() {
            return Ok(match asked.is_empty() {
                true => configured.clone(),
                false => asked,
            });
        }
        let found = interfaces::reachable(listens).map_err(broken)?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    /// `mgp/kernel/nodes/tickets`.
    ///
    /// # Errors
    /// When the actor does not answer.
    pub async fn list_tickets(&self) -> Outcome {
        let tickets = self.cluster.pairing.tickets().await.map_err(broken)?;
        let tickets = tickets.iter().map(shown_ticket).collect();
        json(&Invitations {
            tickets,
            waiting: self.waiting_nodes().await?,
        })
    }

    /// `mgp/kernel/nodes/withdraw`.
    ///
    /// # Errors
    /// No such ticket.
    pub async fn withdraw_ticket(&self, request: &Request) -> Outcome {
        let withdraw: Withdraw = read(request)?;
        let tickets = self.cluster.pairing.tickets().await.map_err(broken)?;
        let mut tickets = tickets.into_iter();
        let ticket = tickets.find(|ticket| ticket.id.to_string() == withdraw.ticket);
        let Some(ticket) = ticket else {
            return Err(Refusal::BadParams(format!(
                "no ticket {:?} is out: `mgp nodes tickets` shows those that are",
                withdraw.ticket
            )));
        };
        let withdrawn = self.cluster.pairing.withdraw(ticket.id).await;
        withdrawn.map_err(broken)?;
        json(&shown_ticket(&ticket))
    }

    /// The nodes that wait for a person.
    pub(super) async fn waiting_nodes(&self) -> Result<Vec<WaitingNode>, Refusal> {
        let waiting = self.cluster.pairing.waiting().await.map_err(broken)?;
        let shown = waiting.iter().map(|waits| self.shown_waiting(waits));
        Ok(shown.collect())
    }

    /// `mgp/kernel/nodes/approve`.
    ///
    /// # Errors
    /// Nobody waits, or not this one, or it shows other words, or none were said; it cannot be written down.
    pub async fn approve_node(&self, request: &Request) -> Outcome {
        let approve: Approve = read(request)?;
        let waits = self.waiting_one(approve.node.as_deref()).await?;
        let (name, shows) = (&waits.who.name, &waits.who.words);
        let typed = approve.node.filter(|typed| typed == shows);
        // A name or the beginning of an id may be another node's by now: the words are those of its key and its name.
        let words = approve
            .words
            .or(typed)
            .ok_or_else(|| words_wanted(&waits))?;
        if words != *shows {
            return Err(Refusal::BadParams(format!(
                "{name} shows {shows:?}: where the other side shows {words:?}, it is another node, and is not let in"
            )));
        }
        self.let_in(&waits).await?;
        json(&answered(&waits, true))
    }

    /// The node that asks to join under these words or, where no other entry has that name, under this name of its
    /// own choice.
    pub(super) async fn asking_node(
        &self,
        typed: &str,
        only: &[String],
    ) -> Result<Option<Waits>, Refusal> {
        let typed = typed.trim().to_ascii_lowercase();
        let mut waiting = self.cluster.pairing.waiting().await.map_err(broken)?;
        let is_entry = self.approvals.list().iter().any(|entry| entry.id == typed);
        waiting.retain(|node| {
            node.who.words == typed || (!is_entry && node.who.name.as_str() == typed)
        });
        match (waiting.pop(), only) {
            (Some(_), _) if !waiting.is_empty() => Err(Refusal::BadParams(format!(
                "several nodes ask under the name {typed}: use the words of one, as `mgp pending` shows them"
            ))),
            (Some(_), [part, ..]) => Err(Refusal::BadParams(format!(
                "{typed} is not about {part}; it is about one thing as a whole"
            ))),
            (node, _) => Ok(node),
        }
    }

    /// Admits a node whose words were compared.
    pub(super) async fn let_in(&self, node: &Waits) -> Result<(), Refusal> {
        let words = node.who.words.clone();
        self.cluster
            .pairing
            .approve(node.id, words)
            .await
            .map_err(failed)
    }

    /// Rejects a node that asks; its ticket is used up.
    pub(super) async fn turn_away(&self, node: &Waits) -> Result<(), Refusal> {
        let refused = self.cluster.pairing.refuse(node.id).await;
        refused.map(drop).map_err(broken)
    }

    /// `mgp/kernel/nodes/refuse`.
    ///
    /// # Errors
    /// Nobody waits, or not this one.
    pub async fn refuse_node(&self, request: &Request) -> Outcome {
        let refuse: Refuse = read(request)?;
        let waits = self.waiting_one(refuse.node.as_deref()).await?;
        self.turn_away(&waits).await?;
        json(&answered(&waits, false))
    }

    fn shown_waiting(&self, waits: &Waits) -> WaitingNode {
        let until = waits.who.since_ms.saturating_add(millis(WAITS));
        let view = self.cluster.replication.view();
        let known = view.members.values();
        let known = known.filter(|member| !member.standing.is_out());
        let known = known.map(|member| member.name.as_str());
        WaitingNode {
            id: waits.who.node.to_string(),
            name: waits.who.name.to_string(),
            called_before: waits.who.called_before.as_ref().map(ToString::to_string),
            looks_like: looks_like(waits.who.name.as_str(), known).map(str::to_owned),
            words: waits.who.words.clone(),
            words_note: waits.who.fixed_words.then(|| words_note(waits.who.node)),
            role: given(waits.role),
            from: waits.from.map(plain).unwrap_or_default(),
            ticket: waits.id.to_string(),
            since: rfc3339_ms(waits.who.since_ms),
            until: rfc3339_ms(until.min(waits.expires_ms)),
        }
    }

    /// The node that is meant: by its name, its words, its id or the beginning of it; nothing where only one waits.
    async fn waiting_one(&self, typed: Option<&str>) -> Result<Waits, Refusal> {
        let mut waiting = self.cluster.pairing.waiting().await.map_err(broken)?;
        let known: Vec<String> = waiting.iter().map(|it| it.who.name.to_string()).collect();
        if let Some(typed) = typed {
            waiting.retain(|it| {
                let id = it.who.node.to_string();
                it.who.name.as_str() == typed
                    || it.who.words == typed
                    || (typed.len() >= 6 && id.starts_with(typed))
            });
        }
        match (waiting.pop(), waiting.is_empty()) {
            (Some(one), true) => Ok(one),
            (Some(_), false) => Err(Refusal::BadParams(format!(
                "several nodes wait: say which, by its name or its words ({})",
                known.join(", ")
            ))),
            (None, _) => Err(Refusal::BadParams(match known.is_empty() {
                true => "no node waits to be let in".into(),
                false => format!("no such node waits; there waits {}", known.join(", ")),
            })),
        }
    }

    /// `mgp/kernel/nodes/join`.
    ///
    /// # Errors
    /// A ticket that is none; a node that is in a cluster; a port that cannot be opened.
    pub async fn join_cluster(&self, request: &Request) -> Outcome {
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
        if RenewedKey::of(&self.data_dir)
            .next()
            .map_err(broken)?
            .is_some()
        {
            let words = "this node has a new key from its next start on: `mgp down`, start it as before, then `mgp nodes join` again; the ticket was not used";
            return Err(Refusal::BadParams(words.into()));
        }
        self.cluster.listen().await.map_err(broken)?;
        let joining = self.cluster.pairing.join(join.ticket, name).await;
        match joining {
            Ok(joining) => json(&self.shown_joining(&joining)),
            Err(why) => {
                self.cluster.listen_no_more().await;
                Err(failed(why))
            }
        }
    }

    /// `mgp/kernel/nodes/admission`.
    ///
    /// # Errors
    /// When the actor does not answer.
    pub async fn admission(&self) -> Outcome {
        match self.cluster.pairing.joining().await.map_err(broken)? {
            Some(joining) => json(&self.shown_joining(&joining)),
            None => json(&Value::Null),
        }
    }

    fn shown_joining(&self, joining: &Joining) -> Admitting {
        let (stage, why) = match &joining.progress {
            JoinProgress::Dialing(why) => (Stage::Reaching, why.clone()),
            JoinProgress::Waiting => (Stage::Waiting, None),
            JoinProgress::Admitted(_) => (Stage::Admitted, None),
            JoinProgress::Refused(why) => (Stage::Refused, Some(why.clone())),
            JoinProgress::Expired => (Stage::Expired, None),
            JoinProgress::Failed(why) => (Stage::Failed, Some(why.clone())),
        };
        let admission = match &joining.progress {
            JoinProgress::Admitted(admission) => Some(admission),
            JoinProgress::Dialing(_)
            | JoinProgress::Waiting
            | JoinProgress::Refused(_)
            | JoinProgress::Expired
            | JoinProgress::Failed(_) => None,
        };
        Admitting {
            stage,
            inviter: self.cluster.name_of(joining.inviter),
            words: joining.words.clone(),
            words_note: joining.fixed_words.then(|| words_note(joining.inviter)),
            name: joining.name.to_string(),
            role: admission.map(|admission| given(admission.role)),
            cluster: admission.map(|admission| admission.cluster.to_string()),
            until: rfc3339_ms(joining.expires_ms),
            why,
        }
    }
}

/// Words without nonces are no proof against who holds the ticket; a whole id is.
fn words_note(other: NodeId) -> String {
    format!(
        "the node there runs an older version, or says so: whoever holds the ticket can forge these words; compare \
         its whole id too, which `mgp nodes show` shows there: {other}"
    )
}

fn shown_ticket(ticket: &TicketStatus) -> Ticket {
    Ticket {
        id: ticket.id.to_string(),
        role: given(ticket.role),
        expires_at: rfc3339_ms(ticket.expires_ms),
        approved: ticket.approved_before,
        addresses: ticket.places.clone(),
    }
}

fn answered(waits: &Waits, admitted: bool) -> Answered {
    Answered {
        id: waits.who.node.to_string(),
        name: waits.who.name.to_string(),
        words: waits.who.words.clone(),
        admitted,
        role: given(waits.role),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn asked(role: Role) -> ToldRole {
    match role {
        Role::Admin => ToldRole::Admin,
        Role::Member => ToldRole::Member,
        Role::Leaf => ToldRole::Leaf,
    }
}

/// A name is the node's own choice, and may be another node's by now: an approval takes the words of its key and name.
pub(super) fn words_wanted(node: &Waits) -> Refusal {
    let (name, words) = (&node.who.name, &node.who.words);
    Refusal::BadParams(format!(
        "{name} asks to join: if it shows the words {words}, approve it with them: `mgp approve {words}`"
    ))
}

pub(super) fn given(role: ToldRole) -> Role {
    match role {
        ToldRole::Admin => Role::Admin,
        ToldRole::Member => Role::Member,
        ToldRole::Leaf | ToldRole::Unknown => Role::Leaf,
    }
}

fn failed(why: PairingFailed) -> Refusal {
    let words = why.to_string();
    match why {
        PairingFailed::Ticket(_)
        | PairingFailed::Refused(_)
        | PairingFailed::NotAdmitted(_)
        | PairingFailed::Own
        | PairingFailed::Expired => Refusal::BadParams(words),
        PairingFailed::NotOpen | PairingFailed::NotRecorded(_) | PairingFailed::Actor(_) => {
            Refusal::Broken(words)
        }
    }
}
