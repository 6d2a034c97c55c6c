//! One link that lives: the task that reads and writes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::cluster::link_plan::LinkFacts;
use mgp_protocol::federation::addresses::NodeAddresses;
use mgp_protocol::federation::control::{Control, Pong};
use mgp_protocol::federation::ends::LinkClose;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::unix_ms;
use mgp_transports::quic::{
    ControlInput, ControlOutput, InboundStream, InboundStreams, NewLink, PacketInput, WriteFailure,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::outbox::{Outbox, PACKETS, Unheeded};
use super::parts::LinksParts;
use super::{InboundNodeCall, LinksEvent, LinksMsg, PeerLink};

/// Somebody who dialed; the next one is let in when this one was looked at.
#[derive(Debug)]
pub struct AcceptedLink {
    pub(super) link: Box<NewLink>,
    pub(super) taken: Reply<()>,
}

/// Messages of one link that may wait in the mailboxes of other actors: more than one that keeps to the protocol
/// sends in a row. Whoever sends faster waits, and keeps no other out.
pub(super) const UNHEEDED: usize = 16;

/// The place of a message among those of its link that were not heeded yet. Dropped, it lets the next one in.
#[derive(Debug, Default)]
pub struct HeardTurn {
    _place: Option<OwnedSemaphorePermit>,
}

/// What of a link the actor itself is told.
#[derive(Debug)]
pub enum HeardOnLink {
    /// The peer's renewal.
    Renewal(u64),
    /// Where others are.
    Addresses(NodeAddresses),
    /// A packet of membership.
    Packet(Bytes),
    /// The peer answered.
    Answered,
}

/// A link and its task.
#[derive(Debug)]
pub(super) struct LiveLink {
    pub(super) number: u64,
    pub(super) peer: Arc<PeerLink>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) since_ms: u64,
    /// Ends with it.
    _task: SupervisedTask<()>,
}

impl LiveLink {
    /// Begins to read and to write.
    pub(super) fn new(
        number: u64,
        new: NewLink,
        parts: &LinksParts,
        mailbox: Mailbox<LinksMsg>,
    ) -> Self {
        let peer = PeerLink::new(new.link, &parts.key);
        let (outbox, packets) = Outbox::new();
        let outbox = Arc::new(outbox);
        let served = ServedLink {
            number,
            peer: Arc::clone(&peer),
            outbox: Arc::clone(&outbox),
            events: parts.events.clone(),
            mailbox: mailbox.clone(),
            clock: parts.times.clock,
            turns: Arc::new(Semaphore::new(UNHEEDED)),
        };
        let (input, output) = (new.control_input, new.control_output);
        let (streams, membership) = (new.inbound, new.packets);
        let link = peer.link.clone();
        let serving = async move {
            let served = served.serve(input, output, streams, membership, packets);
            // A panic over what one peer says ends its link, and nothing else.
            let _broken = task::caught("links.link", served).await;
            link.close(LinkClose::Done);
            let why = link.ended().await;
            let _over = mailbox.remind(LinksMsg::Ended(number, why));
        };
        Self {
            number,
            peer,
            outbox,
            since_ms: unix_ms(),
            _task: task::supervised("links.link", serving),
        }
    }

    /// No other node is between.
    pub(super) fn is_direct(&self) -> bool {
        self.peer.link.relay().is_none()
    }

    pub(super) fn facts(&self) -> LinkFacts {
        LinkFacts {
            dialed: self.peer.link.dialed(),
            relayed: self.peer.link.relay().is_some(),
            life: self.peer.link.hello().life,
        }
    }

    /// Puts a message in line. A peer that does not read is cut.
    pub(super) fn tell(&self, message: Control) {
        let told = self.outbox.push(message);
        self.judge(told);
    }

    /// Asks whether the peer answers.
    pub(super) fn ask(&self) {
        let asked = self.outbox.ask_clock();
        self.judge(asked);
    }

    fn judge(&self, told: Result<(), Unheeded>) {
        judge(&self.peer, told);
    }
}

fn judge(peer: &PeerLink, told: Result<(), Unheeded>) {
    if told.is_err() {
        let node = peer.link.peer().short();
        tracing::warn!(node, "a node that does not read what it is told is cut off");
        peer.link.close(LinkClose::TooMany);
    }
}

/// What the task of a link holds.
struct ServedLink {
    number: u64,
    peer: Arc<PeerLink>,
    outbox: Arc<Outbox>,
    events: EventSink<LinksEvent>,
    mailbox: Mailbox<LinksMsg>,
    clock: Duration,
    turns: Arc<Semaphore>,
}

impl ServedLink {
    /// Until the first of them finds that the link is gone.
    async fn serve(
        &self,
        input: ControlInput,
        output: ControlOutput,
        streams: InboundStreams,
        membership: PacketInput,
        packets: mpsc::Receiver<Bytes>,
    ) {
        tokio::select! {
            _gone = self.peer.link.ended() => {}
            () = self.peer.link.falls_silent() => {}
            () = self.hear(input) => {}
            () = self.say(output) => {}
            () = self.take(streams) => {}
            () = self.hear_packets(membership) => {}
            () = self.send_packets(packets) => {}
            () = self.ask_clock() => {}
        }
    }

    async fn hear(&self, mut input: ControlInput) {
        while let Ok(message) = input.next().await {
            let node = self.peer.link.peer();
            match message {
                Control::Ping(ping) => {
                    let (nonce, wall_ms) = (ping.nonce, unix_ms());
                    let told = self.outbox.push(Control::Pong(Pong { nonce, wall_ms }));
                    judge(&self.peer, told);
                }
                Control::Pong(pong) => {
                    if self.outbox.clock_told(pong, &self.peer) {
                        if let Some(clock) = self.peer.clock() {
                            self.events.send(LinksEvent::Clock(node, clock));
                        }
                        self.report(HeardOnLink::Answered).await;
                    }
                }
                Control::Renewal(renewal) => {
                    self.report(HeardOnLink::Renewal(renewal.renewal)).await
                }
                Control::Addresses(addresses) => {
                    self.report(HeardOnLink::Addresses(addresses)).await
                }
                message @ (Control::Logs(_)
                | Control::Index(_)
                | Control::IndexReport(_)
                | Control::Leaving(_)
                | Control::Reach(_)) => {
                    let turn = self.turn().await;
                    self.events.send(LinksEvent::Control(node, message, turn));
                }
                Control::Unknown(unknown) => {
                    tracing::debug!(
                        node = node.short(),
                        kind = unknown.kind,
                        "an unknown message"
                    );
                }
                // The transport takes no second one.
                Control::Hello(_) => return,
            }
        }
    }

    /// What other actors are to hear waits until enough of what came before it was heeded.
    async fn turn(&self) -> HeardTurn {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        HeardTurn { _place: turn.ok() }
    }

    /// One at a time for each link, so that no peer fills the actor's mailbox.
    async fn report(&self, heard: HeardOnLink) {
        let (reply, done) = Reply::new();
        let heard = LinksMsg::Heard(self.number, heard, reply);
        if self.mailbox.remind(heard).is_ok() {
            let _done = done.await;
        }
    }

    async fn say(&self, mut output: ControlOutput) {
        loop {
            let message = self.outbox.next().await;
            match output.send(&message).await {
                Ok(()) => {}
                Err(why @ WriteFailure::TooLarge { .. }) => {
                    let node = self.peer.link.peer().short();
                    tracing::error!(node, %why, "a message for another node is left out");
                }
                Err(WriteFailure::Stopped(_) | WriteFailure::Gone(_)) => return,
            }
        }
    }

    async fn take(&self, mut streams: InboundStreams) {
        while let Ok(stream) = streams.next().await {
            self.events.send(match stream {
                InboundStream::Call(call) => LinksEvent::Call(Box::new(InboundNodeCall {
                    peer: Arc::clone(&self.peer),
                    call: *call,
                })),
                InboundStream::Sync(sync) => LinksEvent::Sync(self.peer.link.peer(), sync),
            });
        }
    }

    /// Reading goes on while the actor is busy: packets that are passed on for others do not wait for it.
    async fn hear_packets(&self, mut packets: PacketInput) {
        let (read, mut to_report) = mpsc::channel(PACKETS);
        let reading = async move {
            while let Ok(packet) = packets.next().await {
                // Lost, as packets may be.
                let _full = read.try_send(packet);
            }
        };
        let reporting = async {
            while let Some(packet) = to_report.recv().await {
                self.report(HeardOnLink::Packet(packet)).await;
            }
        };
        tokio::join!(reading, reporting);
    }

    async fn send_packets(&self, mut packets: mpsc::Receiver<Bytes>) {
        while let Some(packet) = packets.recv().await {
            // Lost, or too long for one: said again by the next one.
            let _fate = self.peer.link.packet(packet).await;
        }
        std::future::pending::<()>().await;
    }

    async fn ask_clock(&self) {
        loop {
            let asked = self.outbox.ask_clock();
            judge(&self.peer, asked);
            tokio::time::sleep(self.clock).await;
        }
    }
}
