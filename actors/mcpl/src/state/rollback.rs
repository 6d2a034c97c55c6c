//! `state/rollback`: the server rolls back first, then the tree (MCPL §8.5).

use std::time::Duration;

use mgp_mcpl_engine::state::record::TreeKey;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::state::{Rollback, RollbackResult};
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::States;
use crate::audit::{self, McplActor, McplRecord};
use crate::host::McplHost;

/// The timeout for servers whose calls have no limit: there may be much to undo.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(60);

/// A requested rollback.
#[derive(Clone, Copy, Debug)]
pub struct RollbackRequest<'a> {
    /// The server of the set.
    pub server: &'a ServerId,
    /// The tree.
    pub key: &'a TreeKey,
    /// The target checkpoint.
    pub checkpoint: &'a str,
    /// The agent; `None` for the operator.
    pub agent: Option<&'a AgentId>,
}

impl States {
    /// Waits for the permit of the tree, asks its server, and moves the tree once the server has rolled back. Otherwise
    /// nothing moves.
    ///
    /// # Errors
    /// -32005 for a checkpoint that the tree does not have; -32001 and -32003 for a disabled or unknown set; the server's own
    /// error; the cause of a missing answer.
    pub async fn roll_back(
        &self,
        host: &McplHost,
        request: RollbackRequest<'_>,
    ) -> Result<RollbackResult, Refusal> {
        let result = self.run_rollback(host, request).await;
        let reason = match &result {
            Ok(result) => result.reason.clone(),
            Err(refusal) => Some(refusal.to_string()),
        };
        let record = McplRecord {
            feature_set: Some(&request.key.set),
            agent: request.agent.or(request.key.agent.as_ref()),
            actor: match request.agent {
                Some(_) => McplActor::Agent,
                None => McplActor::Operator,
            },
            outcome: match &result {
                Ok(result) if result.success => Outcome::Success,
                Ok(_) => Outcome::Failure,
                Err(refusal) => audit::outcome_of_refusal(refusal),
            },
            reason: reason.as_deref(),
            details: json!({"checkpoint": request.checkpoint.chars().take(256).collect::<String>()}),
            ..McplRecord::from_server(request.server, Rollback::METHOD)
        };
        audit::record(host.audit(), &record);
        result
    }

    async fn run_rollback(
        &self,
        host: &McplHost,
        RollbackRequest {
            server,
            key,
            checkpoint,
            ..
        }: RollbackRequest<'_>,
    ) -> Result<RollbackResult, Refusal> {
        check_may_roll_back(host, server, &key.set)?;
        let unknown = || Refusal::from(McplError::checkpoint_not_found(checkpoint));
        if !self.has_tree(server, key).await {
            return Err(unknown());
        }
        let tree_lock = self.lock_tree(server, key.clone()).await?;
        if !tree_lock.has_checkpoint(checkpoint) {
            return Err(unknown());
        }
        let params = Rollback {
            feature_set: key.set.to_string(),
            checkpoint: checkpoint.to_owned(),
        };
        let params = serde_json::to_string(&params).expect("params are always JSON");
        let answer = host
            .request_as_call(server, Rollback::METHOD, &params, ROLLBACK_TIMEOUT)
            .await?;
        let text = std::str::from_utf8(&answer).unwrap_or_default();
        let malformed = |why: String| Refusal::InvalidAnswer {
            server: server.clone(),
            reason: format!("its answer to state/rollback is none: {why}"),
        };
        let result: RollbackResult =
            mcp::parse_params(Some(text)).map_err(|why| malformed(why.to_string()))?;
        if result.success && result.checkpoint != checkpoint {
            return Err(malformed(format!(
                "it is about checkpoint {:?}",
                result.checkpoint
            )));
        }
        if result.success {
            tree_lock.move_to(checkpoint.to_owned()).await?;
        }
        Ok(result)
    }
}

/// Whether the operator allows a rollback of this set, and the server declared it.
fn check_may_roll_back(host: &McplHost, server: &ServerId, set: &str) -> Result<(), Refusal> {
    let sets = host.sets().load();
    let held = sets.get(server).and_then(|sets| sets.sets.get(set));
    let Some(held) = held else {
        return Err(McplError::unknown_set(set).into());
    };
    if !held.enabled {
        return Err(McplError::not_enabled(set, true).into());
    }
    if held.set.rollback {
        Ok(())
    } else {
        let words = format!("feature set {set} of {server} does not declare `rollback`");
        Err(McplError::bad_params(words).into())
    }
}
