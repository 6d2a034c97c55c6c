//! Health of the kernel and its servers, and their shutdown, for MGP clients: `mgp/health/*` and
//! `mgp/lifecycle/*` (MGP §11.3, §11.4). Callers see only servers that are visible to them.

pub(crate) mod metrics;
pub(crate) mod telemetry;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mgp_callers::Directory;
use mgp_callers::request::{AnswerFuture, Caller, Outcome, Request};
use mgp_engine::servers::health::PING_TIMEOUT;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::health::{Health, Ping, Pong, Readiness, ResourcesInUse, Status};
use mgp_protocol::mgp::lifecycle::{Accepted, Shutdown};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions::to_legacy_result;
use mgp_runtime::Reply;
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_servers::{Connector, ServerHandle, ServerMsg, ServerTable};
use mgp_store::StorageHealth;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

/// Longest accepted drain time of the kernel: it must end before the whole shutdown does.
pub(crate) const SHUTDOWN_TIMEOUT_MAX: Duration = Duration::from_secs(12);
/// Longest accepted drain time of one server.
const SERVER_STOP_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// The name of the kernel in results.
const KERNEL: &str = "mgp";

/// Answers health and lifecycle methods.
#[derive(Debug)]
pub(crate) struct HealthMethods {
    /// All servers.
    pub(crate) servers: Arc<ServerTable>,
    /// Connected clients, and who may see which server.
    pub(crate) directory: Arc<Directory>,
    /// Problems with the kernel's files.
    pub(crate) storage_health: StorageHealth,
    /// The drain timeouts of servers.
    pub(crate) connector: Arc<Connector>,
    /// Shuts the kernel down.
    pub(crate) shutdown: CancellationToken,
}

/// `resources` of the kernel itself.
#[derive(Serialize)]
struct KernelResources {
    open_connections: u64,
    #[serde(flatten)]
    used: ResourcesInUse,
}

impl HealthMethods {
    /// `mgp/health/ping`: never waits.
    ///
    /// # Errors
    /// Unknown server.
    pub(crate) fn ping(&self, request: &Request) -> Outcome {
        let ping: Ping = mcp::parse_params(request.params.as_deref())?;
        let (status, up, of) = match ping.server_id {
            None => {
                let servers = self.visible_servers(&request.caller);
                let up = monotonic_now().since_start();
                (self.overall_health(&servers), up, KERNEL.to_owned())
            }
            Some(id) => {
                let server = self.find(&request.caller, &id)?;
                (last_known_health(&server), uptime(&server), id)
            }
        };
        json_outcome(&Pong {
            status,
            timestamp: Some(render_rfc3339_ms(unix_ms())),
            uptime_secs: Some(up.as_secs().into()),
            server_id: Some(of),
        })
    }

    /// `mgp/health/status`. A server that negotiated `lifecycle` is asked itself.
    #[must_use]
    pub(crate) fn status(self: Arc<Self>, request: &Request) -> AnswerFuture {
        let (caller, params) = (request.caller.clone(), request.params.clone());
        Box::pin(async move {
            let status: Status = mcp::parse_params(params.as_deref())?;
            match status.server_id {
                None => self.readiness(&caller).await,
                Some(id) => self.server_readiness(&caller, &id).await,
            }
        })
    }

    /// `mgp/lifecycle/shutdown`, by the operator alone: of the kernel, or of one server.
    ///
    /// # Errors
    /// A caller that is not the operator; unknown server.
    pub(crate) fn shutdown(&self, request: &Request) -> Outcome {
        if !request.caller.operator {
            let who = &request.caller.agent;
            let why =
                format!("{who} may not do this; only the operator ends servers and the kernel");
            return Err(Refusal::Forbidden(why));
        }
        let shutdown: Shutdown = mcp::parse_params(request.params.as_deref())?;
        let requested = shutdown.timeout_ms.map(Duration::from_millis);
        let (pending, time) = match &shutdown.server_id {
            None => {
                let time = requested
                    .unwrap_or(self.connector.drain_timeout)
                    .min(SHUTDOWN_TIMEOUT_MAX);
                self.connector.set_shutdown_drain_timeout(time);
                let pending = self.visible_servers(&request.caller);
                self.shutdown.cancel();
                (pending, time)
            }
            Some(id) => {
                let server = self.find(&request.caller, id)?;
                let time = requested.unwrap_or(self.connector.drain_timeout);
                let time = time.min(SERVER_STOP_TIMEOUT_MAX);
                let (reply, _stopped) = Reply::new();
                let stop = ServerMsg::StopWithin(shutdown.reason.into(), time, reply);
                server.send(stop).map_err(internal_error)?;
                (vec![server], time)
            }
        };
        let pending = pending.iter().map(|server| in_flight_calls(server)).sum();
        json_outcome(&Accepted {
            accepted: true,
            pending_requests: pending,
            estimated_drain_ms: match pending {
                0 => 0,
                _ => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            },
        })
    }

    async fn readiness(&self, caller: &Caller) -> Outcome {
        let servers = self.visible_servers(caller);
        let (mut available, mut total) = (0, 0);
        for server in &servers {
            let granted = self.tool_count(caller, server);
            total += granted;
            available += if takes_calls(server) { granted } else { 0 };
        }
        let up: BTreeMap<&str, bool> = servers
            .iter()
            .map(|server| (server.id.as_str(), takes_calls(server)))
            .collect();
        // Usage of the whole machine is for the operator only.
        let (pending, resources) = if caller.operator {
            let pending = servers.iter().map(|server| in_flight_calls(server)).sum();
            let open_connections = self.directory.len() as u64;
            let used = self.connector.resource_usage.sample().await.kernel();
            (
                pending,
                to_raw_json(&KernelResources {
                    open_connections,
                    used,
                }),
            )
        } else {
            (0, to_raw_json(&serde_json::json!({})))
        };
        json_outcome(&Readiness {
            status: self.overall_health(&servers),
            uptime_secs: monotonic_now().since_start().as_secs(),
            tools_available: available,
            tools_total: total,
            pending_requests: pending,
            resources,
            checks: to_raw_json(&up),
        })
    }

    async fn server_readiness(&self, caller: &Caller, id: &str) -> Outcome {
        let server = self.find(caller, id)?;
        let link = server.link();
        if let Some(link) = &link
            && let Some(era) = link.family_negotiating(Features::LIFECYCLE)
        {
            let requested = link.request_without_timeout(era, Status::METHOD, Some("{}"));
            if let Ok(Ok(answer)) = tokio::time::timeout(PING_TIMEOUT, requested).await {
                return Ok(to_caller_version(&answer, caller));
            }
        }
        let total = self.tool_count(caller, &server);
        let used = self
            .connector
            .resource_usage
            .sample()
            .await
            .server(&server.id);
        json_outcome(&Readiness {
            status: last_known_health(&server),
            uptime_secs: uptime(&server).as_secs(),
            tools_available: if takes_calls(&server) { total } else { 0 },
            tools_total: total,
            pending_requests: in_flight_calls(&server),
            resources: used.map_or_else(
                || to_raw_json(&serde_json::json!({})),
                |used| to_raw_json(&used),
            ),
            checks: to_raw_json(&serde_json::json!({"connected": link.is_some()})),
        })
    }

    fn visible_servers(&self, caller: &Caller) -> Vec<Arc<ServerHandle>> {
        let servers = self.servers.load();
        let seen = servers.values().filter(|s| self.is_visible(caller, &s.id));
        seen.cloned().collect()
    }

    fn is_visible(&self, caller: &Caller, server: &ServerId) -> bool {
        self.directory.is_visible(caller, server)
    }

    fn find(&self, caller: &Caller, id: &str) -> Result<Arc<ServerHandle>, Refusal> {
        let known = self.servers.load();
        let id_of = ServerId::parse(id).ok();
        let found = id_of.and_then(|id| known.get(&id).cloned());
        found
            .filter(|server| self.is_visible(caller, &server.id))
            .ok_or_else(|| Refusal::UnknownServer(id.to_owned()))
    }

    /// The kernel is degraded if a server that should be up is not, or is unhealthy, or if a disk does not accept
    /// writes.
    fn overall_health(&self, servers: &[Arc<ServerHandle>]) -> Health {
        let ails = |server: &Arc<ServerHandle>| match server.state() {
            LifecycleState::Connected => last_known_health(server) != Health::Healthy,
            LifecycleState::Error | LifecycleState::Restarting => true,
            LifecycleState::Registered
            | LifecycleState::Connecting
            | LifecycleState::Draining
            | LifecycleState::Disconnected => false,
        };
        if self.storage_health.has_failure() || servers.iter().any(ails) {
            Health::Degraded
        } else {
            Health::Healthy
        }
    }

    /// The number of a running server's tools that this caller sees.
    fn tool_count(&self, caller: &Caller, server: &ServerHandle) -> u64 {
        let (table, who, now) = (self.directory.access(), caller.identity(), unix_ms());
        let tools = server.tools();
        let granted = tools
            .iter()
            .filter(|tool| table.is_allowed(&who, &server.id, Some(tool), now));
        granted.count() as u64
    }
}

/// The last health check; a server that is not connected is unhealthy.
/// True if its tools can be called, also where the call starts it first.
fn takes_calls(server: &ServerHandle) -> bool {
    server.link().is_some() || server.status().is_asleep()
}

fn last_known_health(server: &ServerHandle) -> Health {
    let status = server.status();
    match status.state {
        // A sleeping server is well.
        _ if status.is_asleep() => Health::Healthy,
        LifecycleState::Connected => server.health().unwrap_or_default(),
        LifecycleState::Draining => Health::Degraded,
        LifecycleState::Registered
        | LifecycleState::Connecting
        | LifecycleState::Disconnected
        | LifecycleState::Error
        | LifecycleState::Restarting => Health::Unhealthy,
    }
}

fn uptime(server: &ServerHandle) -> Duration {
    let status = server.status();
    match status.state {
        LifecycleState::Connected => monotonic_now().duration_since(status.since),
        LifecycleState::Registered
        | LifecycleState::Connecting
        | LifecycleState::Draining
        | LifecycleState::Disconnected
        | LifecycleState::Error
        | LifecycleState::Restarting => Duration::ZERO,
    }
}

fn in_flight_calls(server: &ServerHandle) -> u64 {
    server.in_flight()
}

/// Removes members that the caller's protocol version does not have.
fn to_caller_version(answer: &[u8], caller: &Caller) -> Bytes {
    let answer = String::from_utf8_lossy(answer);
    to_legacy_result(&answer, caller.version)
        .into_owned()
        .into()
}

fn to_raw_json(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("names and numbers are always JSON")
}

fn internal_error(error: impl std::fmt::Display) -> Refusal {
    Refusal::Internal(error.to_string())
}

fn json_outcome(value: &impl Serialize) -> Outcome {
    serde_json::to_vec(value)
        .map(Into::into)
        .map_err(internal_error)
}
