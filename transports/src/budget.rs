//! A memory budget for messages that arrive in parts: bounded in bytes, for all peers together and for each.
//!
//! A message reserves memory as it arrives, not as it is announced, until its last part is dropped. A message in one
//! piece reserves none: it needs no more than a connection's own buffer.

use std::sync::Arc;

use bytes::Bytes;
use mgp_sync::{Charge, Credit};

/// Short messages reserve pieces of this many bytes, so that many of them fit.
const SHORT: usize = 16 << 10;

/// Long messages reserve larger pieces, to do so less often.
const LONG: usize = 256 << 10;

/// The budget of one peer.
#[derive(Clone, Debug)]
pub struct MessageBudget {
    shared: Arc<Credit>,
    per_peer: Arc<Credit>,
}

impl MessageBudget {
    /// Bytes that all peers share, and the maximum of this one.
    #[must_use]
    pub fn new(shared: Arc<Credit>, per_peer: Arc<Credit>) -> Self {
        Self { shared, per_peer }
    }

    /// A reservation for one message, still empty.
    #[must_use]
    pub fn reserve(self) -> Reservation {
        Reservation {
            budget: self,
            charges: Vec::new(),
            bytes: 0,
        }
    }
}

/// The memory reserved by one message; released when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: MessageBudget,
    charges: Vec<[Charge; 2]>,
    bytes: usize,
}

impl Reservation {
    /// Grows with the message to this many bytes. False when the budget is exhausted; earlier reservations stay.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let piece = if bytes > LONG { LONG } else { SHORT };
        let wanted = bytes.next_multiple_of(piece);
        let more = wanted.saturating_sub(self.bytes) as u64;
        if more == 0 {
            return true;
        }
        let credits = [&self.budget.per_peer, &self.budget.shared];
        let Some(charges) = Credit::try_take_both(credits, more) else {
            return false;
        };
        self.charges.push(charges);
        self.bytes = wanted;
        true
    }

    /// Attaches the reservation to the complete message, until its last part is dropped.
    #[must_use]
    pub(crate) fn attach_to(self, message: Bytes) -> Bytes {
        Bytes::from_owner(Reserved {
            message,
            _reservation: self,
        })
    }
}

struct Reserved {
    message: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_takes_from_both_and_ends_with_the_last_part() {
        let (all, share) = (Credit::new(1 << 20), Credit::new(1 << 19));
        let mut reservation = MessageBudget::new(all.clone(), share.clone()).reserve();
        assert!(reservation.grow_to(1) && reservation.grow_to(SHORT));
        assert_eq!(
            (all.in_use_amount(), share.in_use_amount()),
            (SHORT as u64, SHORT as u64)
        );
        assert!(reservation.grow_to(LONG + 1));
        assert_eq!(
            (all.in_use_amount(), share.in_use_amount()),
            (1 << 19, 1 << 19)
        );
        assert!(!reservation.grow_to((1 << 19) + 1));
        assert_eq!(all.in_use_amount(), 1 << 19);
        let message = reservation.attach_to(Bytes::from(vec![b'x'; LONG + 1]));
        let part = message.slice(3..4);
        drop(message);
        assert_eq!(all.in_use_amount(), 1 << 19);
        drop(part);
        assert_eq!((all.in_use_amount(), share.in_use_amount()), (0, 0));
    }

    #[test]
    fn memory_reserved_by_others_is_not_available() {
        let all = Credit::new(1 << 20);
        let mut one = MessageBudget::new(all.clone(), Credit::new(1 << 20)).reserve();
        let share = Credit::new(1 << 20);
        let mut other = MessageBudget::new(all.clone(), share.clone()).reserve();
        assert!(one.grow_to(1 << 20) && !other.grow_to(1));
        assert_eq!(share.in_use_amount(), 0);
        drop(one);
        assert!(other.grow_to(1));
    }
}
