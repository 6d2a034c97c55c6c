//! Events that servers report with `notifications/mgp.audit`: logged as the server's statements, never as the
//! kernel's (MGP §6.5).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_json::member;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target, TraceId};
use serde_json::{Map, Value};

use super::{AuditHandle, new_event};
use mgp_runtime::time::monotonic_now;
use mgp_runtime::trace::Trace;

/// Maximum number of logged reports of one server within [`WINDOW`]; more are only counted, so that no server can
/// push others' events out of the log.
const REPORTS_MAX: u64 = 600;
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum length of a report in bytes.
const REPORT_BYTES: usize = 16 << 10;

/// Report counts by server.
#[derive(Debug, Default)]
pub(super) struct ReportCounts(Mutex<HashMap<ServerId, (MonotonicTime, u64)>>);

impl ReportCounts {
    /// Counts a report; `Err` with the number of dropped ones when that is to be logged.
    fn count(&self, server: &ServerId) -> Result<(), Option<u64>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic_now();
        let (since, count) = all.entry(server.clone()).or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        match *count {
            n if n <= REPORTS_MAX => Ok(()),
            n => Err((n == REPORTS_MAX + 1).then_some(REPORTS_MAX)),
        }
    }
}

impl AuditHandle {
    /// Records an event reported by a server.
    pub fn record_server_report(&self, server: &ServerId, params: Option<&str>) {
        let Some(queue) = &self.queue else { return };
        let params = params.filter(|p| p.len() <= REPORT_BYTES);
        let mut details = Map::new();
        let mut trace = None;
        match queue.report_counts.count(server) {
            Ok(()) => {
                let Some(params) = params else { return };
                trace = parse_report(params, &mut details);
            }
            Err(Some(limit)) => {
                let words = format!("more than {limit} reports a minute are not written down");
                details.insert("reported".into(), words.into());
            }
            Err(None) => return,
        }
        let trace = trace.unwrap_or_else(|| Trace::generate().id);
        self.record(report_event(server, &trace, details));
    }
}

/// The report's members, under names not used by the kernel's own events, and its trace.
fn parse_report(params: &str, details: &mut Map<String, Value>) -> Option<TraceId> {
    let text = |name: &str| {
        let raw = member(params, name)?;
        serde_json::from_str::<Value>(raw).ok()
    };
    for (name, own) in [
        ("event_type", "reported_type"),
        ("timestamp", "reported_at"),
        ("result", "reported_outcome"),
        ("actor", "reported_actor"),
        ("target", "reported_target"),
        ("details", "reported_details"),
    ] {
        if let Some(value) = text(name) {
            details.insert(own.into(), value);
        }
    }
    TraceId::from_params(Some(params), None)
}

fn report_event(server: &ServerId, trace: &TraceId, details: Map<String, Value>) -> Event {
    let actor = Actor {
        kind: ActorKind::Server,
        id: server.to_string(),
    };
    let target = Target {
        server_id: Some(server.to_string()),
        ..Target::default()
    };
    let kind = EventType::SERVER_REPORTED;
    new_event(kind, actor, target, trace, Outcome::Success, details.into())
}

/// Whether an event of the log was reported by this server.
pub(super) fn is_reported_by(event: &str, server: &ServerId) -> bool {
    let actor = member(event, "actor").and_then(|a| serde_json::from_str::<Actor>(a).ok());
    actor.is_some_and(|a| a.kind == ActorKind::Server && a.id == server.as_str())
}
