//! Which events were taken: at most one processing for each id of a server, and the same answer to each retry
//! (MCPL §9.4).
//!
//! An id is written down before its event is handed to anybody. One that was under way when the kernel ended is
//! answered as unknown, and never done again.

use std::collections::{HashMap, VecDeque};

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::push::{Event, PushAnswer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Ids that are remembered of one server. At this bound the oldest answered one is forgotten.
pub(crate) const SERVER_MAX: usize = 10_000;
/// Ids that are remembered of all servers, some 30 MiB. At this bound the oldest of the server that has the most
/// is forgotten.
pub(crate) const TOTAL_MAX: usize = 100_000;
/// How long an id is remembered, in milliseconds: seven days, longer than anybody tries again.
pub(crate) const AGE_MAX_MS: u64 = 7 * 24 * 3_600_000;
/// Events of one server that are under way at once: a server has no more open requests. More are refused.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

const UNKNOWN: &str = "the kernel ended while this event was being handed on; whether somebody took it is not known, and it is not handed on again";

/// Hash of an id or of what an event says.
type EventHash = [u8; 16];

/// What an event says, whatever its spelling: the same in a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EventBody(EventHash);

impl EventBody {
    /// Of the set, the origin and the content. The timestamp is none of it: some servers write a new one at
    /// each try.
    #[must_use]
    pub fn from_event(event: &Event<'_>) -> Self {
        let mut hash = blake3::Hasher::new();
        let origin = event.origin.map_or("null", |origin| origin.get());
        for part in [
            &*event.feature_set,
            &canonical_json(origin),
            &canonical_json(event.content().get()),
        ] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self(truncate_hash(hash.finalize()))
    }
}

/// A JSON text with the members of each object in the order of their names: languages write them in any.
fn canonical_json(text: &str) -> String {
    fn sorted(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.sort_keys();
                members.values_mut().for_each(sorted);
            }
            Value::Array(items) => items.iter_mut().for_each(sorted),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            sorted(&mut value);
            value.to_string()
        }
        // Deeper than is read to values: the text itself.
        Err(_) => text.to_owned(),
    }
}

fn truncate_hash(hash: blake3::Hash) -> EventHash {
    let mut out = [0; 16];
    out.copy_from_slice(&hash.as_bytes()[..16]);
    out
}

/// A short id is itself, and a longer one its hash.
fn id_hash(id: &str) -> EventHash {
    match id.len() {
        len @ ..16 => {
            let mut own = [0; 16];
            own[..len].copy_from_slice(id.as_bytes());
            own[15] = 16 - u8::try_from(len).unwrap_or_default();
            own
        }
        _ => {
            let mut hash = truncate_hash(blake3::hash(id.as_bytes()));
            // No short one is so long.
            hash[15] |= 0x80;
            hash
        }
    }
}

/// What is known of an id that comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushLookup {
    /// Nothing: it is under way from now on, once this entry is on disk.
    New(MemoryEntry),
    /// It was answered before.
    Answered(PushAnswer),
    /// It is under way: its answer is this one's, too.
    InFlight,
    /// An event that says something else had this id. Two things under one id are not one event tried again,
    /// and which of them a reader has under that id would be chance: the first stands, and this one is refused.
    Conflict,
    /// Too many of this server are under way.
    Full,
}

#[derive(Clone, Debug)]
struct RememberedEvent {
    body: EventBody,
    at_ms: u64,
    /// None while it is under way.
    answer: Option<PushAnswer>,
}

#[derive(Debug, Default)]
struct ServerEvents {
    by_id: HashMap<EventHash, RememberedEvent>,
    /// Oldest first. One that was released is passed over.
    order: VecDeque<EventHash>,
    in_flight: usize,
}

/// The ids that are remembered.
#[derive(Debug, Default)]
pub struct PushMemory {
    servers: HashMap<ServerId, ServerEvents>,
    count: usize,
    /// Entries in the journal.
    journal_entries: usize,
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryEntry {
    server: String,
    id: EventHash,
    body: EventBody,
    at_ms: u64,
    /// Nobody took it, and nothing is remembered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    released: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<PushAnswer>,
}

impl PushMemory {
    /// What the journal holds. What was under way is answered as unknown. Entries that cannot be read are left
    /// out; how many there were is told.
    #[must_use]
    pub fn restore(entries: &[Vec<u8>], now_ms: u64) -> (Self, usize) {
        let mut memory = Self::default();
        let mut unread = 0;
        for entry in entries {
            memory.journal_entries += 1;
            let Ok(entry) = serde_json::from_slice::<MemoryEntry>(entry) else {
                unread += 1;
                continue;
            };
            let server = ServerId::new(entry.server);
            if entry.released {
                memory.forget(&server, entry.id);
                continue;
            }
            let known = RememberedEvent {
                body: entry.body,
                at_ms: entry.at_ms,
                answer: Some(entry.answer.unwrap_or_else(|| PushAnswer::reject(UNKNOWN))),
            };
            memory.remember(&server, entry.id, known, now_ms);
        }
        (memory, unread)
    }

    /// An event comes. Time is in milliseconds since 1970.
    pub fn begin_event(
        &mut self,
        server: &ServerId,
        event_id: &str,
        body: EventBody,
        now_ms: u64,
    ) -> PushLookup {
        let id = id_hash(event_id);
        let of = self.servers.entry(server.clone()).or_default();
        if let Some(known) = of.by_id.get(&id) {
            let old = now_ms.saturating_sub(known.at_ms) > AGE_MAX_MS;
            match &known.answer {
                Some(_) if old => self.forget(server, id),
                _ if known.body != body => return PushLookup::Conflict,
                None => return PushLookup::InFlight,
                Some(answer) => return PushLookup::Answered(answer.clone()),
            }
        }
        let of = self.servers.entry(server.clone()).or_default();
        if of.in_flight >= IN_FLIGHT_MAX {
            return PushLookup::Full;
        }
        of.in_flight += 1;
        let known = RememberedEvent {
            body,
            at_ms: now_ms,
            answer: None,
        };
        let entry = to_entry(server, id, &known);
        self.remember(server, id, known, now_ms);
        self.journal_entries += 1;
        PushLookup::New(entry)
    }

    /// It is answered like this from now on. The entry says so in the journal.
    pub fn set_answer(
        &mut self,
        server: &ServerId,
        event_id: &str,
        answer: &PushAnswer,
    ) -> Option<MemoryEntry> {
        let id = id_hash(event_id);
        let of = self.servers.get_mut(server)?;
        let known = of
            .by_id
            .get_mut(&id)
            .filter(|known| known.answer.is_none())?;
        known.answer = Some(answer.clone());
        of.in_flight -= 1;
        self.journal_entries += 1;
        Some(to_entry(server, id, known))
    }

    /// It was handed to nobody: the same event may come again. The entry says so in the journal.
    pub fn release(&mut self, server: &ServerId, event_id: &str) -> Option<MemoryEntry> {
        let id = id_hash(event_id);
        let of = self.servers.get_mut(server)?;
        let known = of.by_id.get(&id).filter(|known| known.answer.is_none())?;
        let entry = MemoryEntry {
            released: true,
            ..to_entry(server, id, known)
        };
        self.forget(server, id);
        self.journal_entries += 1;
        Some(entry)
    }

    /// The whole memory as entries, where the journal holds many that mean nothing any more.
    pub fn compact(&mut self) -> Option<Vec<MemoryEntry>> {
        if self.journal_entries <= 2 * self.count + 10_000 {
            return None;
        }
        let of_server = |(server, of): (&ServerId, &ServerEvents)| {
            let order = of.order.iter();
            let known = order.filter_map(|id| Some((*id, of.by_id.get(id)?)));
            known
                .map(|(id, known)| to_entry(server, id, known))
                .collect::<Vec<_>>()
        };
        let all: Vec<_> = self.servers.iter().flat_map(of_server).collect();
        self.journal_entries = all.len();
        Some(all)
    }

    /// Ids that are remembered.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Nothing is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn remember(&mut self, server: &ServerId, id: EventHash, known: RememberedEvent, now_ms: u64) {
        let of = self.servers.entry(server.clone()).or_default();
        let before = of.by_id.insert(id, known);
        if before.is_none() {
            of.order.push_back(id);
            self.count += 1;
        }
        self.evict_old(server, now_ms);
        if self.count > TOTAL_MAX {
            let most = self.servers.iter().max_by_key(|(_, of)| of.by_id.len());
            if let Some(most) = most.map(|(server, _)| server.clone()) {
                self.forget_oldest(&most);
            }
        }
    }

    /// The old ones of a server go, and the oldest beyond its bound.
    fn evict_old(&mut self, server: &ServerId, now_ms: u64) {
        loop {
            let Some(of) = self.servers.get_mut(server) else {
                return;
            };
            let Some(oldest) = of.order.front() else {
                return;
            };
            let old = match of.by_id.get(oldest) {
                None => true,
                Some(known) => {
                    now_ms.saturating_sub(known.at_ms) > AGE_MAX_MS && known.answer.is_some()
                }
            };
            if !old && of.by_id.len() <= SERVER_MAX {
                return;
            }
            if !self.forget_oldest(server) {
                return;
            }
        }
    }

    /// False when there is nothing but what is under way.
    fn forget_oldest(&mut self, server: &ServerId) -> bool {
        let Some(of) = self.servers.get_mut(server) else {
            return false;
        };
        for _ in 0..of.order.len() {
            let Some(id) = of.order.pop_front() else {
                return false;
            };
            match of.by_id.get(&id) {
                // What is under way stays, as the newest.
                Some(known) if known.answer.is_none() => of.order.push_back(id),
                Some(_) => {
                    self.forget(server, id);
                    return true;
                }
                None => return true,
            }
        }
        false
    }

    fn forget(&mut self, server: &ServerId, id: EventHash) {
        let Some(of) = self.servers.get_mut(server) else {
            return;
        };
        let Some(known) = of.by_id.remove(&id) else {
            return;
        };
        self.count -= 1;
        of.in_flight -= usize::from(known.answer.is_none());
        // It is the oldest, or it came just now: places in between are rare.
        if of.order.front() == Some(&id) {
            of.order.pop_front();
        } else if of.order.back() == Some(&id) {
            of.order.pop_back();
        } else {
            of.order.retain(|other| *other != id);
        }
        if of.by_id.is_empty() {
            self.servers.remove(server);
        }
    }
}

impl MemoryEntry {
    /// As it is written.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("words and numbers are always JSON")
    }
}

fn to_entry(server: &ServerId, id: EventHash, known: &RememberedEvent) -> MemoryEntry {
    MemoryEntry {
        server: server.to_string(),
        id,
        body: known.body,
        at_ms: known.at_ms,
        released: false,
        answer: known.answer.clone(),
    }
}

#[cfg(test)]
mod tests;
