//! Health checks (MGP §11.3): with MGP if negotiated, else with MCP's `ping` in the legacy family. The stateless
//! family has no such request.

use std::sync::Arc;

use mgp_engine::servers::health::{HealthMonitor, HealthVerdict, PING_TIMEOUT, PingOutcome};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::health::{Health, Ping, Pong};
use mgp_protocol::mgp::negotiation::{Features, is_unsupported_code};
use mgp_protocol::refusal::Refusal;

use super::ServerGeneration;
use super::end::End;
use crate::link::{Link, Wire, error_code};
use mgp_runtime::time::{timeout_with_grace, unix_ms};

/// The request used for health checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthCheck {
    /// `mgp/health/ping`, in messages of this family.
    Mgp(ProtocolFamily),
    /// `ping`.
    Mcp,
    /// The list of a lite server, which replaces `ping`.
    Lite,
}

impl ServerGeneration {
    /// Resolves when the server has failed its health checks for too long.
    pub(in crate::server) async fn monitor_health(&self, link: &Arc<Link>) -> End {
        let rules = self.connector.health;
        let mut method = health_check(link).filter(|_| !rules.interval.is_zero());
        let mut checkups = HealthMonitor::new(rules);
        let mut before = Health::Healthy;
        while let Some(check) = method {
            tokio::time::sleep(rules.interval).await;
            let answer = match run_check(link, check).await {
                Some(answer) => answer,
                None => {
                    method = mcp_health_check(link);
                    continue;
                }
            };
            match checkups.record(answer) {
                HealthVerdict::Alive(health) => {
                    self.handle.set_healthy(health);
                    if health != before {
                        self.handle
                            .log
                            .push_note(&format!("it is {}", health.as_str()));
                        tracing::info!(server = %self.handle.id, health = health.as_str(), "health");
                    }
                    before = health;
                }
                HealthVerdict::Failed(why) => return End::Failed(why),
            }
        }
        std::future::pending().await
    }
}

fn health_check(link: &Link) -> Option<HealthCheck> {
    let family = link.family_negotiating(Features::LIFECYCLE);
    family
        .map(HealthCheck::Mgp)
        .or_else(|| mcp_health_check(link))
}

fn mcp_health_check(link: &Link) -> Option<HealthCheck> {
    link.peer_for(ProtocolFamily::Legacy)
        .map(|_| match link.wire() {
            Wire::Lite(_) => HealthCheck::Lite,
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Node(_) => HealthCheck::Mcp,
        })
}

/// Runs one check; `None` if the server does not know the method.
async fn run_check(link: &Arc<Link>, check: HealthCheck) -> Option<PingOutcome> {
    let params;
    let (family, method, params) = match check {
        HealthCheck::Mgp(family) => {
            let ping = Ping {
                timestamp: Some(render_rfc3339_ms(unix_ms())),
                server_id: None,
            };
            params = serde_json::to_string(&ping).expect("a ping is always JSON");
            (family, Ping::METHOD, Some(params.as_str()))
        }
        HealthCheck::Mcp | HealthCheck::Lite => (ProtocolFamily::Legacy, mcp::Ping::METHOD, None),
    };
    let request = link.request_without_timeout(family, method, params);
    match timeout_with_grace(PING_TIMEOUT, request).await {
        Some(Ok(result)) => Some(PingOutcome::Answered(parse_health(check, &result))),
        Some(Err(refusal)) if check == HealthCheck::Mcp && refusal.is_answer() => {
            Some(PingOutcome::Answered(Health::Healthy))
        }
        Some(Err(Refusal::Peer(error))) => match (check, error_code(error.get())) {
            (HealthCheck::Mgp(_), Some(code)) if is_unsupported_code(code) => None,
            (HealthCheck::Mgp(_), _) => Some(PingOutcome::Answered(Health::Unhealthy)),
            (HealthCheck::Mcp, _) => Some(PingOutcome::Answered(Health::Healthy)),
            // The server does not return its list.
            (HealthCheck::Lite, _) => Some(PingOutcome::Answered(Health::Unhealthy)),
        },
        Some(Err(refusal)) if check == HealthCheck::Lite => Some(interpret_list_failure(&refusal)),
        // Over HTTP a ping can be refused before the server reads it; that is not an answer of the server.
        Some(Err(Refusal::InvalidAnswer { .. })) => Some(PingOutcome::Answered(Health::Unhealthy)),
        Some(Err(Refusal::ServerLost { .. })) if link.transport() != "stdio" => {
            Some(PingOutcome::TimedOut)
        }
        // Not sent: the server is at its call limit, or is being stopped.
        Some(Err(_)) => Some(PingOutcome::Busy),
        None if !matches!(check, HealthCheck::Mgp(_)) && link.in_flight() > 0 => {
            Some(PingOutcome::Busy)
        }
        None => Some(PingOutcome::TimedOut),
    }
}

/// The meaning of a failure to read the list of a lite server.
fn interpret_list_failure(refusal: &Refusal) -> PingOutcome {
    let gone = matches!(
        refusal,
        Refusal::ServerLost { .. }
            | Refusal::TimedOut { .. }
            | Refusal::NotReady {
                unreachable: true,
                ..
            }
    );
    match gone {
        true => PingOutcome::TimedOut,
        // Not sent.
        false
            if matches!(
                refusal,
                Refusal::NotReady { .. } | Refusal::Overloaded { .. }
            ) =>
        {
            PingOutcome::Busy
        }
        false => PingOutcome::Answered(Health::Unhealthy),
    }
}

fn parse_health(check: HealthCheck, result: &[u8]) -> Health {
    match check {
        HealthCheck::Mcp | HealthCheck::Lite => Health::Healthy,
        HealthCheck::Mgp(_) => {
            let text = std::str::from_utf8(result).ok();
            let pong = mcp::parse_params::<Pong>(text);
            pong.map_or(Health::Degraded, |pong| pong.status)
        }
    }
}
