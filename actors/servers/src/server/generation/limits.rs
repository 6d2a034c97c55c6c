//! Checks the resource usage of a generation, if its server has limits (MGP §11.4).

use std::sync::Arc;

use mgp_engine::servers::resources::{ResourceVerdict, SAMPLE_INTERVAL, UsageMonitor};

use super::{GenerationOrders, ServerGeneration};
use crate::server::ServerMsg;
use crate::server::resource_usage::{RunningGeneration, TrackedGeneration};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{Mailbox, task};

impl ServerGeneration {
    /// Tracks the usage of its processes until the returned value is dropped.
    pub(super) fn track_usage(
        &self,
        leader: i32,
        marked: &mgp_protocol::ids::ServerId,
    ) -> UsageWatch {
        let (monitor, mark) = (&self.connector.resource_usage, &self.mark);
        let limits = self.spec.resources;
        let generation = RunningGeneration {
            key: self.handle.key().clone(),
            agent: self.handle.agent().cloned(),
            limits,
        };
        let counted = monitor.track_generation(leader, generation, mark, marked);
        if limits.is_empty() {
            return UsageWatch::Counted(counted);
        }
        let (orders, supervisor, generation) =
            (self.orders.clone(), self.mailbox.clone(), self.number);
        let watch = UsageMonitor::new(limits);
        UsageWatch::Watched(task::spawn_supervised(
            "server.limits",
            enforce_limits(counted, watch, orders, supervisor, generation),
        ))
    }
}

/// Tracking of a generation's processes; dropping it ends the tracking.
#[derive(Debug)]
pub(super) enum UsageWatch {
    /// Without limits: usage is read only on request.
    Counted(#[expect(dead_code, reason = "dropped with the life")] TrackedGeneration),
    /// With limits: usage is read regularly.
    Watched(#[expect(dead_code, reason = "dropped with the life")] SupervisedTask<()>),
}

/// Reports an exceeded limit to the supervisor once, which starts an orderly shutdown; if the excess grows much,
/// shortens the shutdown.
async fn enforce_limits(
    counted: TrackedGeneration,
    mut watch: UsageMonitor,
    orders: Arc<GenerationOrders>,
    supervisor: Mailbox<ServerMsg>,
    generation: u64,
) {
    let mut reported = false;
    loop {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        let Some(used) = counted.sample().await else {
            continue;
        };
        match watch.check_usage(used, monotonic_now()) {
            ResourceVerdict::WithinLimits => {}
            ResourceVerdict::Exceeded(_) if reported => {}
            ResourceVerdict::Exceeded(why) => {
                reported = supervisor
                    .send(ServerMsg::LimitExceeded(generation, why))
                    .is_ok();
            }
            ResourceVerdict::FarExceeded(why) => return orders.fail(why),
        }
    }
}
