//! Measures servers' resource usage while somebody follows `system.resources`, and publishes changes.

use std::sync::Arc;

use mgp_engine::servers::resources::{ResourceLimits, ResourceUsage, SAMPLE_INTERVAL};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::events::channels::{EventScope, KernelChannel, KernelEvent};
use mgp_engine::tools::events::resources::{ResourceEvent, ResourceLevel, ResourceReporter};
use mgp_protocol::mgp::events::Severity;
use serde_json::{Value, json};

use super::EventsMsg;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::unix_ms;
use mgp_servers::server::{ResourceMonitor, ResourceSnapshot, RunningGeneration};

/// Sends changes to the hub, until dropped. Measurements taken elsewhere count too: a server's limit violation is
/// published even if the server ends before the next measurement here.
pub(super) fn spawn_monitor(
    figures: &Arc<ResourceMonitor>,
    hub: Mailbox<EventsMsg>,
) -> SupervisedTask<()> {
    let figures = figures.clone();
    task::spawn_supervised("events.resources", async move {
        let (mut looks, mut teller) = (figures.watch_snapshots(), ResourceReporter::default());
        let mut every = tokio::time::interval(SAMPLE_INTERVAL);
        loop {
            tokio::select! {
                _ = every.tick() => drop(figures.sample().await),
                changed = looks.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let look = looks.borrow_and_update().clone();
                    for event in new_events(&mut teller, &look) {
                        // Lost where too many wait: the next ones come in half a minute.
                        let _ = hub.send(EventsMsg::KernelEvent(Box::new(event)));
                    }
                }
            }
        }
    })
}

fn new_events(teller: &mut ResourceReporter<i32>, look: &ResourceSnapshot) -> Vec<KernelEvent> {
    let Some(now) = look.taken_at() else {
        return Vec::new();
    };
    let lives: Vec<_> = look.generations().collect();
    teller.retain(|leader| lives.iter().any(|(seen, ..)| seen == leader));
    let mut events = Vec::new();
    for (leader, life, used) in lives {
        if let Some(news) = teller.observe(&leader, (used, life.limits), now) {
            events.push(resource_event(life, used, news));
        }
    }
    events
}

/// For an instance, its own agent and the operator receive it.
fn resource_event(
    life: &RunningGeneration,
    used: ResourceUsage,
    news: ResourceEvent,
) -> KernelEvent {
    let mut scope = EventScope::for_server(life.key.server());
    scope.agent = life.agent.clone();
    scope.operator_only = life.key.is_instance() && life.agent.is_none();
    let severity = match news.level {
        ResourceLevel::Clear => Severity::Info,
        ResourceLevel::Near => Severity::Warning,
        ResourceLevel::Reached => Severity::Error,
    };
    let mut data = json!({
        "server_id": life.key.server().as_str(),
        "memory_bytes": used.memory,
        "open_files": used.descriptors,
        "processes": used.processes,
        "limits": render_limits(life.limits),
        "level": news.level.as_str(),
    });
    if let Some(percent) = news.cpu_percent {
        data["cpu_percent"] = percent.into();
    }
    let for_agents = data.clone();
    if let Some(agent) = &life.agent {
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

/// The limits that are set, by their names in `[servers.limits]`.
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
