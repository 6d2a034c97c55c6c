//! One look at the kernel, by methods that everybody has who asks it: nothing is made for `mgp top` alone.

use std::time::Duration;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::approvals::{self, Decided, Pending};
use mgp_protocol::mgp::kernel::nodes::{self, Answered, Cluster};
use mgp_protocol::mgp::kernel::{KernelStatus, Metrics, MetricsText, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::figures::TopFigures;
use super::questions::TopAnswer;
use crate::cli::client::{KernelClient, read};
use crate::cli::commands::approvals::decided;
use crate::cli::failure::Failure;

/// What was seen at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct TopLook {
    /// When, in milliseconds from any moment on.
    pub(super) at_ms: u64,
    /// The same in milliseconds since 1970.
    pub(super) unix_ms: u64,
    pub(super) status: KernelStatus,
    pub(super) figures: TopFigures,
    pub(super) pending: Pending,
    pub(super) cluster: Cluster,
}

impl TopLook {
    /// Asks for all of it.
    pub(super) async fn at(client: &mut KernelClient, running: Duration) -> Result<Self, Failure> {
        let nothing = json!({});
        let status = asked(client, Status::METHOD, &nothing).await?;
        let figures: MetricsText = asked(client, Metrics::METHOD, &nothing).await?;
        let pending = asked(client, approvals::List::METHOD, &nothing).await?;
        let cluster = asked(client, nodes::List::METHOD, &nothing).await?;
        Ok(Self {
            at_ms: u64::try_from(running.as_millis()).unwrap_or(u64::MAX),
            unix_ms: mgp_runtime::time::unix_ms(),
            status,
            figures: TopFigures::read(&figures.text),
            pending,
            cluster,
        })
    }
}

/// Gives an answer, and says in a line what came of it.
pub(super) async fn answer(
    client: &mut KernelClient,
    answer: &TopAnswer,
) -> Result<String, Failure> {
    match answer {
        TopAnswer::Approve(id) => {
            let params = approvals::Approve {
                id: id.clone(),
                ..approvals::Approve::default()
            };
            let done: Decided = asked(client, approvals::Approve::METHOD, &params).await?;
            Ok(decided(&done))
        }
        TopAnswer::Deny(id) => {
            let params = approvals::Deny {
                id: id.clone(),
                ..approvals::Deny::default()
            };
            let done: Decided = asked(client, approvals::Deny::METHOD, &params).await?;
            Ok(decided(&done))
        }
        TopAnswer::LetIn(params) => {
            let done: Answered = asked(client, nodes::Approve::METHOD, params).await?;
            let (name, words, role) = (done.name, done.words, done.role.as_str());
            Ok(format!("{name} ({words}) is in, as {role}"))
        }
        TopAnswer::TurnAway(params) => {
            let done: Answered = asked(client, nodes::Refuse::METHOD, params).await?;
            Ok(format!("{} ({}) is turned away", done.name, done.words))
        }
    }
}

async fn asked<T: DeserializeOwned>(
    client: &mut KernelClient,
    method: &str,
    params: &impl Serialize,
) -> Result<T, Failure> {
    read(&client.request(method, params, &mut ()).await?)
}
