//! Deduplicates events: at most one processing of each id of a server, and the same answer to each retry (MCPL §9.4).
//!
//! An id is persisted before its event is delivered. One that was in flight when the kernel stopped is answered as
//! unknown, and never processed again.

use std::collections::{HashMap, VecDeque};

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::push::{Event, PushAnswer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Ids remembered of one server. Beyond it the oldest answered one is evicted.
pub(crate) const SERVER_MAX: usize = 10_000;
/// Ids remembered of all servers, some 30 MiB. Beyond it the oldest of the server with the most ids is evicted.
pub(crate) const TOTAL_MAX: usize = 100_000;
/// Lifetime of an id, in milliseconds: seven days, longer than anybody retries.
pub(crate) const AGE_MAX_MS: u64 = 7 * 24 * 3_600_000;
/// Events of one server in flight at once: the limit of its open requests. Further ones are rejected.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

const UNKNOWN: &str = "the kernel ended while this event was being handed on; whether somebody took it is not known, and it is not handed on again";

/// Hash of an id or of an event's content.
type EventHash = [u8; 16];

/// Hash of an event's meaning, whatever its spelling: the same in a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EventBody(EventHash);

impl EventBody {
    /// Covers the set, the origin and the content, not the timestamp: some servers write a new one at each try.
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

/// JSON text with members sorted by name.
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
        // Too deep to parse to values: the text itself.
        Err(_) => text.to_owned(),
    }
}

fn truncate_hash(hash: blake3::Hash) -> EventHash {
    let mut out = [0; 16];
    out.copy_from_slice(&hash.as_bytes()[..16]);
    out
}

/// A short id is stored verbatim, a longer one as its hash.
fn id_hash(id: &str) -> EventHash {
    match id.len() {
        len @ ..16 => {
            let mut padded = [0; 16];
            padded[..len].copy_from_slice(id.as_bytes());
            padded[15] = 16 - u8::try_from(len).unwrap_or_default();
            padded
        }
        _ => {
            let mut hash = truncate_hash(blake3::hash(id.as_bytes()));
            // No short id reaches this length.
            hash[15] |= 0x80;
            hash
        }
    }
}

/// The result of looking up an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushLookup {
    /// New: in flight from now on, once this entry is on disk.
    New(MemoryEntry),
    /// Answered before.
    Answered(PushAnswer),
    /// In flight: both get the same answer.
    InFlight,
    /// Another event had this id, so this is no retry. The first one stays, and this one is rejected, so that readers
    /// see the same event under an id.
    Conflict,
    /// Too many of this server are in flight.
    Full,
}

#[derive(Clone, Debug)]
struct RememberedEvent {
    body: EventBody,
    at_ms: u64,
    /// None while in flight.
    answer: Option<PushAnswer>,
}

#[derive(Debug, Default)]
struct ServerEvents {
    by_id: HashMap<EventHash, RememberedEvent>,
    /// Oldest first. Released ids are skipped.
    order: VecDeque<EventHash>,
    in_flight: usize,
}

/// The remembered ids.
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
    /// Delivered to nobody, and not remembered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    released: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<PushAnswer>,
}

impl PushMemory {
    /// Restores the journal. Events in flight are answered as unknown. Also returns the number of unreadable entries,
    /// which are skipped.
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

    /// Looks an event up, and begins it if new. Time is in milliseconds since 1970.
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

    /// Sets the answer for all retries. Returns the entry for the journal.
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

    /// Forgets an event that was delivered to nobody, so that it may come again. Returns the entry for the journal.
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

    /// The whole memory as entries, if the journal has many obsolete ones.
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

    /// True without remembered ids.
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

    /// Evicts expired ids of a server, and the oldest beyond its bound.
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

    /// False if all ids are in flight.
    fn forget_oldest(&mut self, server: &ServerId) -> bool {
        let Some(of) = self.servers.get_mut(server) else {
            return false;
        };
        for _ in 0..of.order.len() {
            let Some(id) = of.order.pop_front() else {
                return false;
            };
            match of.by_id.get(&id) {
                // Ids in flight stay, as the newest.
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
        // Usually the oldest or the newest.
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
    /// The bytes for the journal.
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
