//! Measures servers' resource usage while `system.resources` has subscribers, and publishes changes.

use std::sync::Arc;

use mgp_engine::servers::resources::{ResourceLimits, ResourceUsage, SAMPLE_INTERVAL};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::events::channels::{EventScope, KernelChannel, KernelEvent};
use mgp_engine::tools::events::resources::{ResourceEvent, ResourceLevel, ResourceReporter};
use mgp_protocol::mgp::events::Severity;
use serde_json::{Value, json};

use super::EventsMsg;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{Mailbox, task};
use mgp_servers::{ResourceMonitor, ResourceSnapshot, RunningGeneration};

/// Sends changes to the events actor, until dropped. Uses measurements taken elsewhere, too: a server's limit violation
/// is published even if the server ends before the next measurement here.
pub(super) fn spawn_monitor(
    monitor: &Arc<ResourceMonitor>,
    events_actor: Mailbox<EventsMsg>,
) -> SupervisedTask<()> {
    let monitor = monitor.clone();
    task::spawn_supervised("events.resources", async move {
        let (mut snapshots, mut reporter) =
            (monitor.watch_snapshots(), ResourceReporter::default());
        let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
        loop {
            tokio::select! {
                _ = interval.tick() => drop(monitor.sample().await),
                changed = snapshots.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let snapshot = snapshots.borrow_and_update().clone();
                    for event in new_events(&mut reporter, &snapshot) {
                        // Dropped when the mailbox is full: the next one follows in half a minute.
                        let _ = events_actor.send(EventsMsg::KernelEvent(Box::new(event)));
                    }
                }
            }
        }
    })
}

fn new_events(
    reporter: &mut ResourceReporter<i32>,
    snapshot: &ResourceSnapshot,
) -> Vec<KernelEvent> {
    let Some(now) = snapshot.taken_at() else {
        return Vec::new();
    };
    let generations: Vec<_> = snapshot.generations().collect();
    reporter.retain(|leader| generations.iter().any(|(running, ..)| running == leader));
    let mut events = Vec::new();
    for (leader, generation, used) in generations {
        if let Some(event) = reporter.observe(&leader, (used, generation.limits), now) {
            events.push(resource_event(generation, used, event));
        }
    }
    events
}

/// An instance's event is received by its own agent and the operator.
fn resource_event(
    generation: &RunningGeneration,
    used: ResourceUsage,
    event: ResourceEvent,
) -> KernelEvent {
    let mut scope = EventScope::for_server(generation.key.server());
    scope.agent = generation.agent.clone();
    scope.operator_only = generation.key.is_instance() && generation.agent.is_none();
    let severity = match event.level {
        ResourceLevel::Clear => Severity::Info,
        ResourceLevel::Near => Severity::Warning,
        ResourceLevel::Reached => Severity::Error,
    };
    let mut data = json!({
        "server_id": generation.key.server().as_str(),
        "memory_bytes": used.memory,
        "open_files": used.descriptors,
        "processes": used.processes,
        "limits": render_limits(generation.limits),
        "level": event.level.as_str(),
    });
    if let Some(percent) = event.cpu_percent {
        data["cpu_percent"] = percent.into();
    }
    let for_agents = data.clone();
    if let Some(agent) = &generation.agent {
        data["instance_of"] = agent.as_str().into();
    }
    KernelEvent {
        channel: KernelChannel::Resources,
        severity,
        scope,
        timestamp: render_rfc3339_ms(unix_ms()),
        data,
        for_agents: Some(for_agents),
    }
}

/// The configured limits, by their names in `[servers.limits]`.
fn render_limits(limits: ResourceLimits) -> Value {
    let set = [
        ("memory_bytes", limits.memory),
        ("cpu_percent", limits.cpu_percent),
        ("open_files", limits.descriptors),
        ("processes", limits.processes),
    ];
    let set = set.into_iter();
    set.filter_map(|(name, limit)| Some((name.to_owned(), limit?.into())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
