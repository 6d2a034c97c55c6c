//! The timings of a call at the called node, sent after the call.

use serde::{Deserialize, Serialize};

use super::MAX_CALL_MS;
use crate::federation::message::{decode, encode};

/// The longest accepted message, in bytes: six numbers with their names, and capacity for names of later
/// versions.
const MESSAGE_MAX: usize = 256;

/// The timings of a call at one node, in microseconds of that node's own clock. The parts follow each other
/// in this order; the rest of the total is spent in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallTimings {
    /// From its arrival to its answer.
    pub whole: u64,
    /// Until it was handled.
    pub door: u64,
    /// The checks, including the wait for an approval.
    pub checks: u64,
    /// The wait in the server's queue.
    pub queue: u64,
    /// The server, and the connection to it.
    pub server: u64,
    /// Checking and truncating the result.
    pub answer: u64,
}

impl CallTimings {
    /// Encodes the timings.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes another node's timings; `None` if they are impossible. They are sent beside the call, which
    /// is valid without them.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= MESSAGE_MAX)?;
        let times: Self = decode(bytes).ok()?;
        let parts = times.parts().iter().try_fold(0_u64, add)?;
        let can_be = parts <= times.whole && times.whole <= MAX_CALL_MS * 1_000;
        can_be.then_some(times)
    }

    /// Each part with its name, in order.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, u64); 5] {
        [
            ("door", self.door),
            ("checks", self.checks),
            ("queue", self.queue),
            ("server", self.server),
            ("answer", self.answer),
        ]
    }

    /// Adds the timings of a call that a node received twice.
    #[must_use]
    pub const fn merge(&self, other: &Self) -> Self {
        Self {
            whole: self.whole.saturating_add(other.whole),
            door: self.door.saturating_add(other.door),
            checks: self.checks.saturating_add(other.checks),
            queue: self.queue.saturating_add(other.queue),
            server: self.server.saturating_add(other.server),
            answer: self.answer.saturating_add(other.answer),
        }
    }
}

fn add(sum: u64, (_, us): &(&str, u64)) -> Option<u64> {
    sum.checked_add(*us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: CallTimings = CallTimings {
        whole: 5_100,
        door: 20,
        checks: 61,
        queue: 7,
        server: 5_000,
        answer: 8,
    };

    /// Decision 0069: impossible timings of another node are dropped.
    #[test]
    fn impossible_timings_are_dropped() {
        assert_eq!(CallTimings::decode(&TIMES.encode()), Some(TIMES));
        let read = |change: fn(&mut CallTimings)| {
            let mut times = TIMES;
            change(&mut times);
            CallTimings::decode(&times.encode())
        };
        // Parts that are longer than the total, also by an overflowing sum.
        assert_eq!(read(|times| times.server += 5), None);
        assert_eq!(
            read(|times| (times.door, times.server) = (u64::MAX, u64::MAX)),
            None
        );
        assert_eq!(read(|times| times.whole = u64::MAX), None);
        assert!(read(|times| times.whole = MAX_CALL_MS * 1_000).is_some());
        let no_map = rmp_serde::to_vec(&TIMES).unwrap();
        assert_eq!(CallTimings::decode(&no_map), None);
        let negative = b"\x82\xa5whole\x05\xa6server\xff";
        assert_eq!(CallTimings::decode(negative), None);
        let later = b"\x82\xa5whole\x05\xa4disk\x03";
        let whole = CallTimings {
            whole: 5,
            ..CallTimings::default()
        };
        assert_eq!(CallTimings::decode(later), Some(whole));
        let mut long = b"\x82\xa5whole\x05\xa4more\xd9\xff".to_vec();
        long.extend([b'x'; 255]);
        assert_eq!(CallTimings::decode(&long), None);
    }

    #[test]
    fn two_requests_of_one_call_are_added_up() {
        let both = TIMES.merge(&TIMES);
        assert_eq!((both.whole, both.server), (10_200, 10_000));
        let most = CallTimings {
            whole: u64::MAX,
            ..TIMES
        };
        assert_eq!(most.merge(&TIMES).whole, u64::MAX);
    }
}
