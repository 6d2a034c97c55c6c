//! The intervals of the membership protocol. They determine how soon a failure is detected, the traffic of an idle
//! node, and how soon all nodes learn of a new one; the benchmark `membership` prints these.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::{Config, PeriodicParams};

/// Longest packet. A packet longer than a datagram is sent as a stream: only member lists for joining nodes are.
pub(crate) const PACKET_MAX: usize = 8 << 10;
/// Interval of a node's probes of another node.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// After this, other nodes are asked to probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(150);
/// How long a suspected member has to answer, in a cluster of up to ten.
const SUSPECT_TIMEOUT: Duration = Duration::from_millis(800);
/// Interval of requests to one other node for its member list.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of probes of a member considered dead.
const ANNOUNCE_DOWN_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of gossip, while there is any.
const GOSSIP_INTERVAL: Duration = Duration::from_millis(200);

const fn to_nonzero(n: usize) -> NonZeroUsize {
    match NonZeroUsize::new(n) {
        Some(n) => n,
        None => NonZeroUsize::MIN,
    }
}

/// The settings for a cluster of this size: gossip takes longer in a larger one.
pub(super) fn swim_config(members: usize) -> Config {
    let tens = (members.max(1) as f64).log10().max(1.0);
    let periodic = |frequency, members| {
        Some(PeriodicParams {
            frequency,
            num_members: to_nonzero(members),
        })
    };
    Config {
        probe_period: PROBE_INTERVAL,
        probe_rtt: PROBE_TIMEOUT,
        num_indirect_probes: to_nonzero(3),
        max_transmissions: NonZeroU8::MIN.saturating_add((4.0 * tens) as u8),
        suspect_to_down_after: SUSPECT_TIMEOUT.mul_f64(tens),
        // One entry for each admitted node, even if it is down.
        remove_down_after: None,
        max_packet_size: to_nonzero(PACKET_MAX),
        notify_down_members: true,
        periodic_announce: periodic(ANNOUNCE_INTERVAL, 1),
        periodic_announce_to_down_members: periodic(ANNOUNCE_DOWN_INTERVAL, 1),
        periodic_gossip: periodic(GOSSIP_INTERVAL, 2),
    }
}
