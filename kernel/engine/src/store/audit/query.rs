//! Which records of the log are asked for, and by what each of them can be found.

use std::borrow::Cow;

use mgp_protocol::mgp::audit::ActorKind;
use serde::Deserialize;

use crate::timestamps::parse_rfc3339;

/// Most records in one answer.
pub const FOUND_MAX: usize = 1_000;
/// As many where nobody says how many.
pub const FOUND_USUAL: usize = 100;

/// What records can be found by, the index with the most records to a value first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordIndex {
    /// When it happened; of every record.
    Time,
    /// The server.
    Server,
    /// The agent.
    Agent,
    /// The tool.
    Tool,
    /// The trace: a handful of records.
    Trace,
}

impl RecordIndex {
    /// How it is told from the others in a key.
    #[must_use]
    pub fn letter(self) -> u8 {
        match self {
            Self::Time => b't',
            Self::Server => b's',
            Self::Agent => b'a',
            Self::Tool => b'o',
            Self::Trace => b'r',
        }
    }
}

/// What is asked: a record has to be all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFilter {
    /// Who did it, or was given or denied something.
    pub agent: Option<String>,
    /// What it was done to, or who reported it.
    pub server: Option<String>,
    /// The server's own name of a tool.
    pub tool: Option<String>,
    /// The trace.
    pub trace: Option<String>,
    /// The first moment, in milliseconds since 1970.
    pub since_ms: u64,
    /// The first moment that is too late.
    pub until_ms: u64,
}

impl Default for RecordFilter {
    /// Every record.
    fn default() -> Self {
        Self {
            agent: None,
            server: None,
            tool: None,
            trace: None,
            since_ms: 0,
            until_ms: u64::MAX,
        }
    }
}

impl RecordFilter {
    /// The most selective index that finds all these records, and its value.
    #[must_use]
    pub fn index(&self) -> (RecordIndex, &str) {
        let asked = [
            (RecordIndex::Trace, &self.trace),
            (RecordIndex::Tool, &self.tool),
            (RecordIndex::Agent, &self.agent),
            (RecordIndex::Server, &self.server),
        ];
        let mut asked = asked.into_iter();
        let first = asked.find_map(|(index, value)| Some((index, value.as_deref()?)));
        first.unwrap_or((RecordIndex::Time, ""))
    }

    /// Whether an event is asked for. One that cannot be read is not.
    #[must_use]
    pub fn judge(&self, event: &str) -> bool {
        let Some(found) = IndexedEvent::read(event) else {
            return false;
        };
        let has = |index: RecordIndex, asked: &Option<String>| {
            let mut of = found.values.iter().filter(|(of, _)| *of == index);
            asked
                .as_ref()
                .is_none_or(|asked| of.any(|(_, value)| value == asked))
        };
        (self.since_ms..self.until_ms).contains(&found.at_ms)
            && has(RecordIndex::Agent, &self.agent)
            && has(RecordIndex::Server, &self.server)
            && has(RecordIndex::Tool, &self.tool)
            && has(RecordIndex::Trace, &self.trace)
    }
}

/// What an event can be found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedEvent {
    /// When it happened, in milliseconds since 1970.
    pub at_ms: u64,
    /// One value of an index each; none twice. That of the time is empty.
    pub values: Vec<(RecordIndex, String)>,
}

impl IndexedEvent {
    /// Reads it off the event's text.
    #[must_use]
    pub fn read(event: &str) -> Option<Self> {
        let event: NamedIn<'_> = serde_json::from_str(event).ok()?;
        let mut values = vec![(RecordIndex::Time, String::new())];
        let mut add = |index, value: Option<Cow<'_, str>>| {
            let value = value.map(|value| (index, value.into_owned()));
            if let Some(value) = value.filter(|value| !values.contains(value)) {
                values.push(value);
            }
        };
        add(RecordIndex::Trace, Some(event.trace_id));
        match event.actor.kind {
            ActorKind::Agent => add(RecordIndex::Agent, Some(event.actor.id)),
            ActorKind::Server => add(RecordIndex::Server, Some(event.actor.id)),
            ActorKind::Operator | ActorKind::Node | ActorKind::Kernel => {}
        }
        add(RecordIndex::Agent, event.target.agent_id);
        add(RecordIndex::Server, event.target.server_id);
        add(RecordIndex::Tool, event.target.tool_name);
        Some(Self {
            at_ms: parse_rfc3339(&event.timestamp).unwrap_or_default(),
            values,
        })
    }
}

/// The members of an event that say who, what and when.
#[derive(Deserialize)]
struct NamedIn<'a> {
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow)]
    trace_id: Cow<'a, str>,
    #[serde(borrow)]
    actor: NamedActor<'a>,
    #[serde(borrow)]
    target: NamedTarget<'a>,
}

#[derive(Deserialize)]
struct NamedActor<'a> {
    #[serde(rename = "type")]
    kind: ActorKind,
    #[serde(borrow)]
    id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct NamedTarget<'a> {
    #[serde(borrow)]
    server_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    agent_id: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn granted() -> String {
        json!({
            "timestamp": "1970-01-01T00:00:01.500Z", "trace_id": "t", "event_type": "ACCESS_GRANTED",
            "actor": {"type": "agent", "id": "agent.a"},
            "target": {"server_id": "it", "tool_name": "e\"cho", "agent_id": "agent.b"},
            "result": "SUCCESS", "details": {"agent_id": "agent.c"},
        })
        .to_string()
    }

    /// A record is found by who did it and by whom it is about, and by nothing that its details say.
    #[test]
    fn a_record_has_to_be_all_of_what_is_asked() {
        let event = granted();
        let judge = |ask: &dyn Fn(&mut RecordFilter)| {
            let mut filter = RecordFilter::default();
            ask(&mut filter);
            filter.judge(&event)
        };
        assert!(judge(&|_| {}));
        for agent in ["agent.a", "agent.b"] {
            assert!(judge(&|f| f.agent = Some(agent.into())), "{agent}");
        }
        assert!(!judge(&|f| f.agent = Some("agent.c".into())));
        assert!(judge(&|f| f.tool = Some("e\"cho".into())));
        assert!(judge(&|f| {
            (f.server, f.trace) = (Some("it".into()), Some("t".into()))
        }));
        assert!(!judge(&|f| {
            (f.server, f.trace) = (Some("it".into()), Some("u".into()))
        }));
        assert!(judge(&|f| (f.since_ms, f.until_ms) = (1_500, 1_501)));
        assert!(!judge(&|f| f.since_ms = 1_501) && !judge(&|f| f.until_ms = 1_500));
        assert!(!RecordFilter::default().judge("{}"));
    }

    #[test]
    fn the_most_selective_index_is_asked() {
        let mut filter = RecordFilter::default();
        assert_eq!(filter.index(), (RecordIndex::Time, ""));
        filter.server = Some("s".into());
        assert_eq!(filter.index(), (RecordIndex::Server, "s"));
        filter.agent = Some("a".into());
        assert_eq!(filter.index(), (RecordIndex::Agent, "a"));
        filter.tool = Some("o".into());
        assert_eq!(filter.index(), (RecordIndex::Tool, "o"));
        filter.trace = Some("r".into());
        assert_eq!(filter.index(), (RecordIndex::Trace, "r"));
    }

    /// Whatever index is asked, the record is in it: in each of its values, and in each only once.
    #[test]
    fn a_record_is_in_every_index_it_can_be_asked_by() {
        let found = IndexedEvent::read(&granted()).unwrap();
        assert_eq!(found.at_ms, 1_500);
        let values: Vec<_> = found.values.iter().map(|(i, v)| (*i, v.as_str())).collect();
        assert_eq!(
            values,
            [
                (RecordIndex::Time, ""),
                (RecordIndex::Trace, "t"),
                (RecordIndex::Agent, "agent.a"),
                (RecordIndex::Agent, "agent.b"),
                (RecordIndex::Server, "it"),
                (RecordIndex::Tool, "e\"cho"),
            ]
        );
    }
}
