//! A network that loses, delays, repeats and reorders, and falls apart into parts.

use std::collections::BTreeMap;

use mgp_engine::replication::replica::LogMessage;

use crate::chance::Chance;

/// A message on its way between two machines.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) sent_ms: u64,
    pub(crate) message: LogMessage,
}

#[derive(Debug, Default)]
pub(crate) struct Network {
    /// By the time of arrival and a number, so that the order is the seed's alone.
    on_the_way: BTreeMap<(u64, u64), Packet>,
    count: u64,
    /// The part each machine is in.
    part: Vec<u64>,
    pub(crate) loss: u64,
}

impl Network {
    /// Messages on the way at most; beyond, the network loses more. Keeps a run short.
    const MOST: usize = 2_000;

    /// One that loses so many messages in a hundred.
    pub(crate) fn losing(loss: u64) -> Self {
        Self {
            loss,
            ..Self::default()
        }
    }

    /// Answers what went wrong with it.
    pub(crate) fn send(&mut self, packet: Packet, chance: &mut Chance) -> Option<&'static str> {
        let lost = chance.percent(self.loss) || self.on_the_way.len() >= Self::MOST;
        if lost || !self.reaches(packet.from, packet.to) {
            return Some("a message is lost");
        }
        let copies = 1 + u64::from(chance.percent(3));
        let mut became = (copies > 1).then_some("a message is repeated");
        for _ in 0..copies {
            let slow = if chance.percent(5) { 40_000 } else { 400 };
            if slow > 400 {
                became = became.or(Some("a message is late"));
            }
            let at = packet.sent_ms + 1 + chance.below(slow);
            self.count += 1;
            self.on_the_way.insert((at, self.count), packet.clone());
        }
        became
    }

    /// The next message that arrives until then.
    pub(crate) fn arrives(&mut self, until_ms: u64) -> Option<(u64, Packet)> {
        let first = *self.on_the_way.first_key_value()?.0;
        if first.0 > until_ms {
            return None;
        }
        let packet = self.on_the_way.remove(&first)?;
        Some((first.0, packet))
    }

    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        self.part_of(from) == self.part_of(to)
    }

    fn part_of(&self, machine: usize) -> u64 {
        self.part.get(machine).copied().unwrap_or(0)
    }

    /// Puts each machine into one of two parts.
    pub(crate) fn fall_apart(&mut self, machines: usize, chance: &mut Chance) {
        self.part = (0..machines).map(|_| chance.below(2)).collect();
    }

    /// The same, with these two in different parts.
    pub(crate) fn separate(
        &mut self,
        (one, other): (usize, usize),
        machines: usize,
        chance: &mut Chance,
    ) {
        self.fall_apart(machines, chance);
        self.part[one] = 1 - self.part[other];
    }

    pub(crate) fn heal(&mut self) {
        self.part.clear();
    }
}
