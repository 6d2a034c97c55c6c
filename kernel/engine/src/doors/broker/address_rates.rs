//! How often an address may use the endpoints that are open to everybody. What they do costs the kernel little and stores
//! nothing; the rate keeps one address from using the processor and the provider for all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::clock::MonotonicTime;

/// Requests at once: a sign-in has six, and an office may share one address.
const BURST: u32 = 200;
/// One more in this time.
const INTERVAL: Duration = Duration::from_millis(100);
/// Most addresses that are counted. When the table is full, further addresses are not held back: nobody is locked out by
/// who has many addresses, and what costs more than the processor has bounds of its own.
const ADDRESSES_MAX: usize = 4096;

/// The budgets of all addresses.
#[derive(Debug, Default)]
pub struct AddressRates {
    /// When the budget of an address is full again. Addresses without an entry have a full one.
    full_at: HashMap<IpAddr, MonotonicTime>,
}

impl AddressRates {
    /// Counts a request.
    ///
    /// # Errors
    /// The time until the address may send the next one.
    pub fn count(&mut self, address: IpAddr, now: MonotonicTime) -> Result<(), Duration> {
        let key = network(address);
        if !self.full_at.contains_key(&key) && self.full_at.len() >= ADDRESSES_MAX {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= ADDRESSES_MAX {
                return Ok(());
            }
        }
        let full_at = self.full_at.entry(key).or_insert(now);
        let next = now.max(*full_at) + INTERVAL;
        let filled = next.duration_since(now);
        let wait = filled.saturating_sub(INTERVAL * BURST);
        if wait.is_zero() {
            *full_at = next;
            Ok(())
        } else {
            Err(wait)
        }
    }
}

/// A person has all addresses of a /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> MonotonicTime {
        MonotonicTime::START + Duration::from_millis(millis)
    }

    /// EXT-230: a flood from one address leaves others their budget, also when it has more addresses than are counted.
    #[test]
    fn flood_of_one_address_leaves_others_their_budget() {
        let mut rates = AddressRates::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        for _ in 0..BURST {
            assert_eq!(rates.count(address(1), at(0)), Ok(()));
        }
        assert_eq!(rates.count(address(1), at(0)), Err(INTERVAL));
        assert_eq!(rates.count(address(2), at(0)), Ok(()));
        assert_eq!(rates.count(address(1), at(100)), Ok(()));
        for n in 0..10_000 {
            let _ = rates.count(address(n + 10), at(200));
        }
        assert!(rates.full_at.len() <= ADDRESSES_MAX);
        assert_eq!(rates.count(address(2), at(200)), Ok(()));
        assert_eq!(rates.count(address(20_000), at(400_000)), Ok(()));
        assert!(rates.full_at.len() <= 2);
    }

    #[test]
    fn addresses_of_one_network_share_a_budget() {
        let mut rates = AddressRates::default();
        for n in 0..BURST {
            let address = format!("2001:db8::{n:x}").parse().unwrap();
            assert_eq!(rates.count(address, at(0)), Ok(()));
        }
        assert!(
            rates
                .count("2001:db8::ffff".parse().unwrap(), at(0))
                .is_err()
        );
        assert!(
            rates
                .count("2001:db8:0:1::1".parse().unwrap(), at(0))
                .is_ok()
        );
    }
}
