//! A simulated network on loopback that loses, delays and reorders packets, by a seed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// The faults to inject.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) seed: u64,
    /// Lost packets of a thousand.
    pub(super) lost: u64,
    /// The maximum delay of a packet in milliseconds; packets may be reordered.
    pub(super) delay_ms: u64,
}

/// Forwards packets between a node that dials and one that is dialed.
pub(super) struct BadWire {
    pub(super) at: String,
    pub(super) counts: Arc<WireCounts>,
    _running: JoinSet<()>,
}

#[derive(Default)]
pub(super) struct WireCounts {
    /// Bytes and packets from the dialer.
    pub(super) up: AtomicU64,
    pub(super) up_packets: AtomicU64,
    /// Bytes from the dialed node.
    pub(super) down: AtomicU64,
    pub(super) lost: AtomicU64,
    /// An additional delay in milliseconds.
    pub(super) held_ms: AtomicU64,
    /// Drops everything towards the dialer.
    pub(super) deaf: AtomicBool,
    /// Drops everything.
    pub(super) cut: AtomicBool,
}

impl BadWire {
    pub(super) async fn to(node: &str, faults: Faults) -> Self {
        let bind = || UdpSocket::bind("127.0.0.1:0");
        let (front, back) = (
            Arc::new(bind().await.unwrap()),
            Arc::new(bind().await.unwrap()),
        );
        back.connect(node).await.unwrap();
        let at = front.local_addr().unwrap().to_string();
        let counts = Arc::new(WireCounts::default());
        let mut running = JoinSet::new();
        running.spawn(carry(front, back, faults, Arc::clone(&counts)));
        Self {
            at,
            counts,
            _running: running,
        }
    }
}

async fn carry(
    front: Arc<UdpSocket>,
    back: Arc<UdpSocket>,
    faults: Faults,
    counts: Arc<WireCounts>,
) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut random = faults.seed | 1;
    let mut dialer: Option<SocketAddr> = None;
    let mut passing = JoinSet::new();
    loop {
        let (packet, to) = tokio::select! {
            // The other end may not exist yet, or any more.
            Ok((n, from)) = front.recv_from(&mut up) => {
                counts.up.fetch_add(n as u64, Ordering::Relaxed);
                counts.up_packets.fetch_add(1, Ordering::Relaxed);
                dialer = Some(from);
                (up[..n].to_vec(), None)
            }
            Ok(n) = back.recv(&mut down) => {
                counts.down.fetch_add(n as u64, Ordering::Relaxed);
                let Some(to) = dialer.filter(|_| !counts.deaf.load(Ordering::Relaxed)) else {
                    continue;
                };
                (down[..n].to_vec(), Some(to))
            }
            Some(_) = passing.join_next() => continue,
        };
        let mut roll = |of: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % of.max(1)
        };
        if counts.cut.load(Ordering::Relaxed) || roll(1000) < faults.lost {
            counts.lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let held_ms = counts.held_ms.load(Ordering::Relaxed);
        let delay = Duration::from_millis(roll(faults.delay_ms + 1) + held_ms);
        let (front, back) = (Arc::clone(&front), Arc::clone(&back));
        passing.spawn(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            // A packet that cannot be sent is lost.
            let _sent = match to {
                Some(to) => front.send_to(&packet, to).await,
                None => back.send(&packet).await,
            };
        });
    }
}
