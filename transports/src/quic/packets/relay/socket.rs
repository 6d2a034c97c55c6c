//! The socket of the ends of relayed links: its packets travel over links to relays.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::sync::mpsc;

use super::{Inbound, Relay, lock};

/// The socket of the QUIC endpoint. It is never full: packets without capacity are lost, as on any network.
///
/// It does not report larger datagrams without fragmentation, so QUIC does not probe for them: packets stay at 1200 bytes,
/// and fit into a datagram of a link to a relay.
#[derive(Debug)]
pub(in crate::quic) struct RelaySocket {
    relay: Arc<Relay>,
    to_read: Mutex<mpsc::Receiver<Inbound>>,
}

impl RelaySocket {
    pub(super) fn new(relay: Arc<Relay>, to_read: mpsc::Receiver<Inbound>) -> Self {
        let to_read = Mutex::new(to_read);
        Self { relay, to_read }
    }
}

impl AsyncUdpSocket for RelaySocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.relay.send(transmit.destination, transmit.contents);
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut to_read = lock(&self.to_read);
        let mut read = 0;
        while let Some((buf, meta)) = bufs.get_mut(read).zip(meta.get_mut(read)) {
            let (from, packet) = match to_read.poll_recv(cx) {
                Poll::Ready(Some(inbound)) => inbound,
                Poll::Ready(None) | Poll::Pending => break,
            };
            // No end sends empty packets, or such long ones.
            let Some(buffer) = buf
                .get_mut(..packet.len())
                .filter(|buffer| !buffer.is_empty())
            else {
                continue;
            };
            buffer.copy_from_slice(&packet);
            *meta = RecvMeta {
                addr: from,
                len: packet.len(),
                stride: packet.len(),
                ecn: None,
                dst_ip: None,
            };
            read += 1;
        }
        match read {
            0 => Poll::Pending,
            read => Poll::Ready(Ok(read)),
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
