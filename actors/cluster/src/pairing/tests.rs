//! Tests of nodes that pair with each other, over loopback.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::cluster::pairing::{
    PairingEnds, PairingRejection, PairingSecret, PairingTicket, is_valid_proof,
};
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::ClusterId;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::hello::{NodeName, ReportedRole};
use mgp_protocol::federation::pairing::{PairingAsk, PairingMessage};
use mgp_protocol::ids::NodeId;
use mgp_runtime::EventSink;
use mgp_runtime::time::unix_ms;
use mgp_store::audit::AuditHandle;
use tokio::sync::mpsc;

use super::inviting::{receive_message, send_message};
use super::{
    AdmissionRequest, InviteOptions, JoinProgress, NodeAdmission, PairingActionError, PairingActor,
    PairingEvent, PairingHandle, PairingStart, PendingNode,
};
use crate::links::LinksEvent;
use crate::links::LinksHandle;
use crate::links::tests::scene::{ANYWHERE, LinkNode, keys, within_deadline};

const CLUSTER: ClusterId = ClusterId([9; 32]);

/// A node with pairing, and a kernel that admits every node except those called `used`.
struct PairingScene {
    key: NodeKey,
    links: LinksHandle,
    at: String,
    pairing: PairingHandle,
    asked: mpsc::UnboundedReceiver<PendingNode>,
    admitted: mpsc::UnboundedReceiver<AdmissionRequest>,
    joined: mpsc::UnboundedReceiver<NodeAdmission>,
    pending_changed: mpsc::UnboundedReceiver<()>,
}

fn entries() -> Vec<Vec<u8>> {
    (0..40).map(|n| vec![n; 700]).collect()
}

impl PairingScene {
    async fn new(key: &NodeKey) -> Self {
        let mut node = LinkNode::start(key).await;
        let (asked, admitted, joined) = (
            mpsc::unbounded_channel(),
            mpsc::unbounded_channel(),
            mpsc::unbounded_channel(),
        );
        let (sinks, admits, joins, inviter) = (asked.0, admitted.0, joined.0, key.public_key());
        let (changes, changed) = mpsc::unbounded_channel();
        let events = EventSink::new(move |event| match event {
            PairingEvent::ApprovalRequested(waiting) => drop(sinks.send(waiting)),
            PairingEvent::Admit(node, reply) => {
                let name = node.name.clone();
                reply.send(if name.as_str() == "taken" {
                    Err("another node is called taken".to_owned())
                } else {
                    Ok(NodeAdmission {
                        cluster: CLUSTER,
                        entries: entries(),
                        name,
                        role: node.role,
                        inviter,
                    })
                });
                drop(admits.send(node));
            }
            PairingEvent::Joined(admission, reply) => {
                reply.send(Ok(()));
                drop(joins.send(admission));
            }
        });
        let start = PairingStart {
            key: key.clone(),
            links: node.links.clone(),
            events,
            pending_changed: EventSink::new(move |()| {
                let _ = changes.send(());
            }),
            audit: AuditHandle::disabled(),
        };
        let (pairing, _cell) = PairingActor::start(start).await.unwrap();
        let (links, at, router) = (node.links.clone(), node.at.to_string(), pairing.clone());
        tokio::spawn(async move {
            while let Some(event) = node.events.recv().await {
                if let LinksEvent::Pairing(link) = event {
                    router.add_node(link);
                }
            }
        });
        Self {
            key: key.clone(),
            links,
            at,
            pairing,
            asked: asked.1,
            admitted: admitted.1,
            joined: joined.1,
            pending_changed: changed,
        }
    }

    fn invite_options(&self) -> InviteOptions {
        InviteOptions {
            cluster: CLUSTER,
            role: ReportedRole::Member,
            ttl: None,
            is_preapproved: false,
            addresses: vec![self.at.clone()],
        }
    }

    async fn invite(&self) -> String {
        self.pairing
            .invite(self.invite_options())
            .await
            .unwrap()
            .ticket
    }

    /// Waits for the words, once both sides have revealed their nonces.
    async fn words(&self) -> String {
        within_deadline(async {
            loop {
                let joining = self.pairing.joining().await.unwrap().unwrap();
                if let Some(words) = joining.words {
                    assert!(!joining.has_weak_words);
                    return words;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Waits for the outcome of the join.
    async fn outcome(&self) -> JoinProgress {
        within_deadline(async {
            loop {
                let progress = self.pairing.joining().await.unwrap().unwrap().progress;
                if !matches!(progress, JoinProgress::Dialing(_) | JoinProgress::Waiting) {
                    return progress;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }
}

fn named(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

async fn scene_pair() -> (PairingScene, PairingScene) {
    let [a, b] = keys();
    (PairingScene::new(&a).await, PairingScene::new(&b).await)
}

fn refused(reason: &str) -> JoinProgress {
    JoinProgress::Refused(reason.to_owned())
}

/// FED-017: both sides show the same words, and only a person's approval admits the node.
#[tokio::test]
async fn node_is_admitted_with_a_ticket_and_an_approval() {
    let (mut a, mut b) = scene_pair().await;
    let ticket = a.invite().await;
    let spoken_words = ticket
        .to_uppercase()
        .replace('-', " \n")
        .replacen(" \n", "-", 1);
    let joining = b.pairing.join(spoken_words, named("desk")).await.unwrap();
    assert_eq!(joining.inviter, a.key.node_id());
    assert_eq!(joining.words, None, "they are not known before both commit");
    let waiting = within_deadline(a.asked.recv()).await.unwrap();
    assert!(!waiting.node.has_fixed_words);
    assert_eq!(
        (waiting.node.node, &waiting.node.words),
        (b.key.node_id(), &b.words().await)
    );
    assert_eq!(
        a.pairing.pending_nodes().await.unwrap(),
        std::slice::from_ref(&waiting)
    );
    assert!(a.admitted.try_recv().is_err(), "nobody has said yes");
    within_deadline(a.pairing.approve(waiting.id, waiting.node.words.clone()))
        .await
        .unwrap();
    let admitted = within_deadline(a.admitted.recv()).await.unwrap();
    assert_eq!(
        (admitted.key, admitted.name),
        (b.key.public_key(), named("desk"))
    );
    let JoinProgress::Admitted(given) = b.outcome().await else {
        panic!("{:?}", b.outcome().await);
    };
    assert_eq!(
        within_deadline(b.joined.recv()).await.as_ref(),
        Some(&*given)
    );
    assert_eq!(
        (given.cluster, given.inviter),
        (CLUSTER, a.key.public_key())
    );
    assert_eq!(given.entries, entries());
    // The ticket was for one node, once: then pairing is closed.
    within_deadline(async {
        while !a.pairing.list_tickets().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let c = PairingScene::new(&NodeKey::new(&[77; 32])).await;
    c.pairing.join(ticket, named("other")).await.unwrap();
    within_deadline(async {
        loop {
            let joining = c.pairing.joining().await.unwrap().unwrap();
            if !matches!(joining.progress, JoinProgress::Dialing(None)) {
                assert!(!matches!(
                    joining.progress,
                    JoinProgress::Admitted(_) | JoinProgress::Waiting
                ));
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(a.admitted.try_recv().is_err());
}

/// FED-018.
#[tokio::test]
async fn preapproved_ticket_needs_no_approval() {
    let (a, b) = scene_pair().await;
    let terms = InviteOptions {
        is_preapproved: true,
        ..a.invite_options()
    };
    let ticket = a.pairing.invite(terms).await.unwrap().ticket;
    b.pairing.join(ticket, named("desk")).await.unwrap();
    assert!(matches!(b.outcome().await, JoinProgress::Admitted(_)));
}

/// Notified once when a node asks and once when it stops waiting: approved, denied, or its ticket ended.
#[tokio::test]
async fn pending_nodes_are_notified_when_a_node_comes_or_goes() {
    let (mut a, b) = scene_pair().await;
    for ending in ["approved", "denied", "withdrawn"] {
        let ticket = a.invite().await;
        assert!(a.pending_changed.try_recv().is_err(), "nobody asks yet");
        b.pairing.join(ticket, named("desk")).await.unwrap();
        let waiting = within_deadline(a.asked.recv()).await.unwrap();
        within_deadline(a.pending_changed.recv()).await.unwrap();
        match ending {
            "approved" => {
                let words = waiting.node.words.clone();
                within_deadline(a.pairing.approve(waiting.id, words))
                    .await
                    .unwrap();
            }
            "denied" => assert!(a.pairing.deny(waiting.id).await.unwrap()),
            _ => assert!(a.pairing.withdraw(waiting.id).await.unwrap()),
        }
        within_deadline(a.pending_changed.recv()).await.unwrap();
        assert!(a.pairing.pending_nodes().await.unwrap().is_empty());
        b.outcome().await;
        let more = a.pending_changed.try_recv();
        assert!(more.is_err(), "{ending}: it is one change");
    }
}

#[tokio::test]
async fn denial_is_reported_and_uses_the_ticket_up() {
    let (mut a, b) = scene_pair().await;
    let ticket = a.invite().await;
    b.pairing.join(ticket, named("desk")).await.unwrap();
    let waiting = within_deadline(a.asked.recv()).await.unwrap();
    assert!(a.pairing.deny(waiting.id).await.unwrap());
    assert_eq!(b.outcome().await, refused("a person there said no"));
    assert!(a.pairing.list_tickets().await.unwrap().is_empty());
    assert!(!a.pairing.deny(waiting.id).await.unwrap());
    let no_waiting_node = PairingActionError::Refused(PairingRejection::NoWaitingNode);
    assert_eq!(
        a.pairing
            .approve(waiting.id, waiting.node.words.clone())
            .await,
        Err(no_waiting_node)
    );
}

/// A name conflict is reported to both sides, and the same ticket works with another name.
#[tokio::test]
async fn name_conflict_does_not_use_the_ticket_up() {
    let (mut a, b) = scene_pair().await;
    let ticket = a.invite().await;
    b.pairing
        .join(ticket.clone(), named("taken"))
        .await
        .unwrap();
    let waiting = within_deadline(a.asked.recv()).await.unwrap();
    let reason = "another node is called taken";
    let failed = PairingActionError::NotAdmitted(reason.to_owned());
    assert_eq!(
        a.pairing
            .approve(waiting.id, waiting.node.words.clone())
            .await,
        Err(failed)
    );
    assert_eq!(b.outcome().await, refused(reason));
    b.pairing.join(ticket, named("desk")).await.unwrap();
    let waiting = within_deadline(a.asked.recv()).await.unwrap();
    within_deadline(a.pairing.approve(waiting.id, waiting.node.words.clone()))
        .await
        .unwrap();
    assert!(matches!(b.outcome().await, JoinProgress::Admitted(_)));
}

/// Only the node whose words a person compared is admitted: a node that asks under another name asks anew.
#[tokio::test]
async fn approval_of_one_name_admits_no_other() {
    let (mut a, b) = scene_pair().await;
    let ticket = a.invite().await;
    let join = |name| b.pairing.join(ticket.clone(), named(name));
    join("desk").await.unwrap();
    let desk = within_deadline(a.asked.recv()).await.unwrap();
    join("nas").await.unwrap();
    let nas = within_deadline(a.asked.recv()).await.unwrap();
    assert_eq!((nas.id, nas.node.node), (desk.id, desk.node.node));
    assert_ne!(nas.node.words, desk.node.words);
    assert_eq!(
        nas.node.words,
        b.words().await,
        "both sides show the new ones"
    );
    let changed = PairingActionError::Refused(PairingRejection::Changed);
    assert_eq!(
        a.pairing.approve(desk.id, desk.node.words).await,
        Err(changed)
    );
    within_deadline(a.pairing.approve(nas.id, nas.node.words))
        .await
        .unwrap();
    let admitted = within_deadline(a.admitted.recv()).await.unwrap();
    assert_eq!(admitted.name, named("nas"));
}

/// Decision 86: the same node, name and ticket have other words at each pairing, so none can be prepared.
#[tokio::test]
async fn words_differ_at_each_join() {
    let (mut a, b) = scene_pair().await;
    let ticket = a.invite().await;
    b.pairing.join(ticket.clone(), named("desk")).await.unwrap();
    let first = within_deadline(a.asked.recv()).await.unwrap();
    b.pairing.join(ticket, named("desk")).await.unwrap();
    let second = within_deadline(a.asked.recv()).await.unwrap();
    assert_eq!(first.node.node, second.node.node);
    assert_ne!(first.node.words, second.node.words);
    assert_eq!(b.words().await, second.node.words);
}

/// Decision 86: an older node pairs as before, and its words are marked.
#[tokio::test]
async fn older_node_joins_with_words_marked_as_weak() {
    let (mut a, b) = scene_pair().await;
    let ticket = PairingTicket::parse(&a.invite().await).unwrap();
    let endpoint = b.links.endpoint().unwrap();
    let mut link = endpoint.dial_pairing(a.key.node_id(), &a.at).await.unwrap();
    let ends = PairingEnds {
        inviter: a.key.node_id(),
        joiner: b.key.node_id(),
        binding: link.binding(),
    };
    let ask = PairingMessage::Ask(PairingAsk {
        ticket: ticket.secret.id(),
        name: named("desk"),
        proof: ends.joiner_proof(&ticket.secret),
        commitment: None,
    });
    assert!(send_message(&mut link, &ask).await);
    let Some(PairingMessage::Heard(proof)) = within_deadline(receive_message(&mut link)).await
    else {
        panic!("an older node reads nothing else");
    };
    assert!(is_valid_proof(&proof, &ends.inviter_proof(&ticket.secret)));
    let waiting = within_deadline(a.asked.recv()).await.unwrap();
    let words = ends.words(&named("desk"), &ticket.secret);
    assert_eq!(
        (waiting.node.words, waiting.node.has_fixed_words),
        (words, true)
    );
}

/// Decision 86: a node without nonces is answered, if the ticket's creator supports none.
#[tokio::test]
async fn only_tickets_of_older_nodes_are_answered_without_nonces() {
    let [a, b] = keys();
    let mut older = LinkNode::start(&a).await;
    older.links.set_pairing(true).await.unwrap();
    let b = PairingScene::new(&b).await;
    let ticket = |secret: PairingSecret| PairingTicket {
        inviter: a.public_key().0,
        cluster: CLUSTER.0,
        secret,
        expires_ms: unix_ms() + 60_000,
        addresses: vec![older.at.to_string()],
    };
    let [old, new] = [PairingSecret([7; 32]), PairingSecret::with_nonces(&[7; 28])];
    let [old_ticket, new_ticket] = [ticket(old.clone()), ticket(new.clone())];
    let inviter = a.node_id();
    tokio::spawn(async move {
        while let Some(event) = older.events.recv().await {
            let LinksEvent::Pairing(mut link) = event else {
                continue;
            };
            let Some(PairingMessage::Ask(ask)) = receive_message(&mut link).await else {
                continue;
            };
            let secret = if ask.ticket == old.id() { &old } else { &new };
            let ends = PairingEnds {
                inviter,
                joiner: NodeId::from_key(&link.peer_key()),
                binding: link.binding(),
            };
            send_message(
                &mut link,
                &PairingMessage::Heard(ends.inviter_proof(secret)),
            )
            .await;
            tokio::spawn(async move { link.next().await.is_ok() });
        }
    });
    let joining = b.pairing.join(old_ticket.render(), named("desk")).await;
    let joining = joining.unwrap();
    assert!(joining.words.is_some() && joining.has_weak_words);
    within_deadline(async {
        while b.pairing.joining().await.unwrap().unwrap().progress != JoinProgress::Waiting {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let pairing = &b.pairing;
    pairing
        .join(new_ticket.render(), named("desk"))
        .await
        .unwrap();
    let JoinProgress::Refused(reason) = b.outcome().await else {
        panic!("{:?}", b.outcome().await);
    };
    assert!(reason.contains("answers like an older version"), "{reason}");
    assert_eq!(pairing.joining().await.unwrap().unwrap().words, None);
}

/// A node that has seen a ticket after another node showed it, or has a wrong secret, is rejected.
#[tokio::test]
async fn ticket_is_bound_to_its_first_node_and_its_secret() {
    let [a, b, c] = keys();
    let (mut a, b) = (PairingScene::new(&a).await, PairingScene::new(&b).await);
    let mut c = PairingScene::new(&c).await;
    let ticket = a.invite().await;
    b.pairing.join(ticket.clone(), named("desk")).await.unwrap();
    within_deadline(a.asked.recv()).await.unwrap();
    c.pairing
        .join(ticket.clone(), named("other"))
        .await
        .unwrap();
    let used = PairingRejection::UsedByOther.to_string();
    assert_eq!(c.outcome().await, refused(&used));
    let mut guessed = PairingTicket::parse(&ticket).unwrap();
    guessed.secret.0[0] ^= 1;
    c.pairing
        .join(guessed.render(), named("other"))
        .await
        .unwrap();
    let unknown = PairingRejection::NoTicket.to_string();
    assert_eq!(c.outcome().await, refused(&unknown));
    assert!(c.joined.try_recv().is_err() && a.admitted.try_recv().is_err());
}

#[tokio::test]
async fn expired_ticket_is_reported() {
    let (a, b) = scene_pair().await;
    let terms = InviteOptions {
        ttl: Some(Duration::from_millis(700)),
        ..a.invite_options()
    };
    let ticket = a.pairing.invite(terms).await.unwrap().ticket;
    b.pairing.join(ticket, named("desk")).await.unwrap();
    assert_eq!(b.outcome().await, refused("the ticket has expired"));
    assert!(a.pairing.list_tickets().await.unwrap().is_empty());
    let withdrawn = a.pairing.invite(a.invite_options()).await.unwrap();
    b.pairing
        .join(withdrawn.ticket, named("desk"))
        .await
        .unwrap();
    within_deadline(async {
        while a.pairing.pending_nodes().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(a.pairing.withdraw(withdrawn.id).await.unwrap());
    assert_eq!(b.outcome().await, refused("the invitation was withdrawn"));
}

/// The link breaks while a person decides: the node reconnects and no second approval is requested.
#[tokio::test]
async fn lost_link_during_approval_is_resumed() {
    let (mut a, b) = scene_pair().await;
    let ticket = a.invite().await;
    b.pairing.join(ticket, named("desk")).await.unwrap();
    let waiting = within_deadline(a.asked.recv()).await.unwrap();
    b.links.open(ANYWHERE).await.unwrap();
    within_deadline(a.pairing.approve(waiting.id, waiting.node.words.clone()))
        .await
        .unwrap();
    assert!(matches!(b.outcome().await, JoinProgress::Admitted(_)));
    assert!(a.asked.try_recv().is_err());
}

#[tokio::test]
async fn invalid_ticket_is_reported_at_once() {
    let (a, b) = scene_pair().await;
    let own = a.invite().await;
    assert_eq!(
        a.pairing.join(own.clone(), named("nas")).await,
        Err(PairingActionError::OwnTicket)
    );
    let cut = own[..own.len() - 3].to_owned();
    let invalid = b.pairing.join(cut, named("desk")).await;
    assert!(
        matches!(invalid, Err(PairingActionError::Ticket(_))),
        "{invalid:?}"
    );
    let mut old = PairingTicket::parse(&own).unwrap();
    old.expires_ms = 1;
    let old = b.pairing.join(old.render(), named("desk")).await;
    assert_eq!(old, Err(PairingActionError::Expired));
    b.links.close(LinkClose::Done).await.unwrap();
    assert_eq!(
        b.pairing.join(own, named("desk")).await,
        Err(PairingActionError::NotOpen)
    );
    let closed = b
        .pairing
        .invite(b.invite_options())
        .await
        .map(|invited| invited.id);
    assert_eq!(closed, Err(PairingActionError::NotOpen));
    let shown = format!("{:?}", Arc::new(a.pairing.list_tickets().await.unwrap()));
    assert!(!shown.contains("secret"), "{shown}");
}
