//! One instance per agent: started when the agent calls, ended after an idle time, never more than the
//! configuration allows.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::servers::lifecycle::{LifecycleState, TransitionReason};
use mgp_engine::servers::spec::{PerAgent, ServerInstances as Rule, ServerSpec};
use mgp_engine::servers::supervision::StopOrder;
use mgp_protocol::refusal::Refusal;
use ractor::{Actor, ActorCell, ActorId, SpawnErr};
use tokio::sync::oneshot;

use super::handle::InstanceOwner;
use super::{ServerActor, ServerHandle, ServerMsg, ServerState};
use crate::login::ServerLogin;
use mgp_runtime::mailbox::Reply;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;

/// The reason for stopping the supervisor of an instance that has ended.
const RETIRED: &str = "retired";
/// The shortest time between two looks for idle instances.
const LOOK: Duration = Duration::from_secs(1);

/// The instances of a server; no more than its configuration allows.
#[derive(Debug, Default)]
pub(super) struct Instances {
    all: BTreeMap<InstanceOwner, One>,
    /// The timer of the next look; dropped with the supervisor.
    clock: Option<SupervisedTask<()>>,
}

#[derive(Debug)]
struct One {
    handle: Arc<ServerHandle>,
    supervisor: ActorId,
}

type Spawned<'s> = Pin<Box<dyn Future<Output = Result<ActorCell, SpawnErr>> + Send + 's>>;

impl ServerActor {
    /// The caller's instance; started when there is none or the last one has ended.
    pub(super) async fn instance(
        &self,
        me: ActorCell,
        state: &mut ServerState,
        owner: InstanceOwner,
    ) -> Result<Arc<ServerHandle>, Refusal> {
        let Rule::PerAgent(bounds) = state.spec.instances else {
            return Err(self.handle.not_ready());
        };
        if self.handle.link().is_none() {
            return Err(self.handle.not_ready());
        }
        if let Some(one) = state.instances.all.get(&owner) {
            let parked = one.handle.state() == LifecycleState::Error;
            let signed_in = match one.handle.own_login().filter(|_| parked) {
                // A person may have signed in for it just now.
                Some(login) => self.has_signed_in(state, &owner, &login).await,
                None => false,
            };
            if one.handle.state() != LifecycleState::Disconnected && !signed_in {
                return Ok(one.handle.clone());
            }
            self.retire(state, &owner, TransitionReason::IdleTimeout);
        }
        let spec = self.spec_for(&state.spec, &owner).await?;
        self.make_room(state, bounds)?;
        let handle = self.handle.of_owner(&owner);
        if state.spec.login.per_agent
            && let Some(login) = self.connector.logins.of(&spec, Some(&owner.agent))
        {
            handle.has_login(login);
        }
        let actor = Self {
            handle: handle.clone(),
            ..self.clone()
        };
        let spawned = spawn(actor, spec, me).await;
        let supervisor = spawned.map_err(|error| Refusal::Broken(error.to_string()))?;
        let one = One {
            handle: handle.clone(),
            supervisor: supervisor.get_id(),
        };
        self.log().note(&format!("an instance for {owner}"));
        state.instances.all.insert(owner, one);
        self.show_instances(state);
        let _ = handle.tell(ServerMsg::Start { by_operator: false });
        self.look_later(state, bounds.idle);
        Ok(handle)
    }

    /// What the instance is started by: in its caller's folder, where servers are that have one for each.
    async fn spec_for(
        &self,
        spec: &ServerSpec,
        owner: &InstanceOwner,
    ) -> Result<ServerSpec, Refusal> {
        let Some(folder) = owner.folder.clone() else {
            return Ok(spec.clone());
        };
        let looked = folder.clone();
        let looking = task::blocking("instances.folder", move || {
            looked.is_dir() && looked.canonicalize().is_ok_and(|real| *real == *looked)
        });
        match looking.await {
            Ok(true) => Ok(spec.in_folder(&folder)),
            Ok(false) | Err(_) => Err(Refusal::Forbidden(format!(
                "server {} runs in the folder of its caller, and {} is none any more: connect again from where you work",
                self.handle.id,
                folder.display()
            ))),
        }
    }

    /// Whether what parked the instance is gone: it has a token, or its agent is another one of the same name.
    async fn has_signed_in(
        &self,
        state: &ServerState,
        owner: &InstanceOwner,
        held: &Arc<ServerLogin>,
    ) -> bool {
        held.look().await;
        let now = self.connector.logins.of(&state.spec, Some(&owner.agent));
        held.parked().is_none() || now.is_none_or(|now| !Arc::ptr_eq(&now, held))
    }

    /// At the limit, ends the instance that has been idle longest.
    fn make_room(&self, state: &mut ServerState, bounds: PerAgent) -> Result<(), Refusal> {
        if state.instances.all.len() < bounds.max {
            return Ok(());
        }
        let idle = state.instances.all.iter();
        let idle = idle.filter(|(_, one)| !one.handle.is_in_use());
        let longest = idle.min_by_key(|(_, one)| one.handle.used());
        let Some(owner) = longest.map(|(owner, _)| owner.clone()) else {
            return Err(Refusal::Overloaded {
                what: format!(
                    "the list of {} instances of server {} (max_instances), all of them in use,",
                    bounds.max, self.handle.id
                ),
            });
        };
        self.retire(state, &owner, TransitionReason::ResourceLimit);
        Ok(())
    }

    fn retire(&self, state: &mut ServerState, owner: &InstanceOwner, why: TransitionReason) {
        if let Some(one) = state.instances.all.remove(owner) {
            drop(one.end(why.into()));
            self.show_instances(state);
        }
    }

    /// Ends instances that have been idle long enough.
    pub(super) fn stop_idle(&self, state: &mut ServerState) {
        let Rule::PerAgent(bounds) = state.spec.instances else {
            return;
        };
        let now = moment().since_start();
        let (mut over, mut next) = (Vec::new(), bounds.idle);
        for (owner, one) in &state.instances.all {
            if one.handle.is_in_use() {
                one.handle.touch();
                continue;
            }
            match bounds
                .idle
                .checked_sub(now.saturating_sub(one.handle.used()))
            {
                Some(left) if !left.is_zero() => next = next.min(left),
                Some(_) | None => over.push(owner.clone()),
            }
        }
        for owner in over {
            self.retire(state, &owner, TransitionReason::IdleTimeout);
        }
        state.instances.clock = None;
        if !state.instances.all.is_empty() {
            self.look_later(state, next);
        }
    }

    fn look_later(&self, state: &mut ServerState, after: Duration) {
        if state.instances.clock.is_none() {
            let me = state.me.clone();
            let clock = task::supervised("instances.idle", async move {
                tokio::time::sleep(after.max(LOOK)).await;
                let _ = me.remind(ServerMsg::StopIdle);
            });
            state.instances.clock = Some(clock);
        }
    }

    /// Ends all of them with the server; the answer to its stop waits for theirs.
    pub(super) fn end_instances(&self, state: &mut ServerState, order: StopOrder) {
        let all = std::mem::take(&mut state.instances).all;
        if all.is_empty() {
            return;
        }
        self.show_instances(state);
        let ending: Vec<_> = all.into_values().map(|one| one.end(order)).collect();
        let waiting = std::mem::take(&mut state.stopping);
        if waiting.is_empty() {
            return;
        }
        let (stopping, stopped) = Reply::new();
        state.stopping.push(stopping);
        task::detached("instances.end", async move {
            let _ = tokio::join!(stopped, join_all(ending));
            waiting.into_iter().for_each(|reply| reply.send(()));
        });
    }

    /// The supervisor of an instance is gone; the agent's next call starts another one.
    pub(super) fn lost_instance(&self, state: &mut ServerState, who: ActorId) {
        let before = state.instances.all.len();
        state.instances.all.retain(|_, one| one.supervisor != who);
        if state.instances.all.len() < before {
            self.show_instances(state);
        }
    }

    fn show_instances(&self, state: &ServerState) {
        let all = state.instances.all.iter();
        let table = all.map(|(owner, one)| (owner.clone(), one.handle.clone()));
        self.handle.show_instances(table.collect());
    }
}

impl One {
    /// Ends it; the returned receiver resolves when it has ended.
    fn end(&self, order: StopOrder) -> oneshot::Receiver<()> {
        let (gone, ended) = oneshot::channel();
        let (reply, stopped) = Reply::new();
        if let Ok(supervisor) = self.handle.supervisor() {
            let _ = supervisor.remind(match order.within {
                Some(time) => ServerMsg::StopWithin(order.why, time, reply),
                None => ServerMsg::Stop(order.why, reply),
            });
            task::detached("instance.end", async move {
                let _ = stopped.await;
                supervisor.stop(RETIRED);
                let _ = gone.send(());
            });
        }
        ended
    }
}

/// Spawns the supervisor of an instance, below that of its server.
fn spawn(actor: ServerActor, spec: ServerSpec, above: ActorCell) -> Spawned<'static> {
    Box::pin(async move {
        let (actor, _) = Actor::spawn_linked(None, actor, spec, above).await?;
        Ok(actor.get_cell())
    })
}
