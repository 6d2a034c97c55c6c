//! The times of the membership protocol. They bound how soon a death is seen, what a node sends when
//! nothing happens, and how soon all know of one that came; the benchmark `membership` prints it.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::{Config, PeriodicParams};

/// Longest packet. What is longer than a datagram goes as a stream: only the lists that nodes who come are
/// sent are.
pub const PACKET_MAX: usize = 8 << 10;
/// How often each node asks another one whether it is there.
const PROBE: Duration = Duration::from_millis(500);
/// After this, others are asked to ask.
const ROUND_TRIP: Duration = Duration::from_millis(150);
/// How long a suspected member has to answer, in a cluster of up to ten.
const SUSPECT: Duration = Duration::from_millis(800);
/// How often one other node is asked for members.
const ANNOUNCE: Duration = Duration::from_secs(5);
/// How often one that is believed dead is asked whether it is.
const ANNOUNCE_DOWN: Duration = Duration::from_secs(10);
/// How often news are passed on, while there are any.
const GOSSIP: Duration = Duration::from_millis(200);

const fn at_least_one(n: usize) -> NonZeroUsize {
    match NonZeroUsize::new(n) {
        Some(n) => n,
        None => NonZeroUsize::MIN,
    }
}

/// The settings for a cluster of so many members: news take longer in a larger one.
pub(super) fn settings(members: usize) -> Config {
    let tens = (members.max(1) as f64).log10().max(1.0);
    let periodic = |frequency, members| {
        Some(PeriodicParams {
            frequency,
            num_members: at_least_one(members),
        })
    };
    Config {
        probe_period: PROBE,
        probe_rtt: ROUND_TRIP,
        num_indirect_probes: at_least_one(3),
        max_transmissions: NonZeroU8::MIN.saturating_add((4.0 * tens) as u8),
        suspect_to_down_after: SUSPECT.mul_f64(tens),
        // One entry for each admitted node, whatever becomes of it.
        remove_down_after: None,
        max_packet_size: at_least_one(PACKET_MAX),
        notify_down_members: true,
        periodic_announce: periodic(ANNOUNCE, 1),
        periodic_announce_to_down_members: periodic(ANNOUNCE_DOWN, 1),
        periodic_gossip: periodic(GOSSIP, 2),
    }
}
