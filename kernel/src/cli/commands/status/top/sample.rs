//! A sample of the kernel, taken with public methods only.

use std::time::Duration;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::approvals::{self, DecisionResult, PendingList};
use mgp_protocol::mgp::kernel::nodes::{self, AdmissionResult, Cluster};
use mgp_protocol::mgp::kernel::{KernelStatus, Metrics, MetricsText, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::metrics::MetricsSnapshot;
use super::pending_entries::Decision;
use crate::cli::client::{KernelClient, parse_result};
use crate::cli::commands::approvals::render_decision;
use crate::cli::failure::Failure;

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Milliseconds from any fixed moment.
    pub(super) taken_at_ms: u64,
    /// Milliseconds since 1970.
    pub(super) unix_ms: u64,
    pub(super) status: KernelStatus,
    pub(super) metrics: MetricsSnapshot,
    pub(super) pending: PendingList,
    pub(super) cluster: Cluster,
}

impl Sample {
    /// Requests all parts.
    pub(super) async fn take(
        client: &mut KernelClient,
        running: Duration,
    ) -> Result<Self, Failure> {
        let nothing = json!({});
        let status = call(client, Status::METHOD, &nothing).await?;
        let figures: MetricsText = call(client, Metrics::METHOD, &nothing).await?;
        let pending = call(client, approvals::List::METHOD, &nothing).await?;
        let cluster = call(client, nodes::List::METHOD, &nothing).await?;
        Ok(Self {
            taken_at_ms: u64::try_from(running.as_millis()).unwrap_or(u64::MAX),
            unix_ms: mgp_runtime::time::unix_ms(),
            status,
            metrics: MetricsSnapshot::parse(&figures.text),
            pending,
            cluster,
        })
    }
}

/// Sends a decision, and describes the result in one line.
pub(super) async fn send_answer(
    client: &mut KernelClient,
    answer: &Decision,
) -> Result<String, Failure> {
    match answer {
        Decision::Approve(id) => {
            let params = approvals::Approve {
                id: id.clone(),
                ..approvals::Approve::default()
            };
            let done: DecisionResult = call(client, approvals::Approve::METHOD, &params).await?;
            Ok(render_decision(&done))
        }
        Decision::Deny(id) => {
            let params = approvals::Deny {
                id: id.clone(),
                ..approvals::Deny::default()
            };
            let done: DecisionResult = call(client, approvals::Deny::METHOD, &params).await?;
            Ok(render_decision(&done))
        }
        Decision::ApproveNode(params) => {
            let done: AdmissionResult = call(client, nodes::Approve::METHOD, params).await?;
            let (name, words, role) = (done.name, done.words, done.role.as_str());
            Ok(format!("{name} ({words}) is in, as {role}"))
        }
        Decision::RefuseNode(params) => {
            let done: AdmissionResult = call(client, nodes::Refuse::METHOD, params).await?;
            Ok(format!("{} ({}) is turned away", done.name, done.words))
        }
    }
}

async fn call<T: DeserializeOwned>(
    client: &mut KernelClient,
    method: &str,
    params: &impl Serialize,
) -> Result<T, Failure> {
    parse_result(&client.request(method, params, &mut ()).await?)
}
