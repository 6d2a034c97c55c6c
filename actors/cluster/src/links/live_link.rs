//! One live link: the task that reads and writes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::cluster::link_plan::LinkTraits;
use mgp_protocol::federation::addresses::NodeAddresses;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::{Control, Pong};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{EventSink, Mailbox, Reply, task};
use mgp_transports::quic::{
    ControlInput, ControlOutput, InboundStream, InboundStreams, NewLink, PacketInput, WriteFailure,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::outbox::{MAX_PACKETS, Outbox, OutboxFull};
use super::parts::LinksShared;
use super::{InboundNodeCall, LinksEvent, LinksMsg, PeerLink};

/// Somebody who dialed; the next one is admitted when this one was looked at.
#[derive(Debug)]
pub struct AcceptedLink {
    pub(super) link: Box<NewLink>,
    pub(super) done: Reply<()>,
}

/// Messages of one link that may wait in the mailboxes of other actors: more than one that keeps to the protocol
/// sends in a row. Whoever sends faster waits, and keeps no other out.
pub(super) const UNHANDLED_MAX: usize = 16;

/// The place of a message among those of its link that were not heeded yet. Dropped, it lets the next one in.
#[derive(Debug, Default)]
pub struct MessagePermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The events of a link for the actor.
#[derive(Debug)]
pub enum LinkMessage {
    /// The peer's renewal.
    Renewal(u64),
    /// Where others are.
    Addresses(NodeAddresses),
    /// A packet of membership.
    Packet(Bytes),
    /// The peer answered.
    PingReceived,
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
        parts: &LinksShared,
        mailbox: Mailbox<LinksMsg>,
    ) -> Self {
        let peer = PeerLink::new(new.link, &parts.key);
        let (outbox, packets) = Outbox::new();
        let outbox = Arc::new(outbox);
        let served = LinkTask {
            number,
            peer: Arc::clone(&peer),
            outbox: Arc::clone(&outbox),
            events: parts.events.clone(),
            mailbox: mailbox.clone(),
            clock: parts.times.clock,
            permits: Arc::new(Semaphore::new(UNHANDLED_MAX)),
        };
        let (input, output) = (new.control_input, new.control_output);
        let (streams, membership) = (new.inbound, new.packets);
        let link = peer.link.clone();
        let serving = async move {
            let served = served.serve(input, output, streams, membership, packets);
            // A panic over what one peer says ends its link, and nothing else.
            let _broken = task::catch_panic("links.link", served).await;
            link.close(LinkClose::Done);
            let why = link.wait_closed().await;
            let _over = mailbox.send_to_self(LinksMsg::Ended(number, why));
        };
        Self {
            number,
            peer,
            outbox,
            since_ms: unix_ms(),
            _task: task::spawn_supervised("links.link", serving),
        }
    }

    /// No other node is between.
    pub(super) fn is_direct(&self) -> bool {
        self.peer.link.relay().is_none()
    }

    pub(super) fn facts(&self) -> LinkTraits {
        LinkTraits {
            dialed: self.peer.link.is_dialer(),
            relayed: self.peer.link.relay().is_some(),
            instance: self.peer.link.hello().life,
        }
    }

    /// Puts a message in line. A peer that does not read is cut.
    pub(super) fn send(&self, message: Control) {
        let told = self.outbox.push(message);
        self.close_if_full(told);
    }

    /// Asks whether the peer answers.
    pub(super) fn ping(&self) {
        let asked = self.outbox.ask_clock();
        self.close_if_full(asked);
    }

    fn close_if_full(&self, told: Result<(), OutboxFull>) {
        close_if_full(&self.peer, told);
    }
}

fn close_if_full(peer: &PeerLink, told: Result<(), OutboxFull>) {
    if told.is_err() {
        let node = peer.link.peer().short_id();
        tracing::warn!(node, "a node that does not read what it is told is cut off");
        peer.link.close(LinkClose::TooMany);
    }
}

/// What the task of a link holds.
struct LinkTask {
    number: u64,
    peer: Arc<PeerLink>,
    outbox: Arc<Outbox>,
    events: EventSink<LinksEvent>,
    mailbox: Mailbox<LinksMsg>,
    clock: Duration,
    permits: Arc<Semaphore>,
}

impl LinkTask {
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
            _gone = self.peer.link.wait_closed() => {}
            () = self.peer.link.close_when_silent() => {}
            () = self.read_control(input) => {}
            () = self.write_control(output) => {}
            () = self.read_streams(streams) => {}
            () = self.read_packets(membership) => {}
            () = self.send_packets(packets) => {}
            () = self.poll_clock() => {}
        }
    }

    async fn read_control(&self, mut input: ControlInput) {
        while let Ok(message) = input.next().await {
            let node = self.peer.link.peer();
            match message {
                Control::Ping(ping) => {
                    let (nonce, wall_ms) = (ping.nonce, unix_ms());
                    let told = self.outbox.push(Control::Pong(Pong { nonce, wall_ms }));
                    close_if_full(&self.peer, told);
                }
                Control::Pong(pong) => {
                    if self.outbox.handle_pong(pong, &self.peer) {
                        if let Some(clock) = self.peer.clock() {
                            self.events.send(LinksEvent::Clock(node, clock));
                        }
                        self.forward(LinkMessage::PingReceived).await;
                    }
                }
                Control::Renewal(renewal) => {
                    self.forward(LinkMessage::Renewal(renewal.renewal)).await
                }
                Control::Addresses(addresses) => {
                    self.forward(LinkMessage::Addresses(addresses)).await
                }
                message @ (Control::Logs(_)
                | Control::Index(_)
                | Control::IndexReport(_)
                | Control::Leaving(_)
                | Control::Reach(_)) => {
                    let turn = self.acquire_permit().await;
                    self.events.send(LinksEvent::Control(node, message, turn));
                }
                Control::Unknown(unknown) => {
                    tracing::debug!(
                        node = node.short_id(),
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
    async fn acquire_permit(&self) -> MessagePermit {
        let turn = Arc::clone(&self.permits).acquire_owned().await;
        MessagePermit { _permit: turn.ok() }
    }

    /// One at a time for each link, so that no peer fills the actor's mailbox.
    async fn forward(&self, heard: LinkMessage) {
        let (reply, done) = Reply::new();
        let heard = LinksMsg::Received(self.number, heard, reply);
        if self.mailbox.send_to_self(heard).is_ok() {
            let _done = done.await;
        }
    }

    async fn write_control(&self, mut output: ControlOutput) {
        loop {
            let message = self.outbox.next().await;
            match output.send(&message).await {
                Ok(()) => {}
                Err(why @ WriteFailure::TooLarge { .. }) => {
                    let node = self.peer.link.peer().short_id();
                    tracing::error!(node, %why, "a message for another node is left out");
                }
                Err(WriteFailure::Stopped(_) | WriteFailure::Gone(_)) => return,
            }
        }
    }

    async fn read_streams(&self, mut streams: InboundStreams) {
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
    async fn read_packets(&self, mut packets: PacketInput) {
        let (read, mut to_report) = mpsc::channel(MAX_PACKETS);
        let reading = async move {
            while let Ok(packet) = packets.next().await {
                // Lost, as packets may be.
                let _full = read.try_send(packet);
            }
        };
        let reporting = async {
            while let Some(packet) = to_report.recv().await {
                self.forward(LinkMessage::Packet(packet)).await;
            }
        };
        tokio::join!(reading, reporting);
    }

    async fn send_packets(&self, mut packets: mpsc::Receiver<Bytes>) {
        while let Some(packet) = packets.recv().await {
            // Lost, or too long for one: said again by the next one.
            let _fate = self.peer.link.send_packet(packet).await;
        }
        std::future::pending::<()>().await;
    }

    async fn poll_clock(&self) {
        loop {
            let asked = self.outbox.ask_clock();
            close_if_full(&self.peer, asked);
            tokio::time::sleep(self.clock).await;
        }
    }
}
