//! Looks from time to time at what a life uses, where its server has limits (MGP §11.4).

use std::sync::Arc;

use mgp_engine::servers::resources::{ResourceVerdict, SAMPLE_INTERVAL, UsageMonitor};

use super::{GenerationOrders, ServerGeneration};
use crate::server::ServerMsg;
use crate::server::resource_usage::{RunningGeneration, TrackedGeneration};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{Mailbox, task};

impl ServerGeneration {
    /// Counts its processes, and looks at them as long as what is returned is held.
    pub(super) fn track_usage(
        &self,
        leader: i32,
        marked: &mgp_protocol::ids::ServerId,
    ) -> UsageWatch {
        let (figures, mark) = (&self.connector.resource_usage, &self.mark);
        let limits = self.spec.resources;
        let life = RunningGeneration {
            key: self.handle.key().clone(),
            agent: self.handle.agent().cloned(),
            limits,
        };
        let counted = figures.track_generation(leader, life, mark, marked);
        if limits.is_empty() {
            return UsageWatch::Counted(counted);
        }
        let (orders, me, life) = (self.orders.clone(), self.mailbox.clone(), self.number);
        let watch = UsageMonitor::new(limits);
        UsageWatch::Watched(task::spawn_supervised(
            "server.limits",
            enforce_limits(counted, watch, orders, me, life),
        ))
    }
}

/// A life whose processes are counted; dropping it ends that.
#[derive(Debug)]
pub(super) enum UsageWatch {
    /// Without limits: looked at when somebody asks.
    Counted(#[expect(dead_code, reason = "dropped with the life")] TrackedGeneration),
    /// With limits.
    Watched(#[expect(dead_code, reason = "dropped with the life")] SupervisedTask<()>),
}

/// Tells the supervisor once; the end that follows takes its time, and is cut short where it gets much
/// worse meanwhile.
async fn enforce_limits(
    counted: TrackedGeneration,
    mut watch: UsageMonitor,
    orders: Arc<GenerationOrders>,
    supervisor: Mailbox<ServerMsg>,
    life: u64,
) {
    let mut told = false;
    loop {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        let Some(used) = counted.sample().await else {
            continue;
        };
        match watch.check_usage(used, monotonic_now()) {
            ResourceVerdict::WithinLimits => {}
            ResourceVerdict::Exceeded(_) if told => {}
            ResourceVerdict::Exceeded(why) => {
                told = supervisor.send(ServerMsg::LimitExceeded(life, why)).is_ok();
            }
            ResourceVerdict::FarExceeded(why) => return orders.fail(why),
        }
    }
}
