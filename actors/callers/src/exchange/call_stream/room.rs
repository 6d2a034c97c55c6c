//! What all streams of one agent may hold together: 64 MiB.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mgp_protocol::ids::AgentId;
use mgp_sync::credit::{Charge, Credit};

/// Bytes of chunks of one agent that wait; beyond it they are dropped, which their indices show.
const WAITING: u64 = 32 << 20;
/// Bytes of delivered chunks kept for one agent; beyond it they are not kept.
const KEPT: u64 = 32 << 20;

/// The room of every agent that has a stream. Bounded by the streams.
#[derive(Debug, Default)]
pub struct StreamRooms(Mutex<HashMap<AgentId, Weak<AgentRoom>>>);

/// The room of one agent.
#[derive(Debug)]
pub struct AgentRoom {
    waiting: Arc<Credit>,
    kept: Arc<Credit>,
    agent: AgentId,
    rooms: Weak<StreamRooms>,
}

impl StreamRooms {
    /// The room of this agent, the same for all its streams.
    #[must_use]
    pub fn of(self: &Arc<Self>, agent: &AgentId) -> Arc<AgentRoom> {
        let mut rooms = self.rooms();
        if let Some(room) = rooms.get(agent).and_then(Weak::upgrade) {
            return room;
        }
        let room = Arc::new(AgentRoom {
            waiting: Credit::new(WAITING),
            kept: Credit::new(KEPT),
            agent: agent.clone(),
            rooms: Arc::downgrade(self),
        });
        rooms.insert(agent.clone(), Arc::downgrade(&room));
        room
    }

    fn rooms(&self) -> MutexGuard<'_, HashMap<AgentId, Weak<AgentRoom>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentRoom {
    /// Room for a chunk that waits.
    pub(super) fn wait(&self, bytes: u64) -> Option<Charge> {
        self.waiting.try_take(bytes)
    }

    /// Room for a chunk that was delivered.
    pub(super) fn keep(&self, bytes: usize) -> Option<Charge> {
        self.kept.try_take(bytes as u64)
    }
}

impl Drop for AgentRoom {
    fn drop(&mut self) {
        if let Some(rooms) = self.rooms.upgrade() {
            let mut rooms = rooms.rooms();
            // Another one may have been made since.
            if rooms
                .get(&self.agent)
                .is_some_and(|it| it.strong_count() == 0)
            {
                rooms.remove(&self.agent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_streams_of_an_agent_share_one_room_that_ends_with_the_last() {
        let rooms = Arc::new(StreamRooms::default());
        let agent = AgentId::new(AgentId::LOCAL);
        let (one, two) = (rooms.of(&agent), rooms.of(&agent));
        let all = one.wait(WAITING);
        assert!(all.is_some() && two.wait(1).is_none() && two.keep(1).is_some());
        drop((one, all));
        assert!(two.wait(1).is_some());
        assert_eq!(rooms.rooms().len(), 1);
        drop(two);
        assert!(rooms.rooms().is_empty());
    }
}
