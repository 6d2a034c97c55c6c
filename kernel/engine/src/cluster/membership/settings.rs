//! The times of the membership protocol. They bound how soon a death is seen, what a node sends when
//! nothing happens, and how soon all know of one that came; the benchmark `membership` prints it.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::{Config, PeriodicParams};

/// Longest packet. What is longer than a datagram goes as a stream: only the lists that nodes who come are
/// sent are.
pub const PACKET_MAX: usize = 8 << 10;
/// How often each node asks another one whether it is there.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// After this, others are asked to ask.
const PROBE_TIMEOUT: Duration = Duration::from_millis(150);
/// How long a suspected member has to answer, in a cluster of up to ten.
const SUSPECT_TIMEOUT: Duration = Duration::from_millis(800);
/// How often one other node is asked for members.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);
/// How often one that is believed dead is asked whether it is.
const ANNOUNCE_DOWN_INTERVAL: Duration = Duration::from_secs(10);
/// How often news are passed on, while there are any.
const GOSSIP_INTERVAL: Duration = Duration::from_millis(200);

const fn to_nonzero(n: usize) -> NonZeroUsize {
    match NonZeroUsize::new(n) {
        Some(n) => n,
        None => NonZeroUsize::MIN,
    }
}

/// The settings for a cluster of so many members: news take longer in a larger one.
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
        // One entry for each admitted node, whatever becomes of it.
        remove_down_after: None,
        max_packet_size: to_nonzero(PACKET_MAX),
        notify_down_members: true,
        periodic_announce: periodic(ANNOUNCE_INTERVAL, 1),
        periodic_announce_to_down_members: periodic(ANNOUNCE_DOWN_INTERVAL, 1),
        periodic_gossip: periodic(GOSSIP_INTERVAL, 2),
    }
}
