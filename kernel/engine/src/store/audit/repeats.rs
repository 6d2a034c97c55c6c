//! Decides which actions of an agent or server are recorded individually, and which are only counted.
//!
//! There are two limits. Of equal refusals within a [`COUNT_WINDOW`] the first [`RECORDED_FIRST`] are recorded; the rest
//! is counted, and the count is recorded when the window ends. And each agent or server has a daily quota of bytes:
//! beyond it, its actions are counted by kind, and a count is recorded when the quota allows it again. So with one
//! token, pushing a record out of the log takes the size of the log divided by the quota, in days. Events of the kernel
//! and the operator, and decisions, are always recorded individually.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, Outcome, Target};
use serde_json::Value;

use crate::clock::MonotonicTime;

/// How long repetitions are counted before the count is recorded. A killed kernel loses these counts.
pub(crate) const COUNT_WINDOW: Duration = Duration::from_secs(10);
/// Equal refusals that are recorded individually, each with its trace, before they are counted.
pub(crate) const RECORDED_FIRST: u64 = 8;
/// Kinds of events counted for one agent at a time. Events of further kinds are recorded individually, or counted
/// without the tool once the quota is used up.
pub(crate) const KINDS_MAX: usize = 64;
/// Agents and servers with counts. Beyond it, the least recently active one is evicted, after its counts are recorded.
pub(crate) const ACTORS_MAX: usize = 1_024;
/// The assumed size of the record of a count.
const COUNT_BYTES: i64 = 1_024;
/// Longest part of a reason that distinguishes kinds, in bytes.
const REASON_MAX: usize = 128;
const DAY: Duration = Duration::from_secs(86_400);

/// The counts of one log.
#[derive(Clone, Debug)]
pub struct RepeatCounter {
    /// The daily quota of each; 0 for no limit.
    bytes_per_day: u64,
    actors: HashMap<ActorKey, ActorBudget>,
    /// Counts of evicted agents.
    evicted_counts: Vec<Event>,
    /// When the next count is due.
    next_check: Option<MonotonicTime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ActorKey {
    is_server: bool,
    id: String,
}

#[derive(Clone, Debug)]
struct ActorBudget {
    /// The rest of the quota; negative after a long record.
    bytes_left: i64,
    refilled_at: MonotonicTime,
    counts: HashMap<EventKey, RepeatCount>,
}

/// The properties by which events are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventKey {
    event_type: String,
    server: Option<String>,
    tool: Option<String>,
    result: &'static str,
    /// Without digits, because waiting times and the like differ each time.
    reason: String,
}

#[derive(Clone, Debug)]
struct RepeatCount {
    since: MonotonicTime,
    /// How many were recorded individually.
    recorded: u64,
    repeated: u64,
    /// The time of the first counted event.
    first: String,
    /// The last counted event.
    last: Option<Event>,
}

impl RepeatCounter {
    /// Creates an empty counter. Each agent and server has a quota of `bytes_per_day`, 0 for no limit. It may be used at
    /// once, and refills over the day.
    #[must_use]
    pub fn new(bytes_per_day: u64) -> Self {
        Self {
            bytes_per_day,
            actors: HashMap::new(),
            evicted_counts: Vec::new(),
            next_check: None,
        }
    }

    /// Counts an event if it is only to be counted. If not, record it and call [`RepeatCounter::record_written`].
    #[must_use]
    pub fn try_count(&mut self, event: &Event, now: MonotonicTime) -> bool {
        let is_refusal = matches!(event.result, Outcome::Denied | Outcome::Blocked);
        let per_day = self.bytes_per_day;
        let Some(budget) = self.budget(&event.actor, now) else {
            return false;
        };
        budget.refill(per_day, now);
        let is_over_quota = per_day > 0 && budget.bytes_left <= 0;
        if !is_refusal && !is_over_quota {
            return false;
        }
        let (key, has_capacity) = (EventKey::from_event(event), budget.counts.len() < KINDS_MAX);
        let window = RepeatCount::starting_at(now);
        let is_known = budget.counts.contains_key(&key);
        let count = match (is_known || has_capacity, is_over_quota) {
            (true, _) => budget.counts.entry(key).or_insert(window),
            (false, true) => budget.counts.entry(key.without_details()).or_insert(window),
            (false, false) => return false,
        };
        let is_counted = count.try_count(event, is_over_quota);
        let due = count.since + COUNT_WINDOW;
        self.next_check = Some(self.next_check.map_or(due, |next| next.min(due)));
        is_counted
    }

    /// Whether actions of this agent or server are only counted now, because it has used up its quota.
    pub fn is_over_quota(&mut self, actor: &Actor, now: MonotonicTime) -> bool {
        let per_day = self.bytes_per_day;
        per_day > 0
            && self.budget(actor, now).is_some_and(|budget| {
                budget.refill(per_day, now);
                budget.bytes_left <= 0
            })
    }

    /// A record of this many bytes was written.
    pub fn record_written(&mut self, actor: &Actor, bytes: u64, now: MonotonicTime) {
        let per_day = self.bytes_per_day;
        if per_day == 0 {
            return;
        }
        if let Some(budget) = self.budget(actor, now) {
            budget.refill(per_day, now);
            budget.bytes_left = budget
                .bytes_left
                .saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// When to call [`RepeatCounter::take_due`] next; `None` while nothing is counted.
    #[must_use]
    pub fn next_timeout(&self) -> Option<MonotonicTime> {
        if self.evicted_counts.is_empty() {
            self.next_check
        } else {
            Some(MonotonicTime::START)
        }
    }

    /// The counts to be recorded now: those of ended windows, as far as the quota of their agent allows.
    #[must_use]
    pub fn take_due(&mut self, now: MonotonicTime) -> Vec<Event> {
        let mut out = std::mem::take(&mut self.evicted_counts);
        if self.next_check.is_none_or(|next| next > now) {
            return out;
        }
        let per_day = self.bytes_per_day;
        for budget in self.actors.values_mut() {
            budget.refill(per_day, now);
            let mut bytes = budget.bytes_left;
            budget.counts.retain(|_, count| {
                let has_ended = now.duration_since(count.since) >= COUNT_WINDOW;
                let has_quota = per_day == 0 || bytes > 0;
                if !has_ended || (count.repeated > 0 && !has_quota) {
                    return true;
                }
                if let Some(event) = count.to_event() {
                    bytes -= COUNT_BYTES;
                    out.push(event);
                }
                false
            });
        }
        self.next_check = self
            .actors
            .values()
            .filter_map(|a| a.next_due(per_day))
            .min();
        out
    }

    /// All counts, also of open windows: before the log ends, and before old records are removed.
    #[must_use]
    pub fn take_all(&mut self) -> Vec<Event> {
        let mut out = std::mem::take(&mut self.evicted_counts);
        for budget in self.actors.values_mut() {
            out.extend(
                budget
                    .counts
                    .drain()
                    .filter_map(|(_, count)| count.to_event()),
            );
        }
        self.next_check = None;
        out
    }

    fn budget(&mut self, actor: &Actor, now: MonotonicTime) -> Option<&mut ActorBudget> {
        let key = ActorKey::from_actor(actor)?;
        if self.actors.len() >= ACTORS_MAX && !self.actors.contains_key(&key) {
            self.evict_actor(now);
        }
        let bytes = i64::try_from(self.bytes_per_day).unwrap_or(i64::MAX);
        Some(match self.actors.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(ActorBudget {
                bytes_left: bytes,
                refilled_at: now,
                counts: HashMap::new(),
            }),
        })
    }

    /// Evicts all agents with a full quota and no counts, or else the least recently active one.
    fn evict_actor(&mut self, now: MonotonicTime) {
        let per_day = self.bytes_per_day;
        self.actors.retain(|_, budget| {
            budget.refill(per_day, now);
            let is_full = i64::try_from(per_day).is_ok_and(|all| budget.bytes_left >= all);
            !budget.counts.is_empty() || !is_full
        });
        if self.actors.len() < ACTORS_MAX {
            return;
        }
        let oldest = self
            .actors
            .iter()
            .min_by_key(|(_, budget)| budget.refilled_at);
        let oldest = oldest.map(|(key, _)| key.clone());
        if let Some(evicted) = oldest.and_then(|key| self.actors.remove(&key)) {
            let counts = evicted.counts.into_values();
            self.evicted_counts
                .extend(counts.filter_map(|count| count.to_event()));
        }
    }
}

impl ActorKey {
    /// The key of a limited actor.
    fn from_actor(actor: &Actor) -> Option<Self> {
        let is_server = match actor.kind {
            ActorKind::Agent => false,
            ActorKind::Server => true,
            ActorKind::Operator | ActorKind::Node | ActorKind::Kernel => return None,
        };
        let id = actor.id.clone();
        Some(Self { is_server, id })
    }
}

impl ActorBudget {
    fn refill(&mut self, per_day: u64, now: MonotonicTime) {
        let quota = i64::try_from(per_day).unwrap_or(i64::MAX);
        let gained =
            now.duration_since(self.refilled_at).as_nanos() * u128::from(per_day) / DAY.as_nanos();
        let gained = i64::try_from(gained).unwrap_or(i64::MAX);
        // Fractions of a byte accumulate.
        if gained > 0 {
            self.bytes_left = self.bytes_left.saturating_add(gained).min(quota);
            self.refilled_at = now;
        }
    }

    /// When its next count is due: its window has ended, and the quota allows it.
    fn next_due(&self, per_day: u64) -> Option<MonotonicTime> {
        let due = self
            .counts
            .values()
            .map(|count| count.since + COUNT_WINDOW)
            .min()?;
        if per_day == 0 || self.bytes_left > 0 {
            return Some(due);
        }
        let missing = u128::from(self.bytes_left.unsigned_abs()) + 1;
        let nanos = missing * DAY.as_nanos() / u128::from(per_day) + 1;
        let after = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(due.max(self.refilled_at + after))
    }
}

impl EventKey {
    fn from_event(event: &Event) -> Self {
        let reason = event.details.get("reason").and_then(Value::as_str);
        let mut reason = reason.unwrap_or_default().to_owned();
        reason.retain(|c| !c.is_ascii_digit());
        let end = reason.floor_char_boundary(REASON_MAX);
        reason.truncate(end);
        Self {
            event_type: event.event_type.as_str().to_owned(),
            server: event.target.server_id.clone(),
            tool: event.target.tool_name.clone(),
            result: outcome_label(event.result),
            reason,
        }
    }

    /// The key for all events of this type and result.
    fn without_details(self) -> Self {
        Self {
            server: None,
            tool: None,
            reason: String::new(),
            ..self
        }
    }
}

impl RepeatCount {
    fn starting_at(now: MonotonicTime) -> Self {
        Self {
            since: now,
            recorded: 0,
            repeated: 0,
            first: String::new(),
            last: None,
        }
    }

    /// Counts an event unless it is to be recorded individually.
    fn try_count(&mut self, event: &Event, is_over_quota: bool) -> bool {
        if !is_over_quota && self.repeated == 0 && self.recorded < RECORDED_FIRST {
            self.recorded += 1;
            return false;
        }
        if self.repeated == 0 {
            self.first.clone_from(&event.timestamp);
        }
        self.repeated += 1;
        let mut event = event.clone();
        if self
            .last
            .as_ref()
            .is_some_and(|last| last.target != event.target)
        {
            // Of several tools: the details of one do not apply to the others.
            event.target = Target::default();
            event.details.clear();
        }
        self.last = Some(event);
        true
    }

    fn to_event(&self) -> Option<Event> {
        let mut event = self.last.clone()?;
        event.details.remove("duration_ms");
        event.details.remove("parts_us");
        let details = &mut event.details;
        details.insert("repeated".into(), self.repeated.into());
        details.insert("first".into(), self.first.clone().into());
        details.insert("last".into(), event.timestamp.clone().into());
        Some(event)
    }
}

fn outcome_label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Failure => "failure",
        Outcome::Blocked => "blocked",
        Outcome::Denied => "denied",
        Outcome::Timeout => "timeout",
        Outcome::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::audit::chain::tests::event;
    use proptest::prelude::*;
    use serde_json::json;

    fn at(secs: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(secs))
    }

    fn refused(tool: &str) -> Event {
        let mut refused = event(json!({"reason": "Unknown tool", "duration_ms": 1}));
        refused.result = Outcome::Denied;
        refused.target.tool_name = Some(tool.into());
        refused
    }

    fn done(tool: &str) -> Event {
        Event {
            result: Outcome::Success,
            ..refused(tool)
        }
    }

    fn repeated(event: &Event) -> u64 {
        event.details["repeated"].as_u64().unwrap()
    }

    #[test]
    fn equal_refusals_are_counted_after_the_first() {
        let mut repeats = RepeatCounter::new(0);
        let written = (0..100).filter(|_| !repeats.try_count(&refused("a"), at(1)));
        assert_eq!(written.count() as u64, RECORDED_FIRST);
        assert!(!repeats.try_count(&refused("b"), at(1)));
        assert!(
            !repeats.try_count(&done("a"), at(1)),
            "what was done is no refusal"
        );
        assert_eq!(repeats.next_timeout(), Some(at(11)));
        assert_eq!(repeats.take_due(at(10)), []);
        let due = repeats.take_due(at(11));
        assert_eq!((due.len(), repeated(&due[0])), (1, 100 - RECORDED_FIRST));
        let details = &due[0].details;
        assert_eq!(details["reason"], "Unknown tool");
        assert!(details["first"].is_string() && details.get("duration_ms").is_none());
        assert_eq!((repeats.next_timeout(), repeats.take_all()), (None, vec![]));
        assert!(!repeats.try_count(&refused("a"), at(12)), "a new window");
    }

    /// No event is lost, a count waits for the quota, and other agents are not affected.
    #[test]
    fn an_agent_over_its_quota_is_only_counted() {
        let mut repeats = RepeatCounter::new(86_400);
        assert!(!repeats.try_count(&done("a"), at(0)));
        repeats.record_written(&done("a").actor, 86_400 + 99, at(0));
        for n in 0..500 {
            assert!(repeats.try_count(&done(&format!("t{}", n % 200)), at(1)));
        }
        let mut other = done("a");
        other.actor.id = "b".into();
        assert!(!repeats.try_count(&other, at(1)));
        other.actor.kind = ActorKind::Operator;
        repeats.record_written(&other.actor, 1 << 40, at(1));
        assert!(!repeats.try_count(&other, at(1)));
        assert_eq!(repeats.take_due(at(60)), [], "nothing pays for it");
        assert_eq!(
            repeats.next_timeout(),
            Some(at(100) + Duration::from_nanos(1))
        );
        let one = repeats.take_due(at(101));
        assert_eq!(one.len(), 1);
        let rest = repeats.take_all();
        assert!(rest.len() <= KINDS_MAX);
        let all: u64 = one.iter().chain(&rest).map(repeated).sum();
        assert_eq!(all, 500);
    }

    #[test]
    fn evicted_agents_lose_no_count() {
        let mut repeats = RepeatCounter::new(1);
        let mut counted = 0;
        for n in 0..2 * ACTORS_MAX {
            let mut event = done("a");
            event.actor.id = format!("a{n}");
            repeats.record_written(&event.actor, 10, at(n as u64));
            counted += u64::from(repeats.try_count(&event, at(n as u64)));
        }
        assert!(repeats.actors.len() <= ACTORS_MAX);
        assert_eq!(counted, 2 * ACTORS_MAX as u64);
        let reported: u64 = repeats.take_all().iter().map(repeated).sum();
        assert_eq!(reported, counted);
    }

    proptest! {
        /// Recorded and counted events add up, and each agent stays within its quota.
        #[test]
        fn no_event_is_lost_and_bytes_are_bounded(
            steps in proptest::collection::vec((0u8..100, any::<bool>(), 0u64..30), 1..300)
        ) {
            const PER_DAY: u64 = 40_000;
            let mut repeats = RepeatCounter::new(PER_DAY);
            let (mut now, mut all, mut bytes) = (0, 0, 0);
            for (tool, is_refused, gap) in &steps {
                now += gap;
                let tool = format!("t{tool}");
                let event = if *is_refused { refused(&tool) } else { done(&tool) };
                if !repeats.try_count(&event, at(now)) {
                    all += 1;
                    bytes += 700;
                    repeats.record_written(&event.actor, 700, at(now));
                }
                for count in repeats.take_due(at(now)) {
                    all += repeated(&count);
                    bytes += 700;
                    repeats.record_written(&count.actor, 700, at(now));
                }
            }
            all += repeats.take_all().iter().map(repeated).sum::<u64>();
            prop_assert_eq!(all, steps.len() as u64);
            prop_assert!(bytes <= PER_DAY + PER_DAY * now / 86_400 + 2 * COUNT_BYTES as u64);
        }
    }
}
