//! A memory budget for messages that come in parts: bounded in bytes, for all peers together and for each.
//!
//! A message takes memory as it comes, not as it is announced, and keeps it for as long as any part of
//! it is held. What comes in one piece takes none: it is no more than a connection's own buffer.

use std::sync::Arc;

use bytes::Bytes;
use mgp_sync::credit::{Charge, Credit};

/// Memory is taken in pieces of this many bytes by short messages, so that many of them find some.
const SHORT: usize = 16 << 10;

/// And by long ones, so that they do not take it a thousand times.
const LONG: usize = 256 << 10;

/// What one peer may take.
#[derive(Clone, Debug)]
pub struct MessageBudget {
    shared: Arc<Credit>,
    per_peer: Arc<Credit>,
}

impl MessageBudget {
    /// Bytes that all peers share, and those that are this one's share at most.
    #[must_use]
    pub fn new(shared: Arc<Credit>, per_peer: Arc<Credit>) -> Self {
        Self { shared, per_peer }
    }

    /// For one message, which has taken nothing yet.
    #[must_use]
    pub fn reserve(self) -> Reservation {
        Reservation {
            budget: self,
            charges: Vec::new(),
            bytes: 0,
        }
    }
}

/// The memory that one message has taken; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: MessageBudget,
    charges: Vec<[Charge; 2]>,
    bytes: usize,
}

impl Reservation {
    /// The message is so many bytes long by now. False when there is no more, and then it has
    /// taken what it had.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let piece = if bytes > LONG { LONG } else { SHORT };
        let wanted = bytes.next_multiple_of(piece);
        let more = wanted.saturating_sub(self.bytes) as u64;
        if more == 0 {
            return true;
        }
        let room = [&self.budget.per_peer, &self.budget.shared];
        let Some(charges) = Credit::try_take_both(room, more) else {
            return false;
        };
        self.charges.push(charges);
        self.bytes = wanted;
        true
    }

    /// The message is whole: the memory is its, until nobody holds a part of it any more.
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
    fn room_is_taken_from_both_and_given_back_with_the_last_part() {
        let (all, own) = (Credit::new(1 << 20), Credit::new(1 << 19));
        let mut held = MessageBudget::new(all.clone(), own.clone()).reserve();
        assert!(held.grow_to(1) && held.grow_to(SHORT));
        assert_eq!(
            (all.in_use_amount(), own.in_use_amount()),
            (SHORT as u64, SHORT as u64)
        );
        assert!(held.grow_to(LONG + 1));
        assert_eq!(
            (all.in_use_amount(), own.in_use_amount()),
            (1 << 19, 1 << 19)
        );
        assert!(!held.grow_to((1 << 19) + 1));
        assert_eq!(all.in_use_amount(), 1 << 19);
        let message = held.attach_to(Bytes::from(vec![b'x'; LONG + 1]));
        let part = message.slice(3..4);
        drop(message);
        assert_eq!(all.in_use_amount(), 1 << 19);
        drop(part);
        assert_eq!((all.in_use_amount(), own.in_use_amount()), (0, 0));
    }

    #[test]
    fn what_others_took_is_no_room() {
        let all = Credit::new(1 << 20);
        let mut one = MessageBudget::new(all.clone(), Credit::new(1 << 20)).reserve();
        let own = Credit::new(1 << 20);
        let mut other = MessageBudget::new(all.clone(), own.clone()).reserve();
        assert!(one.grow_to(1 << 20) && !other.grow_to(1));
        assert_eq!(own.in_use_amount(), 0);
        drop(one);
        assert!(other.grow_to(1));
    }
}
