//! Health checks (MGP §11.3): by MGP where that was negotiated, else by MCP's `ping` in the legacy era. The
//! modern era has no such request.

use std::sync::Arc;

use mgp_engine::servers::health::{Checkups, DEADLINE, HealthVerdict, PingAnswer};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::health::{Health, Ping, Pong};
use mgp_protocol::mgp::negotiation::{Features, means_unsupported};
use mgp_protocol::refusal::Refusal;

use super::ServerLife;
use super::end::End;
use crate::link::{Link, Wire, code};
use mgp_runtime::time::{answer_within, unix_ms};

/// The request used for health checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// `mgp/health/ping`, in messages of this era.
    Mgp(Era),
    /// `ping`.
    Mcp,
    /// The list of a lite server, which the kernel reads for a `ping`.
    Lite,
}

impl ServerLife {
    /// Resolves when the server has failed its health checks for too long.
    pub(in crate::server) async fn tended(&self, link: &Arc<Link>) -> End {
        let rules = self.connector.health;
        let mut question = question(link).filter(|_| !rules.interval.is_zero());
        let mut checkups = Checkups::new(rules);
        let mut before = Health::Healthy;
        while let Some(asked) = question {
            tokio::time::sleep(rules.interval).await;
            let answer = match ask(link, asked).await {
                Some(answer) => answer,
                None => {
                    question = mcp_question(link);
                    continue;
                }
            };
            match checkups.heard(answer) {
                HealthVerdict::Lives(health) => {
                    self.handle.is_well(health);
                    if health != before {
                        self.handle.log.note(&format!("it is {}", health.as_str()));
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

fn question(link: &Link) -> Option<Question> {
    let era = link.era_of(Features::LIFECYCLE);
    era.map(Question::Mgp).or_else(|| mcp_question(link))
}

fn mcp_question(link: &Link) -> Option<Question> {
    link.peer_in(Era::Legacy).map(|_| match link.wire() {
        Wire::Lite(_) => Question::Lite,
        Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Node(_) => Question::Mcp,
    })
}

/// The result of a check; `None` when the server does not know the method.
async fn ask(link: &Arc<Link>, question: Question) -> Option<PingAnswer> {
    let params;
    let (era, method, params) = match question {
        Question::Mgp(era) => {
            let ping = Ping {
                timestamp: Some(rfc3339_ms(unix_ms())),
                server_id: None,
            };
            params = serde_json::to_string(&ping).expect("a ping is always JSON");
            (era, Ping::METHOD, Some(params.as_str()))
        }
        Question::Mcp | Question::Lite => (Era::Legacy, mcp::Ping::METHOD, None),
    };
    let asked = link.ask_unhurried(era, method, params);
    match answer_within(DEADLINE, asked).await {
        Some(Ok(result)) => Some(PingAnswer::Came(said(question, &result))),
        Some(Err(refusal)) if question == Question::Mcp && refusal.is_answer() => {
            Some(PingAnswer::Came(Health::Healthy))
        }
        Some(Err(Refusal::Peer(error))) => match (question, code(error.get())) {
            (Question::Mgp(_), Some(code)) if means_unsupported(code) => None,
            (Question::Mgp(_), _) => Some(PingAnswer::Came(Health::Unhealthy)),
            (Question::Mcp, _) => Some(PingAnswer::Came(Health::Healthy)),
            // It does not tell its list.
            (Question::Lite, _) => Some(PingAnswer::Came(Health::Unhealthy)),
        },
        Some(Err(refusal)) if question == Question::Lite => Some(unlisted(&refusal)),
        // Over HTTP a ping can be refused before its server reads it: that is no answer of the server's.
        Some(Err(Refusal::Faulty { .. })) => Some(PingAnswer::Came(Health::Unhealthy)),
        Some(Err(Refusal::Lost { .. })) if link.transport() != "stdio" => Some(PingAnswer::Missing),
        // Not sent: the server has as many calls as it may have, or is being stopped.
        Some(Err(_)) => Some(PingAnswer::Busy),
        None if !matches!(question, Question::Mgp(_)) && link.in_flight() > 0 => {
            Some(PingAnswer::Busy)
        }
        None => Some(PingAnswer::Missing),
    }
}

/// What it means that the list of a lite server could not be read.
fn unlisted(refusal: &Refusal) -> PingAnswer {
    let gone = matches!(
        refusal,
        Refusal::Lost { .. }
            | Refusal::TimedOut { .. }
            | Refusal::NotReady {
                unreachable: true,
                ..
            }
    );
    match gone {
        true => PingAnswer::Missing,
        // Not sent.
        false
            if matches!(
                refusal,
                Refusal::NotReady { .. } | Refusal::Overloaded { .. }
            ) =>
        {
            PingAnswer::Busy
        }
        false => PingAnswer::Came(Health::Unhealthy),
    }
}

fn said(question: Question, result: &[u8]) -> Health {
    match question {
        Question::Mcp | Question::Lite => Health::Healthy,
        Question::Mgp(_) => {
            let text = std::str::from_utf8(result).ok();
            let pong = mcp::read::<Pong>(text);
            pong.map_or(Health::Degraded, |pong| pong.status)
        }
    }
}
