//! Instances per agent: started when the agent calls, stopped when idle, limited in number by the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::env::AgentValue;
use mgp_engine::servers::lifecycle::{LifecycleState, TransitionReason};
use mgp_engine::servers::spec::{PerAgent, ServerInstances as Rule, ServerSpec};
use mgp_engine::servers::supervision::StopOrder;
use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::Refusal;
use ractor::{Actor, ActorCell, ActorId, SpawnErr};
use tokio::sync::oneshot;

use super::handle::InstanceOwner;
use super::{ServerActor, ServerHandle, ServerMsg, ServerState};
use crate::login::ServerLogin;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{Reply, task};

/// The reason for stopping the supervisor of an ended instance.
const RETIRED_REASON: &str = "retired";
/// The shortest time between two checks for idle instances.
const IDLE_CHECK_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The running instances of a server.
#[derive(Debug, Default)]
pub(super) struct Instances {
    running: BTreeMap<InstanceOwner, RunningInstance>,
    /// The timer of the next idle check; dropped with the supervisor.
    idle_timer: Option<SupervisedTask<()>>,
}

#[derive(Debug)]
struct RunningInstance {
    handle: Arc<ServerHandle>,
    supervisor: ActorId,
}

type SpawnFuture<'s> = Pin<Box<dyn Future<Output = Result<ActorCell, SpawnErr>> + Send + 's>>;

impl ServerActor {
    /// Returns the caller's instance; starts it if there is none or the last one has ended.
    pub(super) async fn open_instance(
        &self,
        parent: ActorCell,
        state: &mut ServerState,
        owner: InstanceOwner,
        client_extensions: Option<Arc<str>>,
    ) -> Result<Arc<ServerHandle>, Refusal> {
        let Rule::PerAgent(bounds) = state.spec.instances else {
            return Err(self.handle.not_ready_refusal());
        };
        if self.handle.link().is_none() {
            return Err(self.handle.not_ready_refusal());
        }
        if let Some(one) = state.instances.running.get(&owner) {
            let parked = one.handle.state() == LifecycleState::Error;
            let signed_in = match one.handle.agent_login().filter(|_| parked) {
                // A person may have signed in for it meanwhile.
                Some(login) => self.has_signed_in(state, &owner, &login).await,
                None => false,
            };
            if one.handle.state() != LifecycleState::Disconnected && !signed_in {
                return Ok(one.handle.clone());
            }
            self.retire(state, &owner, TransitionReason::IdleTimeout);
        }
        let spec = self.spec_for(&state.spec, &owner).await?;
        let spec = self.add_agent_secrets(spec, &owner.agent).await?;
        self.evict_idle(state, bounds)?;
        let handle = self.handle.instance_for(&owner, client_extensions);
        if state.spec.login.per_agent
            && let Some(login) = self.connector.logins.login_for(&spec, Some(&owner.agent))
        {
            handle.set_login(login);
        }
        let actor = Self {
            handle: handle.clone(),
            ..self.clone()
        };
        let spawned = spawn(actor, spec, parent).await;
        let supervisor = spawned.map_err(|error| Refusal::Internal(error.to_string()))?;
        let one = RunningInstance {
            handle: handle.clone(),
            supervisor: supervisor.get_id(),
        };
        self.log().push_note(&format!("an instance for {owner}"));
        state.instances.running.insert(owner, one);
        self.publish_instances(state);
        let _ = handle.send(ServerMsg::Start { by_operator: false });
        self.schedule_idle_check(state, bounds.idle);
        Ok(handle)
    }

    /// The spec of an instance: in its caller's folder, if instances are per folder.
    async fn spec_for(
        &self,
        spec: &ServerSpec,
        owner: &InstanceOwner,
    ) -> Result<ServerSpec, Refusal> {
        let Some(folder) = owner.folder.clone() else {
            return Ok(spec.clone());
        };
        let looked = folder.clone();
        let looking = task::run_blocking("instances.folder", move || {
            looked.is_dir() && looked.canonicalize().is_ok_and(|real| *real == *looked)
        });
        match looking.await {
            Ok(true) => Ok(spec.with_folder(&folder)),
            Ok(false) | Err(_) => Err(Refusal::Forbidden(format!(
                "server {} runs in the folder of its caller, and {} is none any more: connect again from where you work",
                self.handle.id,
                folder.display()
            ))),
        }
    }

    /// The spec with the secrets of the instance's agent, which are masked from now on.
    async fn add_agent_secrets(
        &self,
        spec: ServerSpec,
        agent: &AgentId,
    ) -> Result<ServerSpec, Refusal> {
        if spec.agent_values.is_empty() {
            return Ok(spec);
        }
        let names = spec.agent_values.values().flat_map(AgentValue::names);
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        let secrets = self.connector.logins.agent_secrets(agent, names).await;
        let secrets = secrets.map_err(|error| Refusal::Internal(error.to_string()))?;
        let with_secrets = spec.with_agent_secrets(&secrets).map_err(|missing| {
            Refusal::Forbidden(format!(
                "server {} needs the secret {missing} of {agent}, and there is none: `mgp secrets set {missing} --agent {agent}` asks for it",
                self.handle.id
            ))
        })?;
        // Also as they are inside of other texts, such as `Bearer SECRET`.
        self.audit.redact(secrets.into_values().collect());
        Ok(with_secrets)
    }

    /// True if the reason for parking the instance is gone: it has a token, or its agent was replaced by one
    /// with the same name.
    async fn has_signed_in(
        &self,
        state: &ServerState,
        owner: &InstanceOwner,
        login: &Arc<ServerLogin>,
    ) -> bool {
        login.reload().await;
        let now = self
            .connector
            .logins
            .login_for(&state.spec, Some(&owner.agent));
        login.park_reason().is_none() || now.is_none_or(|now| !Arc::ptr_eq(&now, login))
    }

    /// At the limit, stops the instance that has been idle longest.
    fn evict_idle(&self, state: &mut ServerState, bounds: PerAgent) -> Result<(), Refusal> {
        if state.instances.running.len() < bounds.max {
            return Ok(());
        }
        let idle = state.instances.running.iter();
        let idle = idle.filter(|(_, one)| !one.handle.is_in_use());
        let longest = idle.min_by_key(|(_, one)| one.handle.last_used());
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
        if let Some(one) = state.instances.running.remove(owner) {
            drop(one.stop(why.into()));
            self.publish_instances(state);
        }
    }

    /// Stops the instances of a removed agent: a later one of the same name must not get what they have.
    pub(super) fn end_instances_of(&self, state: &mut ServerState, agent: &AgentId) {
        let owners = state.instances.running.keys();
        let owners: Vec<_> = owners.filter(|it| it.agent == *agent).cloned().collect();
        for owner in owners {
            self.retire(state, &owner, TransitionReason::OperatorRequest);
        }
    }

    /// Stops instances that have been idle long enough.
    pub(super) fn stop_idle(&self, state: &mut ServerState) {
        let Rule::PerAgent(bounds) = state.spec.instances else {
            return;
        };
        let now = monotonic_now().since_start();
        let (mut over, mut next) = (Vec::new(), bounds.idle);
        for (owner, one) in &state.instances.running {
            if one.handle.is_in_use() {
                one.handle.record_use();
                continue;
            }
            match bounds
                .idle
                .checked_sub(now.saturating_sub(one.handle.last_used()))
            {
                Some(left) if !left.is_zero() => next = next.min(left),
                Some(_) | None => over.push(owner.clone()),
            }
        }
        for owner in over {
            self.retire(state, &owner, TransitionReason::IdleTimeout);
        }
        state.instances.idle_timer = None;
        if !state.instances.running.is_empty() {
            self.schedule_idle_check(state, next);
        }
    }

    fn schedule_idle_check(&self, state: &mut ServerState, after: Duration) {
        if state.instances.idle_timer.is_none() {
            let parent = state.mailbox.clone();
            let clock = task::spawn_supervised("instances.idle", async move {
                tokio::time::sleep(after.max(IDLE_CHECK_INTERVAL_MIN)).await;
                let _ = parent.send_to_self(ServerMsg::StopIdle);
            });
            state.instances.idle_timer = Some(clock);
        }
    }

    /// Stops all instances with the server; the reply of its stop waits for them.
    pub(super) fn stop_instances(&self, state: &mut ServerState, order: StopOrder) {
        let all = std::mem::take(&mut state.instances).running;
        if all.is_empty() {
            return;
        }
        self.publish_instances(state);
        let ending: Vec<_> = all.into_values().map(|one| one.stop(order)).collect();
        let waiting = std::mem::take(&mut state.stopping);
        if waiting.is_empty() {
            return;
        }
        let (stopping, stopped) = Reply::new();
        state.stopping.push(stopping);
        task::spawn_detached("instances.end", async move {
            let _ = tokio::join!(stopped, join_all(ending));
            waiting.into_iter().for_each(|reply| reply.send(()));
        });
    }

    /// Removes an instance whose supervisor has ended; the agent's next call starts another one.
    pub(super) fn remove_lost_instance(&self, state: &mut ServerState, supervisor_id: ActorId) {
        let before = state.instances.running.len();
        state
            .instances
            .running
            .retain(|_, one| one.supervisor != supervisor_id);
        if state.instances.running.len() < before {
            self.publish_instances(state);
        }
    }

    fn publish_instances(&self, state: &ServerState) {
        let all = state.instances.running.iter();
        let table = all.map(|(owner, one)| (owner.clone(), one.handle.clone()));
        self.handle.publish_instances(table.collect());
    }
}

impl RunningInstance {
    /// Stops it; the returned receiver resolves when it has ended.
    fn stop(&self, order: StopOrder) -> oneshot::Receiver<()> {
        let (gone, ended) = oneshot::channel();
        let (reply, stopped) = Reply::new();
        if let Ok(supervisor) = self.handle.supervisor() {
            let _ = supervisor.send_to_self(match order.drain_timeout {
                Some(time) => ServerMsg::StopWithin(order.reason, time, reply),
                None => ServerMsg::Stop(order.reason, reply),
            });
            task::spawn_detached("instance.end", async move {
                let _ = stopped.await;
                supervisor.stop(RETIRED_REASON);
                let _ = gone.send(());
            });
        }
        ended
    }
}

/// Spawns the supervisor of an instance as a child of its server's supervisor.
fn spawn(actor: ServerActor, spec: ServerSpec, above: ActorCell) -> SpawnFuture<'static> {
    Box::pin(async move {
        let (actor, _) = Actor::spawn_linked(None, actor, spec, above).await?;
        Ok(actor.get_cell())
    })
}
