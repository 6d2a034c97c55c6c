//! Looks at what servers use while somebody follows `system.resources`, and tells what is news.

use std::sync::Arc;

use mgp_engine::servers::resources::{PERIOD, ResourceLimits, ResourceUse};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_engine::tools::events::channels::{EventScope, KernelChannel, KernelEvent};
use mgp_engine::tools::events::resources::{ResourceLevel, ResourceNews, ResourceTeller};
use mgp_protocol::mgp::events::Severity;
use serde_json::{Value, json};

use super::EventsMsg;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::unix_ms;
use mgp_servers::server::{ResourceFigures, ResourceLook, RunningLife};

/// Tells the hub what is news, until dropped. Looks that others take are seen, too: what ends a server is
/// told even where its end comes before the next look of this.
pub(super) fn follow(
    figures: &Arc<ResourceFigures>,
    hub: Mailbox<EventsMsg>,
) -> SupervisedTask<()> {
    let figures = figures.clone();
    task::supervised("events.resources", async move {
        let (mut looks, mut teller) = (figures.looks(), ResourceTeller::default());
        let mut every = tokio::time::interval(PERIOD);
        loop {
            tokio::select! {
                _ = every.tick() => drop(figures.look().await),
                changed = looks.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let look = looks.borrow_and_update().clone();
                    for event in news(&mut teller, &look) {
                        // Lost where too many wait: the next ones come in half a minute.
                        let _ = hub.tell(EventsMsg::Happened(Box::new(event)));
                    }
                }
            }
        }
    })
}

fn news(teller: &mut ResourceTeller<i32>, look: &ResourceLook) -> Vec<KernelEvent> {
    let Some(now) = look.at() else {
        return Vec::new();
    };
    let lives: Vec<_> = look.lives().collect();
    teller.keep(|leader| lives.iter().any(|(seen, ..)| seen == leader));
    let mut events = Vec::new();
    for (leader, life, used) in lives {
        if let Some(news) = teller.seen(&leader, (used, life.limits), now) {
            events.push(event(life, used, news));
        }
    }
    events
}

/// Of an instance its own agent and the operator hear.
fn event(life: &RunningLife, used: ResourceUse, news: ResourceNews) -> KernelEvent {
    let mut scope = EventScope::of_server(life.key.server());
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
        "limits": limits(life.limits),
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
        timestamp: rfc3339_ms(unix_ms()),
        data,
        for_agents: Some(for_agents),
    }
}

/// The limits that are set, by their names in `[servers.limits]`.
fn limits(limits: ResourceLimits) -> Value {
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
