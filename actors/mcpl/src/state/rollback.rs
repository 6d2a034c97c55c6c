//! `state/rollback`: the server goes back first, then the tree (MCPL §8.5).

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

/// Who wants what rolled back.
#[derive(Clone, Copy, Debug)]
pub struct RollbackRequest<'a> {
    /// Whose tools they are.
    pub server: &'a ServerId,
    /// Which tree.
    pub key: &'a TreeKey,
    /// Where to go back to.
    pub checkpoint: &'a str,
    /// The agent; `None` for the operator.
    pub agent: Option<&'a AgentId>,
}

impl States {
    /// Waits for the permit of the tree, asks its server, and moves the tree when the server has rolled back. In all
    /// other cases nothing moves.
    ///
    /// # Errors
    /// -32005 for a checkpoint that the tree does not have; -32001 and -32003 for a set that is not enabled or not
    /// there; the server's own error; whatever kept its answer from coming.
    pub async fn roll_back(
        &self,
        host: &McplHost,
        rolling: RollbackRequest<'_>,
    ) -> Result<RollbackResult, Refusal> {
        let rolled = self.run_rollback(host, rolling).await;
        let reason = match &rolled {
            Ok(back) => back.reason.clone(),
            Err(refusal) => Some(refusal.to_string()),
        };
        let record = McplRecord {
            feature_set: Some(&rolling.key.set),
            agent: rolling.agent.or(rolling.key.agent.as_ref()),
            actor: match rolling.agent {
                Some(_) => McplActor::Agent,
                None => McplActor::Operator,
            },
            outcome: match &rolled {
                Ok(back) if back.success => Outcome::Success,
                Ok(_) => Outcome::Failure,
                Err(refusal) => audit::outcome_of_refusal(refusal),
            },
            reason: reason.as_deref(),
            details: json!({"checkpoint": rolling.checkpoint.chars().take(256).collect::<String>()}),
            ..McplRecord::from_server(rolling.server, Rollback::METHOD)
        };
        audit::record(host.audit(), &record);
        rolled
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
        let turn = self.lock_tree(server, key.clone()).await?;
        if !turn.has_checkpoint(checkpoint) {
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
        let faulty = |why: String| Refusal::InvalidAnswer {
            server: server.clone(),
            reason: format!("its answer to state/rollback is none: {why}"),
        };
        let back: RollbackResult =
            mcp::parse_params(Some(text)).map_err(|why| faulty(why.to_string()))?;
        if back.success && back.checkpoint != checkpoint {
            return Err(faulty(format!(
                "it is about checkpoint {:?}",
                back.checkpoint
            )));
        }
        if back.success {
            turn.move_to(checkpoint.to_owned()).await?;
        }
        Ok(back)
    }
}

/// Whether the operator lets this set be rolled back, and the server declared that it can.
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
