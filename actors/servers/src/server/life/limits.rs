//! Looks from time to time at what a life uses, where its server has limits (MGP §11.4).

use std::sync::Arc;

use mgp_engine::servers::resources::{PERIOD, ResourceVerdict, ResourceWatch};

use super::{Orders, ServerLife};
use crate::server::ServerMsg;
use crate::server::resources::{CountedLife, RunningLife};
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;

impl ServerLife {
    /// Counts its processes, and looks at them as long as what is returned is held.
    pub(super) fn limited(&self, leader: i32, marked: &mgp_protocol::ids::ServerId) -> LimitedLife {
        let (figures, mark) = (&self.connector.figures, &self.mark);
        let limits = self.spec.resources;
        let life = RunningLife {
            key: self.handle.key().clone(),
            agent: self.handle.agent().cloned(),
            limits,
        };
        let counted = figures.count(leader, life, mark, marked);
        if limits.is_empty() {
            return LimitedLife::Counted(counted);
        }
        let (orders, me, life) = (self.orders.clone(), self.me.clone(), self.attempt);
        let watch = ResourceWatch::new(limits);
        LimitedLife::Watched(task::supervised(
            "server.limits",
            looks(counted, watch, orders, me, life),
        ))
    }
}

/// A life whose processes are counted; dropping it ends that.
#[derive(Debug)]
pub(super) enum LimitedLife {
    /// Without limits: looked at when somebody asks.
    Counted(#[expect(dead_code, reason = "dropped with the life")] CountedLife),
    /// With limits.
    Watched(#[expect(dead_code, reason = "dropped with the life")] SupervisedTask<()>),
}

/// Tells the supervisor once; the end that follows takes its time, and is cut short where it gets much
/// worse meanwhile.
async fn looks(
    counted: CountedLife,
    mut watch: ResourceWatch,
    orders: Arc<Orders>,
    supervisor: Mailbox<ServerMsg>,
    life: u64,
) {
    let mut told = false;
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(used) = counted.look().await else {
            continue;
        };
        match watch.seen(used, moment()) {
            ResourceVerdict::Within => {}
            ResourceVerdict::Over(_) if told => {}
            ResourceVerdict::Over(why) => {
                told = supervisor.tell(ServerMsg::OverLimit(life, why)).is_ok();
            }
            ResourceVerdict::FarOver(why) => return orders.fail(why),
        }
    }
}
