//! One live link, and the task that reads and writes it.

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

/// An accepted link; the next one is accepted when this one was handled.
#[derive(Debug)]
pub struct AcceptedLink {
    pub(super) link: Box<NewLink>,
    pub(super) done: Reply<()>,
}

/// The most messages of one link in the mailboxes of other actors: more than a peer that follows the
/// protocol sends in a row. A faster peer waits, and blocks no other peer.
pub(super) const UNHANDLED_MAX: usize = 16;

/// The permit of one message of a link that is not handled yet. On drop, the next message may follow.
#[derive(Debug, Default)]
pub struct MessagePermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Messages of a link for the actor itself.
#[derive(Debug)]
pub enum LinkMessage {
    /// The peer's membership renewal.
    Renewal(u64),
    /// Addresses of other nodes.
    Addresses(NodeAddresses),
    /// A membership packet.
    Packet(Bytes),
    /// The peer answered a ping.
    PingReceived,
}

/// A link and its task.
#[derive(Debug)]
pub(super) struct LiveLink {
    pub(super) number: u64,
    pub(super) peer: Arc<PeerLink>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) since_ms: u64,
    /// Ends with the link.
    _task: SupervisedTask<()>,
}

impl LiveLink {
    /// Starts reading and writing.
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
            // A panic over a peer's message ends its link, and nothing else.
            let _broken = task::catch_panic("links.link", served).await;
            link.close(LinkClose::Done);
            let reason = link.wait_closed().await;
            let _over = mailbox.send_to_self(LinksMsg::Ended(number, reason));
        };
        Self {
            number,
            peer,
            outbox,
            since_ms: unix_ms(),
            _task: task::spawn_supervised("links.link", serving),
        }
    }

    /// True if no relay is between.
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

    /// Queues a message. A peer that does not read is disconnected.
    pub(super) fn send(&self, message: Control) {
        let result = self.outbox.push(message);
        self.close_if_full(result);
    }

    /// Sends a ping.
    pub(super) fn ping(&self) {
        let queued = self.outbox.ask_clock();
        self.close_if_full(queued);
    }

    fn close_if_full(&self, result: Result<(), OutboxFull>) {
        close_if_full(&self.peer, result);
    }
}

fn close_if_full(peer: &PeerLink, result: Result<(), OutboxFull>) {
    if result.is_err() {
        let node = peer.link.peer().short_id();
        tracing::warn!(
            node,
            "a node does not read its messages and is disconnected"
        );
        peer.link.close(LinkClose::TooMany);
    }
}

/// The state of the task of a link.
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
    /// Serves the link until one of its subtasks finds that the link is gone.
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
                    let result = self.outbox.push(Control::Pong(Pong { nonce, wall_ms }));
                    close_if_full(&self.peer, result);
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
                // The transport accepts no second hello.
                Control::Hello(_) => return,
            }
        }
    }

    /// Waits for a permit to forward a message to another actor: enough earlier messages must be handled.
    async fn acquire_permit(&self) -> MessagePermit {
        let turn = Arc::clone(&self.permits).acquire_owned().await;
        MessagePermit { _permit: turn.ok() }
    }

    /// Forwards a message to the actor; one at a time for each link, so that no peer fills the mailbox.
    async fn forward(&self, message: LinkMessage) {
        let (reply, done) = Reply::new();
        let message = LinksMsg::Received(self.number, message, reply);
        if self.mailbox.send_to_self(message).is_ok() {
            let _done = done.await;
        }
    }

    async fn write_control(&self, mut output: ControlOutput) {
        loop {
            let message = self.outbox.next().await;
            match output.send(&message).await {
                Ok(()) => {}
                Err(reason @ WriteFailure::TooLarge { .. }) => {
                    let node = self.peer.link.peer().short_id();
                    tracing::error!(node, why = %reason, "a message for another node is dropped");
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

    /// Reads packets even while the actor is busy: relayed packets do not wait for it.
    async fn read_packets(&self, mut packets: PacketInput) {
        let (read, mut to_report) = mpsc::channel(MAX_PACKETS);
        let reading = async move {
            while let Ok(packet) = packets.next().await {
                // Dropped, as packets may be.
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
            // Dropped or too long for one packet: the next one repeats it.
            let _fate = self.peer.link.send_packet(packet).await;
        }
        std::future::pending::<()>().await;
    }

    async fn poll_clock(&self) {
        loop {
            let queued = self.outbox.ask_clock();
            close_if_full(&self.peer, queued);
            tokio::time::sleep(self.clock).await;
        }
    }
}
