//! Which actions of an agent or server are recorded one by one, and which are counted.
//!
//! There are two bounds. Of equal refusals within a [`WINDOW`] the first [`WHOLE`] are recorded; the rest
//! is counted, and the count is recorded when the window ends. And each agent or server has a number of
//! bytes a day: beyond it its actions are counted by kind, and a count is recorded when it has bytes again.
//! So with one token it takes the size of the log, divided by the bytes of a day, in days to push a record
//! out. Events of the kernel and the operator, and decisions, are always recorded one by one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, Outcome, Target};
use serde_json::Value;

use crate::clock::MonotonicTime;

/// How long repetitions are counted before the count is recorded. A kernel that is killed loses these
/// counts.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Equal refusals that are recorded one by one, each with its trace, before they are counted.
pub const WHOLE: u64 = 8;
/// Kinds of events counted for one agent at a time. Events of further kinds are recorded one by one, or
/// counted without the tool when the bytes of the day are used up.
pub const KINDS_MAX: usize = 64;
/// Agents and servers that are counted. Beyond it, the one that was silent longest is dropped, after its
/// counts are recorded.
pub const ACTORS_MAX: usize = 1_024;
/// The assumed size of the record of a count.
const COUNT_BYTES: i64 = 1_024;
/// Longest part of a reason that distinguishes kinds, in bytes.
const REASON_MAX: usize = 128;
const DAY: Duration = Duration::from_secs(86_400);

/// The counts of one log.
#[derive(Clone, Debug)]
pub struct Repeats {
    /// Bytes of each a day; 0 for no bound.
    per_day: u64,
    actors: HashMap<Who, Account>,
    /// Counts of dropped agents.
    left: Vec<Event>,
    /// When to look next.
    next: Option<MonotonicTime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Who {
    server: bool,
    id: String,
}

#[derive(Clone, Debug)]
struct Account {
    /// Bytes that are left; negative after a long record.
    bytes: i64,
    /// The time of that.
    at: MonotonicTime,
    counts: HashMap<Same, RepeatCount>,
}

/// The properties by which events are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Same {
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
    /// How many were recorded one by one.
    whole: u64,
    repeated: u64,
    /// The time of the first counted event.
    first: String,
    /// The last counted event.
    last: Option<Event>,
}

impl Repeats {
    /// No counts. Each agent and each server may use `per_day` bytes a day, 0 for no bound; at once if it
    /// likes, and what it used comes back over the day.
    #[must_use]
    pub fn new(per_day: u64) -> Self {
        Self {
            per_day,
            actors: HashMap::new(),
            left: Vec::new(),
            next: None,
        }
    }

    /// Whether an event is only counted. Otherwise it is to be recorded, and then [`Repeats::wrote`]
    /// called.
    #[must_use]
    pub fn counts(&mut self, event: &Event, now: MonotonicTime) -> bool {
        let refused = matches!(event.result, Outcome::Denied | Outcome::Blocked);
        let per_day = self.per_day;
        let Some(account) = self.account(&event.actor, now) else {
            return false;
        };
        account.refill(per_day, now);
        let over = per_day > 0 && account.bytes <= 0;
        if !refused && !over {
            return false;
        }
        let (same, room) = (Same::of(event), account.counts.len() < KINDS_MAX);
        let window = RepeatCount::since(now);
        let known = account.counts.contains_key(&same);
        let count = match (known || room, over) {
            (true, _) => account.counts.entry(same).or_insert(window),
            (false, true) => account.counts.entry(same.of_any()).or_insert(window),
            (false, false) => return false,
        };
        let counted = count.take(event, over);
        let due = count.since + WINDOW;
        self.next = Some(self.next.map_or(due, |next| next.min(due)));
        counted
    }

    /// A record of this many bytes was written.
    pub fn wrote(&mut self, actor: &Actor, bytes: u64, now: MonotonicTime) {
        let per_day = self.per_day;
        if per_day == 0 {
            return;
        }
        if let Some(account) = self.account(actor, now) {
            account.refill(per_day, now);
            account.bytes = account
                .bytes
                .saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// When to call [`Repeats::due`] next; `None` while nothing is counted.
    #[must_use]
    pub fn wake(&self) -> Option<MonotonicTime> {
        match self.left.is_empty() {
            true => self.next,
            false => Some(MonotonicTime::START),
        }
    }

    /// The counts to be recorded now: of windows that are over, as far as the bytes of their agent allow.
    #[must_use]
    pub fn due(&mut self, now: MonotonicTime) -> Vec<Event> {
        let mut out = std::mem::take(&mut self.left);
        if self.next.is_none_or(|next| next > now) {
            return out;
        }
        let per_day = self.per_day;
        for account in self.actors.values_mut() {
            account.refill(per_day, now);
            let mut bytes = account.bytes;
            account.counts.retain(|_, count| {
                let over = now.since(count.since) >= WINDOW;
                let pays = per_day == 0 || bytes > 0;
                if !over || (count.repeated > 0 && !pays) {
                    return true;
                }
                if let Some(event) = count.event() {
                    bytes -= COUNT_BYTES;
                    out.push(event);
                }
                false
            });
        }
        self.next = self.actors.values().filter_map(|a| a.next(per_day)).min();
        out
    }

    /// All counts, whether their windows are over or not: before the log ends, and before old records are
    /// removed.
    #[must_use]
    pub fn rest(&mut self) -> Vec<Event> {
        let mut out = std::mem::take(&mut self.left);
        for account in self.actors.values_mut() {
            out.extend(
                account
                    .counts
                    .drain()
                    .filter_map(|(_, count)| count.event()),
            );
        }
        self.next = None;
        out
    }

    fn account(&mut self, actor: &Actor, now: MonotonicTime) -> Option<&mut Account> {
        let who = Who::of(actor)?;
        if self.actors.len() >= ACTORS_MAX && !self.actors.contains_key(&who) {
            self.forget(now);
        }
        let bytes = i64::try_from(self.per_day).unwrap_or(i64::MAX);
        Some(match self.actors.entry(who) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Account {
                bytes,
                at: now,
                counts: HashMap::new(),
            }),
        })
    }

    /// Drops an agent: first one that has used no bytes, else the one that was silent longest.
    fn forget(&mut self, now: MonotonicTime) {
        let per_day = self.per_day;
        self.actors.retain(|_, account| {
            account.refill(per_day, now);
            let unused = i64::try_from(per_day).is_ok_and(|all| account.bytes >= all);
            !account.counts.is_empty() || !unused
        });
        if self.actors.len() < ACTORS_MAX {
            return;
        }
        let quiet = self.actors.iter().min_by_key(|(_, account)| account.at);
        let quiet = quiet.map(|(who, _)| who.clone());
        if let Some(gone) = quiet.and_then(|who| self.actors.remove(&who)) {
            let counts = gone.counts.into_values();
            self.left.extend(counts.filter_map(|count| count.event()));
        }
    }
}

impl Who {
    /// Events that are bounded.
    fn of(actor: &Actor) -> Option<Self> {
        let server = match actor.kind {
            ActorKind::Agent => false,
            ActorKind::Server => true,
            ActorKind::Operator | ActorKind::Node | ActorKind::Kernel => return None,
        };
        let id = actor.id.clone();
        Some(Self { server, id })
    }
}

impl Account {
    fn refill(&mut self, per_day: u64, now: MonotonicTime) {
        let most = i64::try_from(per_day).unwrap_or(i64::MAX);
        let gained = now.since(self.at).as_nanos() * u128::from(per_day) / DAY.as_nanos();
        let gained = i64::try_from(gained).unwrap_or(i64::MAX);
        // Less than a byte is waited for.
        if gained > 0 {
            self.bytes = self.bytes.saturating_add(gained).min(most);
            self.at = now;
        }
    }

    /// When one of its counts is to be recorded: its window is over, and there are bytes for it.
    fn next(&self, per_day: u64) -> Option<MonotonicTime> {
        let due = self
            .counts
            .values()
            .map(|count| count.since + WINDOW)
            .min()?;
        if per_day == 0 || self.bytes > 0 {
            return Some(due);
        }
        let lacking = u128::from(self.bytes.unsigned_abs()) + 1;
        let nanos = lacking * DAY.as_nanos() / u128::from(per_day) + 1;
        let after = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(due.max(self.at + after))
    }
}

impl Same {
    fn of(event: &Event) -> Self {
        let reason = event.details.get("reason").and_then(Value::as_str);
        let mut reason = reason.unwrap_or_default().to_owned();
        reason.retain(|c| !c.is_ascii_digit());
        let end = reason.floor_char_boundary(REASON_MAX);
        reason.truncate(end);
        Self {
            event_type: event.event_type.as_str().to_owned(),
            server: event.target.server_id.clone(),
            tool: event.target.tool_name.clone(),
            result: word(event.result),
            reason,
        }
    }

    /// All events of this type and result, whatever else they are about.
    fn of_any(self) -> Self {
        Self {
            server: None,
            tool: None,
            reason: String::new(),
            ..self
        }
    }
}

impl RepeatCount {
    fn since(now: MonotonicTime) -> Self {
        Self {
            since: now,
            whole: 0,
            repeated: 0,
            first: String::new(),
            last: None,
        }
    }

    /// Whether another event is only counted.
    fn take(&mut self, event: &Event, over: bool) -> bool {
        if !over && self.repeated == 0 && self.whole < WHOLE {
            self.whole += 1;
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

    fn event(&self) -> Option<Event> {
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

fn word(outcome: Outcome) -> &'static str {
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
    fn the_same_refusal_is_written_some_times_and_then_counted() {
        let mut repeats = Repeats::new(0);
        let written = (0..100).filter(|_| !repeats.counts(&refused("a"), at(1)));
        assert_eq!(written.count() as u64, WHOLE);
        assert!(!repeats.counts(&refused("b"), at(1)));
        assert!(
            !repeats.counts(&done("a"), at(1)),
            "what was done is no refusal"
        );
        assert_eq!(repeats.wake(), Some(at(11)));
        assert_eq!(repeats.due(at(10)), []);
        let due = repeats.due(at(11));
        assert_eq!((due.len(), repeated(&due[0])), (1, 100 - WHOLE));
        let details = &due[0].details;
        assert_eq!(details["reason"], "Unknown tool");
        assert!(details["first"].is_string() && details.get("duration_ms").is_none());
        assert_eq!((repeats.wake(), repeats.rest()), (None, vec![]));
        assert!(!repeats.counts(&refused("a"), at(12)), "a new window");
    }

    /// Beyond its bytes nothing of an agent is written one by one, nothing of it is lost, and a count
    /// waits until it is paid for. Others are not concerned.
    #[test]
    fn beyond_its_bytes_an_agent_is_counted() {
        let mut repeats = Repeats::new(86_400);
        assert!(!repeats.counts(&done("a"), at(0)));
        repeats.wrote(&done("a").actor, 86_400 + 99, at(0));
        for n in 0..500 {
            assert!(repeats.counts(&done(&format!("t{}", n % 200)), at(1)));
        }
        let mut other = done("a");
        other.actor.id = "b".into();
        assert!(!repeats.counts(&other, at(1)));
        other.actor.kind = ActorKind::Operator;
        repeats.wrote(&other.actor, 1 << 40, at(1));
        assert!(!repeats.counts(&other, at(1)));
        assert_eq!(repeats.due(at(60)), [], "nothing pays for it");
        assert_eq!(repeats.wake(), Some(at(100) + Duration::from_nanos(1)));
        let one = repeats.due(at(101));
        assert_eq!(one.len(), 1);
        let rest = repeats.rest();
        assert!(rest.len() <= KINDS_MAX);
        let all: u64 = one.iter().chain(&rest).map(repeated).sum();
        assert_eq!(all, 500);
    }

    #[test]
    fn so_many_are_told_apart_and_no_count_is_lost_with_them() {
        let mut repeats = Repeats::new(1);
        let mut counted = 0;
        for n in 0..2 * ACTORS_MAX {
            let mut event = done("a");
            event.actor.id = format!("a{n}");
            repeats.wrote(&event.actor, 10, at(n as u64));
            counted += u64::from(repeats.counts(&event, at(n as u64)));
        }
        assert!(repeats.actors.len() <= ACTORS_MAX);
        assert_eq!(counted, 2 * ACTORS_MAX as u64);
        let told: u64 = repeats.rest().iter().map(repeated).sum();
        assert_eq!(told, counted);
    }

    proptest! {
        /// Whatever comes and whenever, what is written and what is counted is all of it, and the bytes
        /// of one agent have their bound.
        #[test]
        fn nothing_is_lost_and_the_bytes_are_bounded(
            steps in proptest::collection::vec((0u8..100, any::<bool>(), 0u64..30), 1..300)
        ) {
            const PER_DAY: u64 = 40_000;
            let mut repeats = Repeats::new(PER_DAY);
            let (mut now, mut all, mut bytes) = (0, 0, 0);
            for (tool, is_refused, gap) in &steps {
                now += gap;
                let tool = format!("t{tool}");
                let event = if *is_refused { refused(&tool) } else { done(&tool) };
                if !repeats.counts(&event, at(now)) {
                    all += 1;
                    bytes += 700;
                    repeats.wrote(&event.actor, 700, at(now));
                }
                for count in repeats.due(at(now)) {
                    all += repeated(&count);
                    bytes += 700;
                    repeats.wrote(&count.actor, 700, at(now));
                }
            }
            all += repeats.rest().iter().map(repeated).sum::<u64>();
            prop_assert_eq!(all, steps.len() as u64);
            prop_assert!(bytes <= PER_DAY + PER_DAY * now / 86_400 + 2 * COUNT_BYTES as u64);
        }
    }
}
