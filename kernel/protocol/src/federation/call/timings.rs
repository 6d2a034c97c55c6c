//! How long the parts of a call took at the node that was called, as it says behind the call.

use serde::{Deserialize, Serialize};

use super::MAX_CALL_MS;
use crate::federation::message::{decode, encode};

/// Longest message of it that is read, in bytes: six numbers with their names, and room for names of later versions.
const MESSAGE_MAX: usize = 256;

/// How long the parts of a call took at one node, in microseconds of that node's own clock. They follow each other
/// in this order; what of the whole is in none of them is the kernel's besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallTimings {
    /// From its arrival to its answer.
    pub whole: u64,
    /// Until it was handled.
    pub door: u64,
    /// The checks, with the wait for a person's yes.
    pub checks: u64,
    /// The wait for its turn at the server.
    pub queue: u64,
    /// The server, and the way there.
    pub server: u64,
    /// What is checked and cut behind it.
    pub answer: u64,
}

impl CallTimings {
    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads what another node says; `None` where it cannot be so. It is told beside the call, which is none the
    /// worse for it.
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

    /// Both, of a call for which a node was asked twice.
    #[must_use]
    pub const fn merge(&self, more: &Self) -> Self {
        Self {
            whole: self.whole.saturating_add(more.whole),
            door: self.door.saturating_add(more.door),
            checks: self.checks.saturating_add(more.checks),
            queue: self.queue.saturating_add(more.queue),
            server: self.server.saturating_add(more.server),
            answer: self.answer.saturating_add(more.answer),
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

    /// Decision 0069: what comes from another node is what can be, or nothing.
    #[test]
    fn times_that_cannot_be_are_no_times() {
        assert_eq!(CallTimings::decode(&TIMES.encode()), Some(TIMES));
        let read = |change: fn(&mut CallTimings)| {
            let mut times = TIMES;
            change(&mut times);
            CallTimings::decode(&times.encode())
        };
        // Parts that are longer than the whole, also by way of a sum that is too large.
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
